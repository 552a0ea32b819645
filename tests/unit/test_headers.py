"""The client library's functions and structures against the vendor's headers of the wheels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mnemosyne.api import SPEC
from mnemosyne.codegen.headers import compare, folders_of_wheels, our_prototypes

SOURCES = Path(__file__).parents[2] / "csrc"
FOLDERS = folders_of_wheels()
needs_headers = pytest.mark.skipif(
    not any((folder / "cublas_api.h").exists() for folder in FOLDERS) or not shutil.which("g++"),
    reason="needs g++ and the CUDA 13 headers that come with the torch wheel",
)

#: Exported functions that no header of the wheels declares: what nvcc emits (crt/host_runtime.h),
#: cudaProfiler.h, nvml.h, what nvshmem and NCCL declare for nvcc, and names that are macros.
UNDECLARED = (
    "__cuda", "cudaProfiler", "nvml", "nvshmem", "ncclDevComm", "ncclGetLsa", "ncclGetPeer",
    "cuDeviceGetUuid", "cuGetProcAddress",
)  # fmt: skip


@needs_headers
def test_every_exported_function_has_the_headers_prototype() -> None:
    found = compare(SPEC, SOURCES, FOLDERS)
    assert found.differences == []
    assert [name for name in found.undeclared if not name.startswith(UNDECLARED)] == []
    assert found.functions > 700
    assert found.structures == 12


EDITS = {
    "blas.cpp": ("cublasSetMathMode(cublasHandle_t handle, int", "cublasSetMathMode(void*, double"),
    "driver.cpp": ("cuDeviceTotalMem_v2(size_t* bytes, int ordinal)", "cuDeviceTotalMem_v2(int b)"),
    "structs.h": ("  int reserved[16];\n", ""),
}


@needs_headers
def test_other_prototypes_and_layouts_than_the_headers_are_named(tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "csrc")
    for name, (before, after) in EDITS.items():
        path = tmp_path / "csrc/client_hook" / name
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after, 1))
    assert compare(SPEC, tmp_path / "csrc", FOLDERS).differences == [
        "cublasSetMathMode: integer4(pointer8, float8) here, "
        "integer4(pointer8, integer4) in the header",
        "cuDeviceTotalMem_v2: integer4(integer4) here, integer4(pointer8, integer4) in the header",
        "cudaFuncAttributes.: (0, 80) here, (0, 144) in the header (offset, size)",
    ]


def test_prototypes_are_read_off_the_sources() -> None:
    found = our_prototypes(SOURCES)
    assert {
        "cublasStatus_t cublasSetMathMode(cublasHandle_t, int)",
        "cudaError_t cudaLaunchHostFunc(cudaStream_t, void*, void*)",
        "cudaError_t cudaGetLastError()",
        "void* cudaGetErrorString(cudaError_t)",
    } <= found
