"""NVIDIA's MPS while a block lasts, with folders of its own; no setting of the GPU changes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.checks.programs import environment

CONTROL = "nvidia-cuda-mps-control"
PATIENCE = 20.0


def available() -> bool:
    return shutil.which(CONTROL) is not None


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """The environment of a program that shall share the GPU through MPS."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-mps-") as name:
        folders = {
            "CUDA_MPS_PIPE_DIRECTORY": str(Path(name) / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(Path(name) / "log"),
        }
        for folder in folders.values():
            Path(folder).mkdir()
        variables = environment(LD_PRELOAD=None, **folders)
        subprocess.run([CONTROL, "-d"], env=variables, check=True, timeout=PATIENCE)
        try:
            yield folders
        finally:
            subprocess.run([CONTROL], env=variables, input="quit\n", text=True, timeout=PATIENCE)
