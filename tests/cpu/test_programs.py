"""What training programs do around the GPU: data loaders, subprocesses, threads, exec."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Server

LOADER = """
import os
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Numbers(Dataset):
    def __len__(self): return 32
    def __getitem__(self, index):
        return torch.tensor([2.0 * index, 2.0 * index + 1]), get_worker_info().id, os.getpid()

def main():
    scale = torch.full((2,), 3.0, device="cuda", requires_grad=True)
    loader = DataLoader(
        Numbers(), batch_size=8, num_workers=2, multiprocessing_context={context!r},
        pin_memory=True, persistent_workers=True,
    )
    for epoch in range(2):
        workers, pids = set(), set()
        for batch, worker, pid in loader:
            assert batch.is_pinned()
            (batch.cuda(non_blocking=True) * scale).sum().backward()
            workers.update(worker.tolist())
            pids.update(pid.tolist())
        print(sorted(workers), len(pids - {{os.getpid()}}), scale.grad.tolist())

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_data_loader_with_two_workers_feeds_the_gpu(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str
) -> None:
    # Python's own, also without a server: on a busy machine it misses a semaphore that it removed.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
    script = tmp_path / "loader.py"  # spawn needs a file to import
    script.write_text(LOADER.format(context=context))
    client = server.start(sys.executable, str(script))
    output, errors = client.communicate(timeout=120)
    assert (client.returncode, errors) == (0, "")
    assert output.splitlines() == ["[0, 1] 2 [992.0, 1024.0]", "[0, 1] 2 [1984.0, 2048.0]"]


def test_subprocesses_forks_and_exec_leave_the_session_alone(server: Server) -> None:
    """A forked child that stays off the GPU works, ends in order and by os._exit."""
    code = """
import os, subprocess, sys, torch
x = torch.ones(4, device="cuda")
print(subprocess.run(["echo", "run"], capture_output=True, text=True).stdout.strip())
print(subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(2).sum().item())"],
                     capture_output=True, text=True).stdout.strip(), flush=True)
x.add_(1)  # in flight while the process forks
if os.fork() == 0:
    os.execv("/bin/echo", ["echo", "exec"])
os.wait()
for leave in (sys.exit, os._exit):
    x.add_(1)
    if os.fork() == 0:
        leave(int((torch.ones(3) @ torch.ones(3)).item()))
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
print(x.sum().item())
"""
    assert server.output(code).split() == ["run", "2.0", "exec", "3", "3", "16.0"]


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
    """Called from the main thread autograd uses its own; another Python thread may call it too."""
    code = """
import threading, torch
w = torch.eye(3, device="cuda", requires_grad=True)
ran_in = []
def loss():
    y = w @ w
    y.register_hook(lambda grad: ran_in.append(threading.get_native_id()))
    return y.sum()
loss().backward()
thread = threading.Thread(target=lambda: loss().backward())
thread.start()
thread.join()
print(w.grad.sum().item(), threading.get_native_id() in ran_in, len(ran_in))
"""
    assert server.output(code) == "36.0 False 2"


def test_four_threads_launch_at_once_and_one_waits_for_an_event_of_another(server: Server) -> None:
    """Two waits: the waiter's stream for the event, and then the waiter itself."""
    code = """
import threading, torch
start, recorded = threading.Barrier(4), threading.Event()
event = torch.cuda.Event()
shared = torch.zeros(1024, device="cuda")
results = {}
def launch(n, x):
    start.wait()
    for _ in range(200): x.add_(n)
def work(n):
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1024, device="cuda")
        launch(n, x)
        results[n] = x.mean().item()
def record():
    with torch.cuda.stream(torch.cuda.Stream()):
        launch(1, shared)
        event.record()
        recorded.set()
        shared_after = shared + 1
        results["recorder"] = shared_after.mean().item()
def wait():
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1024, device="cuda")
        launch(3, x)
        recorded.wait()
        torch.cuda.current_stream().wait_event(event)
        x.add_(shared)
        event.synchronize()
        results["waiter"] = (event.query(), x.mean().item())
targets = [(work, (4,)), (work, (5,)), (record, ()), (wait, ())]
threads = [threading.Thread(target=target, args=args) for target, args in targets]
[t.start() for t in threads]; [t.join() for t in threads]
print(results[4], results[5], results["recorder"], *results["waiter"])
"""
    assert server.output(code) == "800.0 1000.0 201.0 True 800.0"


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
print(nccl.ncclCommRevoke(None, 0))
"""
    done = server.run(code)
    assert done.stdout.split() == [
        "0", "1", "0", "0", "True", "True", "CUDNN_STATUS_SUCCESS", "0", "True", "True", "True",
        "5",
    ]  # fmt: skip
    assert "ncclCommRevoke is not supported" in done.stderr


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
