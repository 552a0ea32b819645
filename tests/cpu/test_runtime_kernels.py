"""Kernels that are compiled at run time, on the CPU device: it cannot run them and says so."""

from __future__ import annotations

import pytest
from conftest import Server
from cubin_images import FakeKernel
from fakecuda.kernels import kernels_cubin

FILL = (
    "_ZN2at6native29vectorized_elementwise_kernel"
    "ILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
)
IMAGE = kernels_cubin([FakeKernel(FILL, ((0, 4), (4, 4), (8, 8)), 16), FakeKernel("mine", (), 0)])
PRELUDE = f"""
import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from mnemosyne.cli import client_library
cuda = ctypes.CDLL(str(client_library()))
module, function, p, back = c_void_p(), c_void_p(), c_void_p(), (c_float * 4)()
assert cuda.cudaMalloc(byref(p), c_size_t(16)) == 0
image = {IMAGE!r}
"""


def test_a_kernel_without_implementation_is_named_in_one_line(server: Server) -> None:
    code = """
print(cuda.cuModuleLoadData(byref(module), image))
print(cuda.cuModuleGetFunction(byref(function), module, b"mine"), cuda.cudaGetLastError())
print(cuda.cuModuleLoadData(byref(module), b".version 8.8 .entry yours() { ret; }"))
print(cuda.cuModuleGetFunction(byref(function), module, b"yours"), cuda.cudaDeviceSynchronize())
"""
    done = server.run(PRELUDE + code)
    assert done.stdout.split() == ["0", "801", "0", "0", "801", "0"]
    says = "the CPU device cannot run kernels that are compiled at run time, such as"
    assert done.stderr.splitlines() == [
        f"mnemosyne: module_function: {says} {name}" for name in ("mine", "yours")
    ]


def test_a_kernel_that_the_device_knows_runs_from_memory_as_well(server: Server) -> None:
    code = f"""
print(cuda.cuModuleLoadData(byref(module), image),
      cuda.cuModuleGetFunction(byref(function), module, {FILL.encode()!r}))
arguments = c_int(4), c_float(7), p
places = (c_void_p * 3)(*map(ctypes.addressof, arguments))
print(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, places, None))
print(cuda.cudaMemcpy(back, p, c_size_t(16), 2), *back)
print(cuda.cuMemsetD32Async(p, 0x40400000, c_size_t(2), None))
print(cuda.cudaMemcpy(back, p, c_size_t(16), 2), *back, cuda.cuModuleUnload(module))
"""
    assert server.output(PRELUDE + code).split("\n") == [
        "0 0", "0", "0 7.0 7.0 7.0 7.0", "0", "0 3.0 3.0 7.0 7.0 0",
    ]  # fmt: skip


def test_a_library_in_memory_is_the_runtimes_too(server: Server) -> None:
    code = f"""
print(cuda.cudaLibraryLoadData(byref(module), image, None, None, 0, None, None, 0),
      cuda.cudaLibraryGetKernel(byref(function), module, {FILL.encode()!r}),
      cuda.cudaLibraryGetKernel(byref(c_void_p()), module, b"absent"), cuda.cudaGetLastError())
print(cuda.cudaKernelSetAttributeForDevice(function, 8, 1000, 0))
print(cuda.cudaLibraryUnload(module), cuda.cudaLibraryUnload(module))
"""
    assert server.output(PRELUDE + code).split("\n") == ["0 0 500 500", "0", "0 400"]


def test_tensor_maps_are_not_offered(server: Server) -> None:
    code = """
room = ctypes.create_string_buffer(256)
at = (ctypes.addressof(room) + 63) // 64 * 64
two, one = (ctypes.c_uint64 * 2)(16, 2), (ctypes.c_uint32 * 2)(1, 1)
print(cuda.cuTensorMapEncodeTiled(c_void_p(at), 0, 2, p, two, two, one, one, 0, 0, 0, 0))
"""
    done = server.run(PRELUDE + code)
    assert done.stdout.strip() == "801"
    assert done.stderr == (
        "mnemosyne: tensor_map: the CPU device has no tensor maps: only a GPU's driver has\n"
    )


@pytest.mark.parametrize(
    ("expression", "kernel"),
    [
        ("torch.special.bessel_j0(torch.ones(4, device='cuda'))", "bessel_j0"),
        ("torch.lcm(*torch.ones(2, 4, device='cuda', dtype=torch.int64))", "lcm"),
    ],
)
def test_an_operation_that_pytorch_compiles_names_its_kernel(
    server: Server, expression: str, kernel: str
) -> None:
    code = f"""
import torch
try:
    {expression}
except RuntimeError as error:
    print("not supported" in str(error), torch.ones(3, device="cuda").sum().item())
"""
    done = server.run(code)
    assert done.stdout.strip() == "True 3.0", done.stderr
    assert f"compiled at run time, such as {kernel}" in done.stderr


def test_the_error_of_a_compiled_kernel_is_not_that_of_an_earlier_failure(server: Server) -> None:
    code = """
import torch
def error(of, *arguments):
    try: of(*arguments)
    except RuntimeError as error: return str(error).splitlines()[0]
values = torch.randn(8, device="cuda")
print(error(lambda: torch.linspace(0, 1, 5, dtype=torch.complex64, device="cuda")))
print(error(torch.lgamma, values))
print(error(torch.special.bessel_j0, values))
"""
    done = server.run(code)
    first, second, third = done.stdout.splitlines()
    assert "linspace" in first
    assert "such as lgamma_kernel" in second
    assert "such as bessel_j0" in third


def test_torch_compile_can_be_turned_off(server: Server) -> None:
    """On this device its kernels could not run."""
    code = """
import os
os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
def plain(x): return torch.nn.functional.gelu(x) * 2
x = torch.linspace(-2, 2, 9)
torch.testing.assert_close(torch.compile(plain)(x.to("cuda")).cpu(), plain(x))
print("equal")
"""
    assert server.output(code) == "equal"


@pytest.mark.parametrize("setting", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_an_allocator_that_is_not_offered_names_its_setting(server: Server, setting: str) -> None:
    code = f"""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "{setting}"
import torch
try: torch.ones(3, device="cuda")
except RuntimeError as error: print(error)
"""
    says = f"remove {setting} from PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF"
    assert says in server.output(code)
