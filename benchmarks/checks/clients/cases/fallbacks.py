"""Steps that take cuDNN's or cuBLAS's second choice, and steps that PyTorch refuses."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from case import Setting, Step, Tensors, case, cases, gpu_only, randn, with_grads
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

HALF, FP8 = torch.float16, torch.float8_e4m3fn
TYPES = {"fp16": HALF, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def off(*shape: int, by: int = 1, dtype: torch.dtype = HALF) -> Tensor:
    """Contiguous, but beginning ``by`` elements behind an aligned address."""
    return randn(torch.Size(shape).numel() + by, dtype=dtype)[by:].view(shape)


def matmul_off(dtype: torch.dtype) -> Tensors:
    return with_grads(torch.matmul, off(33, 65, dtype=dtype), off(65, 17, by=3, dtype=dtype))


def matmul_strided(dtype: torch.dtype) -> Tensors:
    """Every second column, transposes, rows that are no multiple of 16 bytes apart."""
    a, b = randn(32, 130, dtype=dtype), randn(64, 33, dtype=dtype)
    batches = a.view(4, 8, 130)[:, :, 3:36], randn(4, 33, 7, dtype=dtype)
    return [a[:, ::2][:, :64] @ b, a[:, 1:65] @ b[:, :31], b.t() @ a.t()[:64], torch.bmm(*batches)]


def linear_off(dtype: torch.dtype) -> Tensors:
    return with_grads(F.linear, *(off(*shape, dtype=dtype) for shape in ((9, 33), (7, 33), (7,))))


def conv_off(dtype: torch.dtype) -> Tensors:
    x, weight = off(2, 3, 9, 9, dtype=dtype), off(5, 3, 3, 3, by=5, dtype=dtype)
    return with_grads(F.conv2d, x, weight)


def conv_strided(dtype: torch.dtype) -> Tensors:
    x = randn(2, 6, 20, 20, dtype=dtype)[:, ::2, 1::2, ::3]
    last = x.to(memory_format=torch.channels_last)[:, :, 1:]
    return [
        *with_grads(F.conv2d, x, randn(4, 3, 3, 3, dtype=dtype)),
        *with_grads(F.conv2d, last, randn(4, 3, 2, 2, dtype=dtype)),
    ]


def conv_narrow(dtype: torch.dtype) -> Tensors:
    found: list[Tensor] = []
    for channels, outputs in ((1, 1), (1, 2), (3, 1), (5, 7)):
        x, weight = randn(1, channels, 5, 5), randn(outputs, channels, 3, 3, dtype=dtype)
        for layout in (torch.contiguous_format, torch.channels_last):
            given = x.to(dtype, memory_format=layout)
            found += with_grads(lambda x, weight: F.conv2d(x, weight, padding=1), given, weight)
    return found


def conv_depthwise(dtype: torch.dtype) -> Tensors:
    x, weight = randn(2, 5, 9, 9, dtype=dtype), randn(5, 1, 3, 3, dtype=dtype)
    return with_grads(lambda x, weight: F.conv2d(x, weight, groups=5), x, weight)


FUNCTIONS: dict[str, Callable[[torch.dtype], Tensors]] = {
    "matmul off alignment": matmul_off,
    "matmul of odd strides": matmul_strided,
    "linear with bias off alignment": linear_off,
    "conv off alignment": conv_off,
    "conv of odd strides": conv_strided,
    "conv of few channels": conv_narrow,
    "conv depthwise, odd": conv_depthwise,
}


@cases({f"{name} {word}": (name, dtype) for name in FUNCTIONS for word, dtype in TYPES.items()})
def of_type(name: str, dtype: torch.dtype) -> Step:
    return lambda: FUNCTIONS[name](dtype)


@case("gelu epilogue, aligned and off alignment")
def activation() -> Tensors:
    aligned = randn(8, dtype=HALF), randn(16, 32, dtype=HALF), randn(32, 8, dtype=HALF)
    shifted = off(7), off(9, 33), off(33, 7)
    return [torch._addmm_activation(*given, use_gelu=True) for given in (aligned, shifted)]


@case("addmm with beta, out and a broadcast bias")
def addmm() -> Tensors:
    a, b, out = randn(16, 32), randn(32, 8), torch.empty(16, 8, device=Setting.device)
    torch.addmm(randn(16, 8), a, b, beta=0.5, alpha=2.0, out=out)
    batched = torch.baddbmm(randn(2, 16, 8), a.expand(2, 16, 32), b.expand(2, 32, 8))
    vector = torch.addmv(randn(16), a, randn(32))
    return [out, torch.addmm(randn(1, 8), a, b, beta=-1), vector, batched]


@case("products of empty and of single numbers")
def empty() -> Tensors:
    nothing = torch.empty(0, 5, device=Setting.device)
    products = [nothing @ randn(5, 3), nothing.t() @ randn(3, 0).t(), randn(1, 1) @ randn(1, 1)]
    return [*products, torch.dot(randn(5), randn(5)), randn(5) @ randn(5, 3)]


@cases({"complex products": (torch.complex64,), "complex products fp64": (torch.complex128,)})
def complex_products(dtype: torch.dtype) -> Tensors:
    a, b = randn(9, 17, dtype=dtype), randn(17, 5, dtype=dtype)
    return [a @ b, a.conj() @ b, a.mH.contiguous().mH @ b, torch.vdot(a[0], a[1])]


@case("complex conv")
def complex_conv() -> Tensors:
    x, weight = randn(1, 2, 6, 6, dtype=torch.complex64), randn(3, 2, 3, 3, dtype=torch.complex64)
    return [F.conv2d(x, weight)]


@case("conv of an empty batch")
def empty_batch() -> Tensors:
    return with_grads(F.conv2d, randn(2, 3, 8, 8)[:0], randn(4, 3, 3, 3))


@case("conv differentiated twice")
def twice() -> Tensors:
    x, weight = randn(2, 3, 8, 8).requires_grad_(), randn(4, 3, 3, 3).requires_grad_()
    (first,) = torch.autograd.grad(F.conv2d(x, weight).square().sum(), x, create_graph=True)
    return [first, *torch.autograd.grad(first.square().sum(), [x, weight])]


@cases({
    "conv with more padding than kernel": ({"padding": 20},),
    "conv with a wide dilation": ({"dilation": 8},),
    "conv with a wide stride": ({"stride": 16},),
})  # fmt: skip
def conv_wide(settings: dict[str, int]) -> Tensors:
    x, weight = randn(1, 4, 17, 17), randn(3, 4, 3, 3)
    return with_grads(lambda x, weight: F.conv2d(x, weight, **settings), x, weight)


@case("transposed conv with dilation and output padding")
def conv_transposed() -> Tensors:
    settings = {"stride": 3, "output_padding": 2, "dilation": 2}
    x, weight = randn(1, 4, 9, 9), randn(4, 3, 3, 3)
    return with_grads(lambda x, weight: F.conv_transpose2d(x, weight, **settings), x, weight)


@cases({
    "conv without cuDNN": ({"enabled": False},),
    "conv deterministic": ({"enabled": True, "deterministic": True},),
    "conv with benchmark": ({"enabled": True, "benchmark": True},),
    "conv without TF32": ({"enabled": True, "allow_tf32": False},),
})  # fmt: skip
def conv_with_flags(flags: dict[str, bool]) -> Tensors:
    with torch.backends.cudnn.flags(**flags):
        return with_grads(F.conv2d, randn(2, 3, 8, 8), randn(4, 3, 3, 3))


@case("matmul with TF32 and without")
def tf32() -> Tensors:
    a, b, before = randn(64, 64), randn(64, 64), torch.get_float32_matmul_precision()
    found = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        found.append(a @ b)
    torch.set_float32_matmul_precision(before)
    return found


@case("conv with bias and relu in one")
def fused() -> Tensors:
    gpu_only("cuDNN")
    x, weight, bias, z = randn(2, 8, 8, 8), randn(8, 8, 3, 3), randn(8), randn(2, 8, 8, 8)
    place = (1, 1), (1, 1), (1, 1), 1
    return [
        torch.cudnn_convolution_relu(x, weight, bias, *place),
        torch.cudnn_convolution_add_relu(x, weight, z, 0.5, bias, *place),
    ]


def ints(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.randint(-9, 9, shape, dtype=dtype).to(Setting.device)


def longs(*shape: int) -> Tensor:
    return ints(*shape, dtype=torch.int64)


def half(*shape: int) -> Tensor:
    return randn(*shape, dtype=HALF)


def fp8(*shape: int) -> Tensor:
    return randn(*shape).to(FP8)


def too_much() -> Tensor:
    """Of PyTorch's message the first sentence: the rest counts memory of the moment."""
    try:
        return torch.empty(1 << 50, device=Setting.device)
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error).split(". ")[0]) from None


