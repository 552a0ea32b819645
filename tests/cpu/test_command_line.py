"""The command ``mnemosyne``, and what programs ask for in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Server, wait_until

from mnemosyne import _native

#: A client without PyTorch: the error of its first call, and its memory.
MEMORY = """
import ctypes
free, total = ctypes.c_size_t(), ctypes.c_size_t()
print(ctypes.CDLL(None).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), total.value)
"""


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mnemosyne.cli", *arguments], cwd=ROOT, text=True,
        capture_output=True, env=Server(None, Path()).environment() | environment,  # type: ignore[arg-type]
    )  # fmt: skip


def memory(server: Server, wanted: str) -> tuple[str, str]:
    """What a client prints and says that wants so much by the variable."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=ROOT, text=True, capture_output=True,
        env=server.environment() | {"MNEMOSYNE_MEMORY_BYTES": wanted},
    )  # fmt: skip
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        ("64MiB", 64 << 20), ("64m", 64 << 20), (" 0.0625 GB ", 64 << 20), ("5MB", 4 << 20),
        ("67108864", 64 << 20), ("0.00006103515625TiB", 64 << 20), ("65536KiB", 64 << 20),
    ],
)  # fmt: skip
def test_the_variable_takes_what_the_option_takes(server: Server, wanted: str, size: int) -> None:
    assert memory(server, wanted) == (f"0 {size}", "")
    done = command(
        "run", "--memory", wanted, "--socket", str(server.socket), sys.executable, "-c", MEMORY
    )
    assert (done.stdout.strip(), done.stderr) == (f"0 {size}", "")


NO_SIZE = "is no size; write for example 512M or 4GiB"
TOO_SMALL = "a client needs 2 MiB at least"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("abc", f"'abc' {NO_SIZE}"),
        ("-5", f"'-5' {NO_SIZE}"),
        ("1e9", f"'1e9' {NO_SIZE}"),
        ("4GiBB", f"'4GiBB' {NO_SIZE}"),
        ("4Gi", f"'4Gi' {NO_SIZE}"),
        ("1.", f"'1.' {NO_SIZE}"),
        ("0", TOO_SMALL),
        ("1KiB", TOO_SMALL),
        ("8", TOO_SMALL),
    ],
)
def test_what_is_no_memory_is_refused_in_one_line(server: Server, wanted: str, says: str) -> None:
    assert memory(server, wanted) == ("100 0", f"mnemosyne: MNEMOSYNE_MEMORY_BYTES: {says}")
    done = command("run", f"--memory={wanted}", "true")
    assert done.returncode == 2
    assert done.stderr == f"mnemosyne: Invalid value for --memory: {says}\n"


def test_an_empty_variable_wants_the_whole_quota(server: Server) -> None:
    code, total = memory(server, "")[0].split()
    assert code == "0"
    assert int(total) > 64 << 20


def test_more_than_the_quota_is_refused_in_mib(server: Server) -> None:
    _, said = memory(server, "2TiB")
    assert said == ""  # the device is there; the error says it
    code = f"""
{MEMORY}
text = ctypes.CDLL(None).cudaGetErrorString
text.restype = ctypes.c_char_p
print(text(46).decode())
"""
    done = command(
        "run", "--memory", "2TiB", "--socket", str(server.socket), sys.executable, "-c", code
    )
    assert "refused: 2097152 MiB of device memory are wanted, a client gets " in done.stdout


@pytest.mark.parametrize("options", [(), ("--memory", "64M")])
def test_a_wrong_option_of_run_is_no_program(options: tuple[str, ...]) -> None:
    done = command("run", *options, "--bogus", "true")
    assert done.returncode == 2
    assert done.stderr == "mnemosyne: no such option --bogus; write -- before the program\n"


def test_a_missing_client_library_is_said_before_the_program_runs(tmp_path: Path) -> None:
    """As in a source tree whose native parts are elsewhere."""
    native = tmp_path / Path(_native.__file__).name
    native.symlink_to(_native.__file__)
    code = f"""
import importlib.util, sys, mnemosyne
spec = importlib.util.spec_from_file_location("mnemosyne._native", {str(native)!r})
mnemosyne._native = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mnemosyne._native)
from mnemosyne.cli import main
sys.argv[1:] = ["run", "echo", "ran"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"mnemosyne: {tmp_path}/libclient.so is missing; install mnemosyne again (pip install .)\n"
    )


@pytest.mark.parametrize("subcommand", ["run", "status"])
def test_help_tells_the_default_socket(subcommand: str) -> None:
    done = command(subcommand, "--help", COLUMNS="200")
    assert "[default: ($MNEMOSYNE_SOCKET, else $XDG_RUNTIME_DIR/mnemosyne.sock, else" in done.stdout


def test_a_demo_that_is_interrupted_exits_as_a_shell_reports_it(server: Server) -> None:
    command = [sys.executable, "scripts/run-demo", "encoder", "--steps=100000", "--progress-json"]
    demo = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"MNEMOSYNE_SOCKET": str(server.socket)},
    )  # fmt: skip
    assert demo.stdout is not None
    assert demo.stdout.readline().startswith('{"step": 1')
    demo.send_signal(signal.SIGINT)
    _, said = demo.communicate(timeout=30)
    assert (demo.returncode, said) == (130, "")
    assert wait_until(lambda: server.sessions() == [])
