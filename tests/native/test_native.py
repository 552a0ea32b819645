"""The native code under gcc's sanitizers, and its frames beside those that Python writes.

Programs and client library are built by the Makefile here, once, into build/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agreement import expect_same_of_cpp
from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin
from fakecuda.build import build_driver, cuda_headers
from fakecuda.libraries import build_library
from fuzzing import TARGETS, Fuzzer
from golden import FOLDER as GOLDEN
from lone_server import LoneServer
from recorded import preload

from mnemosyne.protocol.frames import decode, encode

ROOT = Path(__file__).parents[2]
FLAGS = {"address": "address,undefined", "thread": "thread"}
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
KERNEL = "_Z3fooPfi"


@dataclass(frozen=True)
class Native:
    """The programs built with one sanitizer."""

    sanitizer: str
    folder: Path

    def run(self, *command: str, standard_input: str = "", **environment: str) -> str:
        """What a program prints; the test fails if it does or a sanitizer reports anything."""
        done = subprocess.run(
            [self.folder / command[0], *command[1:]], input=standard_input, text=True,
            env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1", **environment},
            capture_output=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}{done.stderr[:8000]}"
        assert done.stderr == ""
        return done.stdout.strip()

    def make(self, *targets: str, **variables: str) -> None:
        """Builds programs."""
        settings = {"SANITIZE": FLAGS[self.sanitizer], "OUT": str(self.folder), **variables}
        done = subprocess.run(
            ["make", "--silent", f"-j{os.cpu_count()}", *(f"{n}={v}" for n, v in settings.items()),
             *(str(self.folder / target) for target in targets)],
            cwd=Path(__file__).parent, text=True, capture_output=True,
        )  # fmt: skip
        if "cannot find" in done.stderr and "san" in done.stderr:
            pytest.skip(f"g++ has no runtime of its {self.sanitizer} sanitizer here")
        assert done.returncode == 0, done.stderr

    def client(self, socket: Path) -> dict[str, str]:
        """The environment of a client. The sanitizer's runtime must come first."""
        found = ["g++", f"-print-file-name={RUNTIMES[self.sanitizer]}"]
        runtime = subprocess.run(found, text=True, capture_output=True, check=True).stdout.strip()
        preloads = f"{runtime} {self.folder / 'libclient.so'}"
        return {"LD_PRELOAD": preloads, "MNEMOSYNE_SOCKET": str(socket)}


@pytest.fixture(scope="module", params=FLAGS)
def native(request: pytest.FixtureRequest) -> Native:
    name: str = request.param
    native = Native(name, ROOT / "build" / f"sanitize-{name}")
    native.make()
    return native


@pytest.mark.parametrize("file", ["frames.txt", "control.txt"])
def test_golden_frames_are_written_and_read_alike(native: Native, file: str) -> None:
    lines = (GOLDEN / file).read_text()
    assert native.run("golden", standard_input=lines) == str(lines.count("\n"))


def test_damaged_frames_are_taken_and_refused_alike(native: Native) -> None:
    fuzzer = Fuzzer(TARGETS["frames"], seed=3)
    frames = [fuzzer.next_input() for _ in range(20_000)]
    assert expect_same_of_cpp(native.folder / "unpack", [*fuzzer.pool, *frames]) > 2000


@pytest.mark.parametrize("test", ["codec", "traffic", "executor", "close", "hostile"])
def test_the_ring_and_its_lane(native: Native, test: str) -> None:
    if test == "hostile" and native.sanitizer == "thread":
        pytest.skip("what a hostile client writes is a data race, and is meant to be one")
    assert native.run("ring", test, "1") == "ok"


