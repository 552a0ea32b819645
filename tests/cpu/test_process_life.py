"""Clients and servers come and go; nobody hangs, nobody else is disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Server, wait_until

from mnemosyne.cli import client_library

HOLD = """
import sys, torch
x = torch.ones(4, device="cuda")
print("attached", flush=True)
for line in sys.stdin:
    print(x.sum().item(), flush=True)
"""


def attach(server: Server) -> subprocess.Popen[str]:
    """A client that holds a slot and answers each line with a sum."""
    client = server.python(HOLD)
    assert client.stdout is not None
    assert client.stdout.readline() == "attached\n", client.communicate()[1]
    return client


def ask(client: subprocess.Popen[str]) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write("\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def without_server(*command: str, preload: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MNEMOSYNE_SOCKET": "/nonexistent/mnemosyne.sock"}
    if preload:
        environment["LD_PRELOAD"] = str(client_library())
    return subprocess.run(command, env=environment, text=True, capture_output=True, cwd=ROOT)


def test_without_a_server_cuda_is_not_available_and_one_line_says_how_to_start_one() -> None:
    code = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    done = without_server(sys.executable, "-c", code)
    assert done.stdout == "False 0\n"
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert "/nonexistent/mnemosyne.sock" in lines[0]
    assert "python -m mnemosyne.server" in lines[0]


CPU_ONLY = "import torch; torch.manual_seed(0); print(torch.randn(3) @ torch.randn(3))"


@pytest.mark.parametrize(
    "command",
    [
        ("ls", "-l", "mnemosyne"),
        ("git", "--version"),
        ("gcc", "--version"),
        (sys.executable, "-c", CPU_ONLY),
    ],
    ids=["ls", "git", "gcc", "torch on the CPU"],
)
def test_programs_without_cuda_print_what_they_print_without_the_library(
    command: tuple[str, ...],
) -> None:
    plain = without_server(*command, preload=False)
    preloaded = without_server(*command)
    assert (plain.returncode, plain.stdout, plain.stderr) == (
        preloaded.returncode, preloaded.stdout, preloaded.stderr,
    )  # fmt: skip


def test_collect_env_prints_the_same_and_at_most_one_line_more() -> None:
    command = (sys.executable, "-m", "torch.utils.collect_env")
    plain, preloaded = without_server(*command, preload=False), without_server(*command)
    assert preloaded.stdout == plain.stdout
    assert len(preloaded.stderr.splitlines()) <= len(plain.stderr.splitlines()) + 1


def test_the_library_needs_libc_only() -> None:
    listing = subprocess.run(
        ["readelf", "-d", str(client_library())], text=True, capture_output=True, check=True
    ).stdout
    needed = [line for line in listing.splitlines() if "NEEDED" in line]
    assert all("libc.so" in line or "ld-linux" in line for line in needed), needed


def test_a_process_that_only_asks_takes_no_slot(server: Server) -> None:
    code = """
import torch, sys
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
print(torch.cuda.get_device_properties(0).major, torch.cuda.get_device_name(), flush=True)
sys.stdin.readline()
"""
    client = server.python(code)
    assert client.stdout is not None
    assert client.stdout.readline().startswith("9 ")
    assert server.sessions() == []
    client.communicate("\n")


def test_a_fifth_client_is_refused_and_the_four_go_on(own_server) -> None:
    server = own_server("--clients", "4")
    clients = [attach(server) for _ in range(4)]
    fifth = server.run("import torch; torch.ones(1, device='cuda')")
    assert fifth.returncode == 1
    assert "all 4 client slots are in use" in fifth.stderr
    assert [ask(client) for client in clients] == ["4.0"] * 4
    for client in clients:
        client.communicate()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, None])
def test_a_client_that_ends_frees_its_slot(server: Server, end: signal.Signals | None) -> None:
    client = attach(server)
    assert len(server.sessions()) == 1
    client.communicate() if end is None else client.send_signal(end)
    started = time.monotonic()
    assert wait_until(lambda: server.sessions() == [])
    assert time.monotonic() - started < 2
    client.wait()


BUSY = """
import time, torch
x = torch.ones(64, device="cuda")
print("go", flush=True)
try:
    while True:
        x.add_(1)
        torch.cuda.synchronize()
except RuntimeError as error:
    print(time.monotonic(), error)
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_clients_of_a_server_that_stops_get_an_error_within_two_seconds(own_server, end) -> None:
    server = own_server("--clients", "2")
    busy = server.python(BUSY)
    assert busy.stdout is not None
    assert busy.stdout.readline() == "go\n"
    started = time.monotonic()
    server.process.send_signal(end)
    noticed, error = busy.communicate(timeout=10)[0].split(" ", 1)
    assert float(noticed) - started < 2
    assert "CUDA error" in error
    assert server.process.wait(5) == 0
    assert not server.socket.exists()


