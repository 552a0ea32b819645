"""The library with the fake driver's kernels, as a client of a server: its launches arrive."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Server
from cubin_images import FakeKernel
from fakecuda.kernels import KERNELS, build_kernels, client_code

#: void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, std::array<char*, 1>>(...)
FILL = (
    "_ZN2at6native29vectorized_elementwise_kernel"
    "ILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
)
PRELUDE = """
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p
from mnemosyne.cli import client_library
cuda = ctypes.CDLL(str(client_library()))
p, back = c_void_p(), (c_float * 4)()
assert cuda.cudaMalloc(byref(p), c_size_t(16)) == 0
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    known = FakeKernel(FILL, ((0, 4), (4, 4), (8, 8)), 16)
    return build_kernels(tmp_path_factory.mktemp("kernels"), [*KERNELS, known])


def test_a_kernel_that_the_device_knows_is_executed(server: Server, library: Path) -> None:
    code = f"""
print(launch({FILL!r}, c_int(4), c_float(7), p), cuda.cudaDeviceSynchronize())
print(cuda.cudaMemcpy(back, p, c_size_t(16), 2), *back)
"""
    printed = server.output(client_code(library) + PRELUDE + code)
    assert printed.split() == ["0", "0", "0", "7.0", "7.0", "7.0", "7.0"]


def test_a_kernel_of_the_fake_driver_is_found_but_unknown(server: Server, library: Path) -> None:
    code = """
cuda.cudaGetErrorString.restype = ctypes.c_char_p
code = launch("fake_fill", p, c_uint(7), c_size_t(4))
print(code, b"fake_fill" in cuda.cudaGetErrorString(code), cuda.cudaDeviceSynchronize())
"""
    printed = server.output(client_code(library) + PRELUDE + code)
    assert printed.split() == ["801", "True", "0"]