@pytest.fixture(scope="module")
def cuda_lanes(native: Native) -> dict[str, str]:
    """The environment of the program `executor`: a fake driver, built like the program."""
    driver = native.folder / "driver"
    driver.mkdir(exist_ok=True)
    native.make("executor", CUDA_HEADERS=str(cuda_headers()))
    # Thread-local words in static memory: glibc frees others in a thread that the sanitizer does
    # not connect with the one they were of.
    flags = [f"-fsanitize={FLAGS[native.sanitizer]}", "-g1", "-ftls-model=initial-exec"]
    build_driver(driver, *flags)
    build_library(driver, "libcufft.so.12", *flags, driver / "libcuda.so.1")
    known = driver / "leaks"  # the fake driver keeps all objects, so that no handle comes twice
    known.write_text("leak:fakecuda\n")
    suppressions = f"suppressions={known}:print_suppressions=0"
    return {
        "LD_LIBRARY_PATH": str(driver), "LSAN_OPTIONS": suppressions,
        "FAKE_LIBRARY_LOG": "/dev/null",
    }  # fmt: skip


@pytest.mark.parametrize("test", ["traffic", "close", "fault"])
def test_cuda_lanes_on_the_fake_driver(
    native: Native, cuda_lanes: dict[str, str], test: str
) -> None:
    for seed in "123":
        assert native.run("executor", test, seed, **cuda_lanes) == "ok"


def test_short_pauses_bring_no_fences_while_the_gpu_is_behind(
    native: Native, cuda_lanes: dict[str, str]
) -> None:
    assert native.run("executor", "fences", "1", **cuda_lanes) == "ok"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A fatbin with one kernel of a pointer and a number."""
    fake = FakeKernel(KERNEL, ((0, 8), (8, 4)), 12)
    path = tmp_path / "kernel.fatbin"
    path.write_bytes(fatbin(entry(cubin(FakeCubin([fake])))))
    return path


@contextmanager
def null_server(folder: Path) -> Iterator[Path]:
    """A server of the null device; gives its socket."""
    socket = folder / "s"
    command = [sys.executable, "-m", "mnemosyne.server", "--device", "null", "--socket", socket]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    assert any("ready" in line for line in process.stderr)
    try:
        yield socket
    finally:
        process.terminate()
        said = process.stderr.read()
        assert process.wait(10) == 0
        assert "bug:" not in said


@contextmanager
def lone_server(folder: Path) -> Iterator[Path]:
    server = LoneServer(folder / "s")
    try:
        yield server.path
    finally:
        server.close()


SERVERS = {"address": null_server, "thread": lone_server}


def test_the_client_library_in_four_threads(native: Native, kernel: Path) -> None:
    with SERVERS[native.sanitizer](kernel.parent) as socket:
        command = "program", str(kernel), KERNEL, "40"
        assert native.run(*command, **native.client(socket)) == "ok"


def test_every_stub_sends_the_frame_that_python_writes(tmp_path: Path) -> None:
    server = LoneServer(tmp_path / "s")
    environment = {
        **os.environ, "LD_PRELOAD": preload(), "MNEMOSYNE_SOCKET": str(server.path),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    script = Path(__file__).with_name("call_everything.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, text=True, capture_output=True, timeout=60
    )
    server.close()
    assert done.returncode == 0, done.stderr
    frames = iter(server.frames)
    for name, values in json.loads(done.stdout):
        # Frames between are those of handles made for one call, and of their settings.
        message, sent, frame = next(f for f in map(_read, frames) if _is(f, name, values))
        assert frame == encode(message, *sent)


def _read(frame: bytes) -> tuple[Any, list[Any], bytes]:
    return *decode(frame), frame


def _is(frame: tuple[Any, list[Any], bytes], name: str, values: list[Any]) -> bool:
    message, sent, _ = frame
    return message.name == name and all(map(_same, sent, values)) and len(sent) == len(values)


def _same(sent: Any, expected: Any) -> bool:
    """A scalar whose size depends on other arguments is any bytes."""
    if isinstance(expected, str) and expected.startswith("0x"):
        return isinstance(sent, bytes) and sent.hex().startswith(expected[2:])
    if isinstance(expected, list):
        same = isinstance(sent, list) and len(sent) == len(expected)
        return same and all(map(_same, sent, expected))
    return bool(sent == expected)
