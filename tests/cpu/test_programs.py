"""What training programs do around the GPU: data loaders, subprocesses, threads, exec."""

from __future__ import annotations

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
