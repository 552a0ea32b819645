"""What training programs do around the GPU: data loaders, subprocesses, threads, exec."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Server

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    one = torch.ones(2, device="cuda")
    loader = DataLoader(
        data, batch_size=8, num_workers=2, multiprocessing_context={context!r}, pin_memory=True
    )
    print(sum((batch.cuda(non_blocking=True) * one).sum().item() for batch, _ in loader))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_data_loader_with_workers_feeds_the_gpu(
    server: Server, tmp_path: Path, context: str
) -> None:
    script = tmp_path / "loader.py"  # spawn needs a file to import
    script.write_text(LOADER.format(context=context))
    client = server.start(sys.executable, str(script))
    output, errors = client.communicate(timeout=120)
    assert (output, client.returncode) == ("2016.0\n", 0), errors


def test_subprocess_and_exec_leave_the_session_alone(server: Server) -> None:
    code = """
import os, subprocess, torch
x = torch.ones(4, device="cuda")
print(subprocess.run(["echo", "run"], capture_output=True, text=True).stdout.strip())
if os.fork() == 0:
    os.execv("/bin/echo", ["echo", "exec"])
os.wait()
print(x.sum().item())
"""
    assert server.output(code).split() == ["run", "exec", "4.0"]


def test_a_program_that_executes_itself_anew_gets_a_slot_again(own_server) -> None:
    server = own_server("--clients", "1")
    code = """
import os, sys, torch
print(torch.ones(4, device="cuda").sum().item(), flush=True)
if "again" not in os.environ:
    os.environ["again"] = "1"
    for attempt in range(3):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""
    assert server.output(code).split() == ["4.0", "4.0"]


def test_backward_runs_in_a_thread_of_its_own(server: Server) -> None:
    code = """
import threading, torch
w = torch.eye(3, device="cuda", requires_grad=True)
thread = threading.Thread(target=lambda: (w @ w).sum().backward())
thread.start()
thread.join()
print(w.grad.sum().item())
"""
    assert server.output(code) == "18.0"


def test_a_library_opened_by_name_leads_to_the_client_and_to_what_only_it_knows(
    server: Server,
) -> None:
    """cuDNN's versions and texts need no device; a symbol that is not offered is not there."""
    code = """
import ctypes, torch
x = torch.ones(4, device="cuda")
libraries = [line.split()[-1] for line in open("/proc/self/maps") if "/nvidia/" in line]
def open_library(prefix):
    name = next(path for path in libraries if path.rsplit("/")[-1].startswith(prefix))
    by_path, by_name = ctypes.CDLL(name), ctypes.CDLL(name.rsplit("/")[-1])
    assert by_path._handle == by_name._handle
    return by_path
cudart, cublas, lt, cudnn, nccl = map(
    open_library, ("libcudart.so", "libcublas.so", "libcublasLt.so", "libcudnn.so", "libnccl.so"))
count, handle, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
print(cudart.cudaGetDeviceCount(ctypes.byref(count)), count.value)
print(cublas.cublasCreate_v2(ctypes.byref(handle)), cublas.cublasDestroy_v2(handle))
cudnn.cudnnGetErrorString.restype = ctypes.c_char_p
print(cudnn.cudnnGetVersion() == torch.backends.cudnn.version(), lt.cublasLtGetVersion() >= 130000)
print(cudnn.cudnnGetErrorString(0).decode(), nccl.ncclGetVersion(ctypes.byref(version)))
print(version.value // 10000 == torch.cuda.nccl.version()[0])
for library, name in (cublas, "cublasHgemmBatched"), (cudnn, "cudnnGetMaxDeviceVersion"):
    try:
        getattr(library, name)
    except AttributeError as error:
        print("undefined symbol" in str(error))
print(cublas.cublasCaxpy_v2(handle, 1, None, None, 1, None, 1))
"""
    done = server.run(code)
    assert done.stdout.split() == [
        "0", "1", "0", "0", "True", "True", "CUDNN_STATUS_SUCCESS", "0", "True", "True", "True",
        "15",
    ]  # fmt: skip
    assert "cublasCaxpy_v2 is not supported" in done.stderr


def test_the_device_is_told_as_it_is_and_free_memory_as_the_clients_own(own_server) -> None:
    quota = 256 << 20
    server = own_server("--clients", "2", "--memory-per-client", str(quota))
    code = """
import ctypes, torch
driver, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
assert driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
memory = Memory()
assert driver.nvmlDeviceGetMemoryInfo(None, ctypes.byref(memory)) == 0
print(total.value, torch.cuda.get_device_properties(0).total_memory)
print(memory.total, torch.cuda.mem_get_info()[1])
"""
    device = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // (2 << 20) * (2 << 20)
    assert server.output(code).splitlines() == [f"{device} {device}", f"{quota} {quota}"]


def test_two_clients_have_memory_of_their_own(server: Server) -> None:
    code = """
import sys, torch
x = torch.full((1000,), {value}.0, device="cuda")
print(x.data_ptr(), flush=True)
sys.stdin.readline()
print(x.min().item())
"""
    clients = [server.python(code.format(value=value)) for value in (3, 5)]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    assert [c.communicate("\n")[0].strip() for c in clients] == ["3.0", "5.0"]
