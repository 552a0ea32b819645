"""Builds the fake driver and the libraries of its clients with g++."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from mnemosyne.codegen.headers import STAND_INS, folders_of_wheels
from mnemosyne.server.devices.cpu import hopper

HERE = Path(__file__).parent
SONAME = "libcuda.so.1"

#: CUdevice_attribute that the CPU device does not have: write-values and virtual memory.
_DRIVER_ATTRIBUTES = {92: 1, 93: 1, 94: 1, 102: 1, 103: 1, 122: 1, 123: 1}


def build_driver(folder: Path, *options: str) -> Path:
    """Build libcuda.so.1 in `folder`, for LD_LIBRARY_PATH; skips where cuda.h or g++ is missing."""
    (folder / "attributes.inc").write_text(_attributes())
    sources = sorted(HERE.glob("*.cpp"))
    together = folder / "together.cpp"  # so that the headers are read once
    together.write_text("".join(f'#include "{source}"\n' for source in sources))
    flags = ["-std=c++17", "-shared", "-fPIC", "-pthread", f"-I{cuda_headers()}", f"-I{folder}"]
    linker = [f"-Wl,-soname,{SONAME}", *([] if options else ["-Wl,--no-undefined"])]
    compile_cpp(*flags, *linker, *options, together, "-o", folder / SONAME)
    return folder


def build_cudnn(folder: Path) -> Path:
    """Build a cuDNN that says what it is called with, for FAKECUDA_CUDNN; skips without headers."""
    folders = [folder / "stand-ins", *folders_of_wheels()]
    if not any((each / "cudnn.h").exists() for each in folders):
        pytest.skip("cudnn.h is not installed (it is part of nvidia-cudnn)")
    for name, text in STAND_INS.items():
        header = folders[0] / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text)
    library = folder / "libcudnn.so.9"
    flags = ["-std=c++17", "-shared", "-fPIC", *(f"-I{each}" for each in folders)]
    sources = sorted((HERE / "cudnn").glob("*.cpp"))
    compile_cpp(*flags, f"-Wl,-soname,{library.name}", *sources, "-o", library)
    return library


def driver_environment(folder: Path, **settings: str) -> dict[str, str]:
    """Give the environment of a process that finds the driver in `folder`."""
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), **settings}


def compile_cpp(*arguments: str | Path) -> None:
    """Run g++; the test is skipped where there is none, and fails with its message."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    done = subprocess.run([compiler, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def cuda_headers() -> Path:
    """Find the folder of cuda.h, which comes with the wheels that PyTorch depends on."""
    spec = find_spec("nvidia")
    for root in (spec and spec.submodule_search_locations) or []:
        for header in sorted(Path(root).glob("*/include/cuda.h")):
            return header.parent
    pytest.skip("cuda.h is not installed (it is part of nvidia-cuda-runtime)")


def _attributes() -> str:
    """Give the values of CUdevice_attribute from 0 on; cudaDeviceAttr has the same numbers."""
    values = {0: 0, **dict(hopper.attributes()), **_DRIVER_ATTRIBUTES}
    return "".join(f"{values[number]},\n" for number in range(hopper.ATTRIBUTE_COUNT))
