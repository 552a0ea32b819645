"""Nothing that PyTorch imports falls through: read off the installed wheels, not off our list."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy
import pytest
from elftools.elf.elffile import ELFFile

from mnemosyne.api import SPEC, Mode
from mnemosyne.cli import client_library
from mnemosyne.codegen.coverage import called

TESTS = Path(__file__).parents[1]

_SYMBOL = numpy.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
_UNDEFINED = 0

#: Names of CUDA's libraries, which carry a C++ runtime and a BLAS of Fortran as well.
_CUDA = re.compile(r"(__cuda|cu|nccl|nv)\w+")
#: The driver's, which is not among the wheels.
_DRIVER = re.compile(r"cu[A-Z]\w+|nvml\w+")


@cache
def symbols(library: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a library imports, and those that it defines for others."""
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        entries = numpy.frombuffer(section.data(), _SYMBOL)
        names = section.stringtable.data()
    undefined = entries["section"] == _UNDEFINED

    def text(entries: numpy.ndarray) -> Iterator[str]:
        for at in entries["name"]:
            yield names[at : names.index(b"\0", at)].decode()

    return frozenset(text(entries[undefined])), frozenset(text(entries[~undefined]))


def libraries(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations or []) if spec else []
    return [path for root in roots for path in sorted(Path(root).rglob(pattern))]


TORCH = libraries("torch", "*.so*")
NVIDIA = libraries("nvidia", "*.so*")
needs_wheels = pytest.mark.skipif(
    not NVIDIA or not TORCH, reason="needs PyTorch's CUDA build and the NVIDIA wheels it depends on"
)


@cache
def imported() -> frozenset[str]:
    """What PyTorch's libraries import from CUDA's."""
    from_cuda = frozenset().union(*(symbols(path)[1] for path in NVIDIA))
    from_torch = frozenset().union(*(symbols(path)[0] for path in TORCH))
    named = {name for name in from_torch if _CUDA.fullmatch(name)}
    return frozenset(n for n in named if n in from_cuda or _DRIVER.fullmatch(n))


@needs_wheels
def test_every_symbol_that_pytorch_imports_is_in_the_table() -> None:
    declared = {call.name for call in SPEC.calls}
    assert sorted(imported() - declared) == []
    assert {"cudaMalloc", "__cudaLaunchKernel", "cublasGemmEx", "cuLaunchKernel"} < imported()
    assert len(imported()) > 600


def test_the_client_exports_exactly_what_the_table_says_it_does() -> None:
    _, defined = symbols(client_library())
    expected = {call.name for call in SPEC.calls if call.mode is not Mode.NATIVE}
    assert defined == expected | {"dlopen"}


#: What no recorded test calls: found by name in a library that was opened, which the recorder does
#: not see, or called by no test.
_UNCALLED = """
__cudaInitModule __cudaRegisterManagedVar cuCtxSetCurrent cuCtxSynchronize cuDeviceComputeCapability
cuDeviceGetAttribute cuDeviceGetUuid_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain
cuGetErrorString cuGetExportTable cuGetProcAddress cuMemGetAddressRange_v2 cuPointerGetAttribute
cudaChooseDevice cudaDeviceReset cudaDeviceSetCacheConfig cudaFreeAsync cudaGraphRetainUserObject
cudaHostUnregister cudaInitDevice cudaMallocAsync cudaMallocFromPoolAsync cudaMallocHost
cudaMemcpyPeer cudaMemcpyPeerAsync cudaProfilerStart cudaProfilerStop cudaSetDeviceFlags
cudaUserObjectCreate cudaUserObjectRelease cudnnGetFilterNdDescriptor
nvmlDeviceGetClockInfo nvmlDeviceGetComputeRunningProcesses
nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetHandleByUUID
nvmlDeviceGetPowerUsage nvmlDeviceGetTemperature nvmlDeviceGetUUID nvmlDeviceGetUtilizationRates
nvmlErrorString
nvmlInit nvmlInitWithFlags nvmlShutdown nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetDriverVersion
"""
UNCALLED = frozenset(_UNCALLED.split())
ANSWERED = {
    call.name for call in SPEC.calls
    if call.mode not in (Mode.NATIVE, Mode.FORWARD, Mode.REFUSED)
}  # fmt: skip


def test_every_kept_test_file_and_function_exists() -> None:
    names = {call.name for call in SPEC.calls}
    for file, functions in called().items():
        assert (TESTS / file).exists(), f"tests/called.txt names {file}, which does not exist"
        assert sorted(functions - names) == [], f"tests/called.txt, {file}"


def test_every_function_that_is_answered_is_called_by_a_test_or_known_not_to_be() -> None:
    """What is missing here was not recorded yet: ``scripts/record-calls tests/cpu/test_....py``."""
    kept = frozenset().union(*called().values())
    assert sorted(ANSWERED - kept - UNCALLED) == []
    assert sorted(UNCALLED & kept) == []