def test_a_kernel_the_cpu_device_lacks_names_itself_and_the_client_goes_on(server: Server) -> None:
    code = """
import torch
x = torch.linspace(0.1, 0.9, 16, device="cuda")
try:
    torch.poisson(x)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("poisson_cuda_kernel" in str(error))
print((x + 1).sum().item() == (x.cpu() + 1).sum().item())
"""
    assert server.output(code).split() == ["True", "True"]


def test_a_kernel_compiled_at_run_time_is_refused_and_the_client_goes_on(server: Server) -> None:
    code = """
import torch
x = torch.linspace(0.1, 0.9, 16, device="cuda")
try:
    torch.special.bessel_j1(x)
except RuntimeError as error:
    print("not supported" in str(error))
print((x + 1).sum().item() == (x.cpu() + 1).sum().item())
"""
    assert server.output(code).split() == ["True", "True"]


def test_mnemosyne_run_and_client_path(server: Server) -> None:
    run = [sys.executable, "-m", "mnemosyne.cli", "run", "--socket", str(server.socket), "--"]
    code = "import torch; print(torch.ones(3, device='cuda').sum().item())"
    done = subprocess.run([*run, sys.executable, "-c", code], text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr
    path = subprocess.run(
        [sys.executable, "-m", "mnemosyne.cli", "client-path"], text=True, capture_output=True
    )
    assert Path(path.stdout.strip()).samefile(client_library())


def test_calls_that_are_answered_in_the_client_fail_in_a_forked_child_too(server: Server) -> None:
    code = """
import ctypes, os
from ctypes import byref, c_int, c_size_t, c_void_p
cuda = ctypes.CDLL(None)
p, e, s = c_void_p(), c_void_p(), c_void_p()
assert cuda.cudaMalloc(byref(p), c_size_t(4)) == 0
assert cuda.cudaEventCreate(byref(e)) == 0 and cuda.cudaStreamCreate(byref(s)) == 0
out, place = c_int(), ctypes.create_string_buffer(2048)
calls = (
    lambda: cuda.cudaGetDeviceCount(byref(out)), lambda: cuda.cudaGetDevice(byref(out)),
    lambda: cuda.cudaSetDevice(0), lambda: cuda.cudaGetDeviceProperties(place, 0),
    lambda: cuda.cudaDeviceGetAttribute(byref(out), 75, 0), lambda: cuda.cuInit(0),
    lambda: cuda.cudaEventQuery(e), lambda: cuda.cudaStreamQuery(None),
    lambda: cuda.cudaStreamQuery(s), lambda: cuda.cudaStreamGetFlags(s, byref(out)),
    lambda: cuda.cudaStreamGetPriority(s, byref(out)), lambda: cuda.cudaStreamBeginCapture(s, 0),
    lambda: cuda.cudaStreamIsCapturing(s, byref(out)),
    lambda: cuda.cudaPointerGetAttributes(place, p),
    lambda: cuda.cudaHostRegister(place, c_size_t(2048), 0),
    lambda: cuda.cudaEventRecord(e, s), lambda: cuda.cudaDeviceSynchronize(),
)
child = os.fork()
if child == 0:
    print({call() for call in calls}, cuda.cudaGetLastError(), out.value, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert server.output(code) == "{3} 3 0"


def test_a_grandchild_keeps_the_files_and_memory_that_its_parent_made(server: Server) -> None:
    code = """
import mmap, os, torch
x = torch.ones(4, device="cuda")
if os.fork() == 0:
    files = [os.pipe() for _ in range(4)]  # where the session's socket was
    maps = [mmap.mmap(-1, 4 << 20) for _ in range(8)]  # and its channel
    for m in maps:
        m[:] = b"x" * len(m)
    child = os.fork()
    if child == 0:
        for pair in files:
            os.write(pair[1], b"y")
        sound = all(os.read(pair[0], 1) == b"y" for pair in files)
        os._exit(5 if sound and all(m[0] == m[-1] == ord("x") for m in maps) else 1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)
print(os.waitstatus_to_exitcode(os.wait()[1]), x.sum().item())
"""
    assert server.output(code) == "5 4.0"


def test_a_forked_child_is_told_to_spawn_instead_and_the_parent_goes_on(server: Server) -> None:
    code = """
import os, torch
x = torch.ones(4, device="cuda")
pid = os.fork()
if pid == 0:
    try:
        x.sum().item()
    except RuntimeError as error:
        os._exit(7 if "spawn" in str(error) or "initialization" in str(error) else 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), x.sum().item())
"""
    assert server.output(code) == "7 4.0"
