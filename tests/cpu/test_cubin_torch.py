"""The registry on the installed PyTorch: nothing is missing, and cuobjdump agrees."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from mnemosyne.cubin import CubinError, Module, Registry, find_spans, find_torch_library

SCRIPTS = Path(__file__).parents[2] / "scripts"
COUNTS = {"2.14.1": (475, 23_708)}
"""Modules and kernels that libtorch_cuda.so holds for sm_90, by version of PyTorch."""


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return find_torch_library()
    except CubinError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def modules(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Module]:
    registry = Registry("sm_90", tmp_path_factory.mktemp("cache"))
    return [registry.module_from_file(library, s.offset, s.size) for s in find_spans(library)]


def test_all_modules_and_kernels_are_found(modules: list[Module]) -> None:
    torch = version("torch").split("+")[0]
    if torch not in COUNTS:
        pytest.skip(f"nobody has counted the kernels of torch {torch}")
    assert (len(modules), sum(len(m.kernels) for m in modules)) == COUNTS[torch]


def test_every_kernel_is_described_and_demangled(modules: list[Module]) -> None:
    for kernel in (k for m in modules for k in m.kernels.values()):
        assert kernel.registers
        assert bool(kernel.params) == bool(kernel.param_bytes)
        is_left = kernel.demangled == kernel.name
        assert is_left == (len(kernel.name) > 1024 or not kernel.name.startswith("_Z"))
        assert "_INTERNAL_" not in kernel.demangled


def test_cuobjdump_agrees_on_a_sample() -> None:
    command = [sys.executable, SCRIPTS / "compare-cuobjdump", "--sample", "12"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 3:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" 0 differences\n")
