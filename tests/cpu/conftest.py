"""Real servers and real clients: each test talks to processes, as a user would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cuda_server import CudaServer, FakeGpu, Program, build_gpu, finish
from servers import ROOT, Nursery, Server, start_server, wait_until

# Programs share few processors here: threads of each would wait for those of others, and spin.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["ROOT", "Nursery", "Server", "start_server", "wait_until"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a file."""
    running = start_server(tmp_path_factory.mktemp("server"), "--clients", "4")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Forks clients, for a file of tests that start many."""
    one = Nursery()
    yield one
    one.end()


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    """The fake driver, which servers of the CUDA device run on."""
    return build_gpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def cuda(gpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaServer]:
    """One server of the CUDA device for all tests of a file."""
    folder = tmp_path_factory.mktemp("cuda")
    running = gpu.serve(folder, "--clients", "6", "--memory-per-client", "256MiB")
    yield running
    finish(running)


@pytest.fixture
def start(cuda: CudaServer) -> Iterator[Callable[..., Program]]:
    """Starts clients of that server, and ends them."""
    started: list[Program] = []

    def new(extra: str = "") -> Program:
        started.append(cuda.program(extra))
        return started[-1]

    yield new
    for one in started:
        one.kill()
    assert cuda.ended(*started), cuda.log.read_text()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of a test's own, with options."""
    started: list[Server] = []

    def start(*options: str, **limits: int) -> Server:
        started.append(start_server(tmp_path, *options, **limits))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
