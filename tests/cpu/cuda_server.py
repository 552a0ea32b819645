"""A server of the CUDA device on the fake driver, and clients that do what a test tells them.

A client holds work back with a gate, a word of pinned memory that a kernel waits for: so a test
says what has happened and what has not, without a clock.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from fakecuda.build import build_driver
from fakecuda.kernels import build_kernels, client_code
from ring import RingClient
from servers import ROOT, Server, wait_until

#: What a client has at hand: the runtime's functions by ctypes, kernels, and shorter names.
PRELUDE = """
import ctypes, threading
from ctypes import byref, c_float, c_int, c_size_t as size_t, c_uint, c_void_p
cuda = ctypes.CDLL(None)
cuda.cudaGetErrorString.restype = ctypes.c_char_p
H2D, D2H, D2D = 1, 2, 3
NON_BLOCKING = 1
def ok(code):
    assert code == 0, (code, cuda.cudaGetErrorString(code))
def malloc(size):
    p = c_void_p()
    ok(cuda.cudaMalloc(byref(p), size_t(size)))
    return p.value
def free(p): ok(cuda.cudaFree(c_void_p(p)))
def pinned(size):
    p = c_void_p()
    ok(cuda.cudaHostAlloc(byref(p), size_t(size), 0))
    return p.value
def host(data): return ctypes.create_string_buffer(data, len(data))
def put(p, data): ok(cuda.cudaMemcpy(c_void_p(p), host(data), size_t(len(data)), H2D))
def get(p, size):
    back = host(bytes(size))
    ok(cuda.cudaMemcpy(back, c_void_p(p), size_t(size), D2H))
    return back.raw
def copy(dst, src, size, kind, stream=None):
    ok(cuda.cudaMemcpyAsync(c_void_p(dst), c_void_p(src), size_t(size), kind, stream))
def words(p, count=1): return list(memoryview(get(p, 4 * count)).cast("I"))
def stream(flags=0):
    s = c_void_p()
    ok(cuda.cudaStreamCreateWithFlags(byref(s), flags))
    return s
def event():
    e = c_void_p()
    ok(cuda.cudaEventCreate(byref(e)))
    return e
def fill(p, value, count=1, stream=None):
    ok(launch("fake_fill", c_void_p(p), c_uint(value), size_t(count), stream=stream))
def sleep(us, stream=None): ok(launch("fake_sleep", c_int(us), stream=stream))
class Gate:
    # Closed: work put into the stream after close() waits for open().
    def __init__(self):
        self.at = pinned(4)
        self.word = c_uint.from_address(self.at)
    def close(self, stream=None):
        self.word.value = 0
        ok(launch("fake_spin", c_void_p(self.at), stream=stream))
    def open(self): self.word.value = 1
def synchronize(): ok(cuda.cudaDeviceSynchronize())
def error_text(code): return cuda.cudaGetErrorString(code).decode()
"""
_LOOP = """
import sys, traceback
for line in sys.stdin:
    kind, code = eval(line)
    try:
        print(repr((True, kind(code, globals()))), flush=True)
    except BaseException:
        print(repr((False, traceback.format_exc())), flush=True)
"""


class Program:
    """A client process that executes what a test sends it."""

    def __init__(self, server: Server, prelude: str) -> None:
        self.process = server.python(prelude + _LOOP)
        self.get("0")  # the prelude has been executed

    def do(self, code: str) -> None:
        """Executes statements."""
        self._send("exec", code)
        self.result()

    def get(self, expression: str) -> Any:
        """The value of an expression, which must have a literal."""
        self.start(expression)
        return self.result()

    def start(self, expression: str) -> None:
        """The same without waiting for it; ``result`` does."""
        self._send("eval", expression)

    def result(self, seconds: float = 60) -> Any:
        out = self.process.stdout
        assert out is not None
        assert select.select([out], [], [], seconds)[0], "the client does not answer"
        line = out.readline()
        assert line, f"the client ended: {self._stderr()}"
        succeeded, value = literal_eval(line)
        assert succeeded, value
        return value

    def answers(self) -> bool:
        """Whether the result is there."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def end(self) -> str:
        """Lets it end by itself; what it has said on stderr."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)
        return self._stderr()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def _send(self, kind: str, code: str) -> None:
        assert self.process.stdin is not None
        print(f"({kind}, {code!r})", file=self.process.stdin, flush=True)

    def _stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@dataclass
class CudaServer(Server):
    """A server of the CUDA device, whose log a test can read."""

    log: Path
    library: Path

    def program(self, extra: str = "") -> Program:
        return Program(self, client_code(self.library) + PRELUDE + extra)

    def torch(self) -> Program:
        return self.program("import torch\n")

    def ring(self) -> RingClient:
        return RingClient(self.socket)

    def worker(self) -> psutil.Process:
        """The one that serves, and is older than the spare one; waits until there are just these.

        One that lost the device is stopped for a while.
        """
        looks: list[list[psutil.Process]] = []

        def only_two() -> bool:
            looks.append(psutil.Process(self.process.pid).children())
            steady = len(looks[-1]) == 2 and looks[-10:] == [looks[-1]] * 10
            return steady and all(p.status() != psutil.STATUS_STOPPED for p in looks[-1])

        assert wait_until(only_two), looks[-1]
        return min(looks[-1], key=psutil.Process.create_time)

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def count(self, text: str) -> int:
        return self.log.read_text().count(text)

    def accepts(self) -> bool:
        """Whether a worker serves; waits for one that starts."""
        try:
            self.ring().close()
        except (OSError, AssertionError):
            return False
        return True

    def used(self) -> list[object]:
        """Bytes of device memory that each session has allocated."""
        return [row[3] for row in self.sessions()]

    def ended(self, *programs: Program) -> bool:
        """Waits until the sessions of these are over."""
        pids = {program.process.pid for program in programs}
        return wait_until(lambda: not pids & {row[1] for row in self.sessions()})


@dataclass(frozen=True)
class FakeGpu:
    """Where the fake driver and the library of its kernels have been built."""

    driver: Path
    library: Path

    def serve(self, folder: Path, *options: str, **environment: str) -> CudaServer:
        socket, log = folder / "cuda.sock", folder / "log"
        command = [sys.executable, "-m", "mnemosyne.server", "--device", "cuda", "--socket"]
        settings = {**os.environ, "LD_LIBRARY_PATH": str(self.driver), **environment}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, str(socket), *options], cwd=ROOT, env=settings, stderr=out, text=True
            )
        server = CudaServer(process, socket, log, self.library)
        wait_until(lambda: server.says("mnemosyne: ready") or process.poll() is not None, 60)
        assert server.says("mnemosyne: ready"), log.read_text()
        return server


def build_gpu(folder: Path) -> FakeGpu:
    return FakeGpu(build_driver(folder), build_kernels(folder))


def finish(server: CudaServer) -> None:
    """Stops the server, which must have been in order all the time."""
    assert server.process.poll() is None, server.log.read_text()
    code = server.stop()
    log = server.log.read_text()
    assert code == 0, log
    assert "bug:" not in log, log
    assert "fakecuda:" not in log, log
