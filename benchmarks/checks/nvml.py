"""What the driver says of the GPU: memory in use and who computes, by pynvml or else nvidia-smi."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from types import ModuleType
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """The first GPU that programs see."""

    name: str
    driver: str
    total: int  # bytes

    def used(self) -> int:
        """Bytes in use by anybody."""
        if (pynvml := nvml()) is not None:
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle(pynvml)).used)
        return int(ask_smi("--query-gpu=memory.used")[0][0]) * MIB

    def compute_pids(self) -> set[int]:
        """Processes that compute, as the driver numbers them (a container may number others)."""
        if (pynvml := nvml()) is not None:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle(pynvml))
            return {process.pid for process in running}
        return {int(row[0]) for row in ask_smi("--query-compute-apps=pid")}


def find_gpu() -> Gpu | None:
    """None if no driver answers."""
    try:
        if (pynvml := nvml()) is not None:
            one = handle(pynvml)
            names = (pynvml.nvmlDeviceGetName(one), pynvml.nvmlSystemGetDriverVersion())
            found = Gpu(*names, int(pynvml.nvmlDeviceGetMemoryInfo(one).total))
            pynvml.nvmlShutdown()  # a child made by fork starts anew
            return found
        name, driver, total = ask_smi("--query-gpu=name,driver_version,memory.total")[0]
        return Gpu(name, driver, int(total) * MIB)
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def nvml() -> ModuleType | None:
    """pynvml, ready for use in this process; None if it is not installed or no driver answers."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    module: ModuleType = pynvml
    return module


def handle(pynvml: ModuleType) -> Any:
    which = visible()
    if which.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(which))
    return pynvml.nvmlDeviceGetHandleByUUID(which)


def visible() -> str:
    """Index or UUID of the first GPU that CUDA shows to programs."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def ask_smi(query: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--id={visible()}", query, "--format=csv,noheader,nounits"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [[field.strip() for field in line.split(",")] for line in output.splitlines()]
