"""A server of the CUDA device whose libraries write down how they are called, and clients of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cuda_server import CudaServer, FakeGpu, Program
from fakecuda.kernels import build_kernels
from fakecuda.libraries import build_driver_with_libraries

PRELUDE = """
from ctypes import c_double, c_longlong as ll, c_byte
def numbers(*values): return (ll * len(values))(*values)
def plan():
    made = c_int()
    ok(cuda.cufftCreate(byref(made)))
    return made
def make(p, batch=2):
    work = size_t()
    ok(cuda.cufftXtMakePlanMany(p, 2, numbers(6, 8), numbers(7, 9), ll(1), ll(63), 4, None, ll(3),
                                ll(4), 4, ll(batch), byref(work), 4))
    return work.value
def handle(name):
    made = c_void_p()
    ok(getattr(cuda, name)(byref(made)))
    return made
DATA = bytes(range(16))
"""


@dataclass
class Libraries:
    """A server whose libraries write down how they are called, and what starts clients of it."""

    server: CudaServer
    log: Path
    started: list[Program]

    def start(self, extra: str = "") -> Program:
        self.started.append(self.server.program(PRELUDE + extra))
        return self.started[-1]

    def calls(self) -> list[str]:
        """Since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return lines


def build_gpu_with_libraries(folder: Path) -> FakeGpu:
    return FakeGpu(build_driver_with_libraries(folder), build_kernels(folder))
