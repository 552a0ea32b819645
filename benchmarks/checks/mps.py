"""NVIDIA's MPS while a block lasts, with folders of its own; no setting of the GPU changes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.checks.programs import environment

CONTROL = "nvidia-cuda-mps-control"
PATIENCE = 20.0
PID_FILE = f"{CONTROL}.pid"  # the daemon writes it into its folder of pipes


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
        try:
            control(variables, "-d").check_returncode()
            yield folders
        finally:
            end(variables, Path(name) / "pipe")


def end(variables: Mapping[str, str], pipe: Path) -> None:
    """In order if it answers; else daemon and servers are killed."""
    try:
        control(variables, words="quit\n")
    except subprocess.TimeoutExpired:
        daemon = psutil.Process(int((pipe / PID_FILE).read_text()))
        for one in (*daemon.children(recursive=True), daemon):
            with suppress(psutil.NoSuchProcess):
                one.kill()


def control(
    variables: Mapping[str, str], *options: str, words: str = ""
) -> subprocess.CompletedProcess[str]:
    """In a session of its own, so that Ctrl-C does not reach it."""
    return subprocess.run(
        [CONTROL, *options], env=variables, input=words, text=True, timeout=PATIENCE,
        start_new_session=True,
    )  # fmt: skip
