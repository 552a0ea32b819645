"""Which of the client library's functions the tests call, by test file.

How this works: a library in front of libclient.so has every function that this one exports; each
sets a byte of a file and goes on to the real one. As a pytest plugin (``scripts/record-calls``) it
gives each test file a folder of its own. What is found by name in a library that was opened
(``dlsym``) goes past it, and is not recorded.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnemosyne.api import SPEC, Mode
from mnemosyne.cli import client_library
from mnemosyne.codegen.coverage import CALLED, called, render_called

RECORDER, FOLDER = "MNEMOSYNE_TEST_RECORDER", "MNEMOSYNE_TEST_CALLS"
ROOT = Path(__file__).parents[1]
NAMES = [call.name for call in SPEC.calls if call.mode is not Mode.NATIVE]

_START = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char* const names[] = {@NAMES@};
enum { COUNT = sizeof names / sizeof *names };
static unsigned char unseen[COUNT];
__attribute__((visibility("hidden"))) unsigned char* recorder_seen = unseen;
__attribute__((visibility("hidden"))) void* recorder_next[COUNT];

__attribute__((constructor)) static void start(void) {
  for (int i = 0; i < COUNT; ++i) recorder_next[i] = dlsym(RTLD_NEXT, names[i]);
  const char* folder = getenv("@FOLDER@");
  char path[4096];
  if (!folder || snprintf(path, sizeof path, "%s/%d", folder, getpid()) >= sizeof path) return;
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, COUNT)) return;
  void* seen = mmap(0, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (seen != MAP_FAILED) recorder_seen = seen;
  close(fd);
}
"""
_FUNCTION = """
__asm__(".globl {name}\\n.type {name}, @function\\n{name}:\\n"
        "mov recorder_seen(%rip), %r11\\nmovb $1, {at}(%r11)\\n"
        "jmp *recorder_next+8*{at}(%rip)\\n.size {name}, . - {name}\\n");
"""


def preload() -> str:
    """What a test's clients preload: the client library, and the recorder when there is one."""
    return ":".join([*filter(None, [os.environ.get(RECORDER)]), str(client_library())])


def build(folder: Path) -> Path:
    """The recorder, compiled with gcc. Raises subprocess.CalledProcessError."""
    quoted = ", ".join(f'"{name}"' for name in NAMES)
    start = _START.replace("@NAMES@", quoted).replace("@FOLDER@", FOLDER)
    functions = "".join(_FUNCTION.format(name=name, at=at) for at, name in enumerate(NAMES))
    source, library = folder / "recorder.c", folder / "librecorder.so"
    source.write_text(start + functions)
    flags = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-ldl"], check=True)
    return library


def read(folder: Path) -> set[str]:
    """The functions that clients called whose files are in ``folder``."""
    found = set()
    for path in folder.iterdir():
        found |= {name for name, seen in zip(NAMES, path.read_bytes(), strict=False) if seen}
    return found


class Plugin:
    """Records while pytest runs; what a test file calls stands in ``calls`` when it is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.calls: dict[str, set[str]] = {}
        os.environ[RECORDER] = str(build(folder))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        name = str(item.path.relative_to(ROOT / "tests"))
        folder = self._folder / name.replace("/", "-")
        folder.mkdir(exist_ok=True)
        os.environ[FOLDER] = str(folder)
        result = yield
        self.calls[name] = read(folder)
        return result


def write(calls: dict[str, set[str]]) -> None:
    """Replaces what is kept of these test files; one that calls nothing is left out."""
    CALLED.write_text(render_called({**called(), **calls}))


def untrue(calls: dict[str, set[str]]) -> list[str]:
    """What is kept of these test files and was not called; one line each."""
    kept = called()
    return [
        f"{name} does not call {function} any more"
        for name, now in calls.items()
        for function in sorted(kept.get(name, set()) - now)
    ]
