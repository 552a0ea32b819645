"""What native results depend on: the processor that computes, its driver and PyTorch."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.checks.nvml import Gpu, find_gpu


@dataclass(frozen=True)
class Machine:
    gpu: Gpu | None
    torch: str
    processor: str
    cores: int

    def words(self, device: str) -> str:
        """For results of programs on this device."""
        if device == "cuda" and self.gpu:
            where = f"{self.gpu.name}, driver {self.gpu.driver}"
        else:
            where = f"{self.processor}, {self.cores} cores"
        return f"{where}, PyTorch {self.torch}, Python {platform.python_version()}"

    def fields(self) -> dict[str, object]:
        return asdict(self)


def this_machine() -> Machine:
    return Machine(find_gpu(), version("torch"), processor(), len(os.sched_getaffinity(0)))


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