def wide_attention(backend: SDPBackend, width: int) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*(half(1, 2, 8, width) for _ in "qkv"))


ERRORS: dict[str, Callable[[], Tensor]] = {
    "conv of int8": lambda: F.conv2d(ints(1, 4, 8, 8), ints(4, 4, 3, 3)),
    "conv of int64": lambda: F.conv2d(longs(1, 4, 8, 8), longs(4, 4, 3, 3)),
    "conv of two types": lambda: F.conv2d(randn(1, 4, 8, 8), half(4, 4, 3, 3)),
    "conv with a kernel too large": lambda: F.conv2d(randn(1, 4, 2, 2), randn(4, 4, 3, 3)),
    "conv with channels too few": lambda: F.conv2d(randn(1, 3, 8, 8), randn(4, 4, 3, 3)),
    "matmul of int64": lambda: longs(4, 4) @ longs(4, 4),
    "matmul of two types": lambda: randn(4, 4) @ half(4, 4),
    "matmul of unfit shapes": lambda: randn(4, 5) @ randn(4, 5),
    "matmul on two devices": lambda: randn(4, 4) @ torch.randn(4, 4),
    "_int_mm of odd shapes": lambda: torch._int_mm(ints(17, 9), ints(9, 7)),
    "_int_mm of few rows": lambda: torch._int_mm(ints(8, 16), ints(16, 8)),
    "_scaled_mm of odd shapes": lambda: torch._scaled_mm(
        fp8(17, 33), fp8(7, 33).t(), randn(1), randn(1)
    ),
    "_scaled_mm of e5m2 twice": lambda: torch._scaled_mm(
        *(randn(32, 32).to(torch.float8_e5m2) for _ in "ab"), randn(1), randn(1)
    ),
    "attention of 513 wide in cuDNN": lambda: wide_attention(SDPBackend.CUDNN_ATTENTION, 513),
    "attention of 513 wide in flash": lambda: wide_attention(SDPBackend.FLASH_ATTENTION, 513),
    "lstm of an unfit input": lambda: nn.LSTM(4, 8).to(Setting.device)(randn(3, 2, 5))[0],
    "cholesky of an indefinite matrix": lambda: torch.linalg.cholesky(
        -torch.eye(3, device=Setting.device)
    ),
    "inverse of a singular matrix": lambda: torch.linalg.inv(
        torch.zeros(3, 3, device=Setting.device)
    ),
    "pin_memory of a device tensor": lambda: randn(3).pin_memory(),
    "memory there is not": too_much,
    "a device there is not": lambda: torch.empty(1, device=f"{Setting.device}:77"),
}


@cases({f"error: {name}": (name,) for name in ERRORS})
def refused(name: str) -> Tensors:
    gpu_only("errors of a GPU")
    return [ERRORS[name]()]
