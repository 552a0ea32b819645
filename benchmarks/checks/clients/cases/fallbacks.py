"""Steps that need cuDNN's or cuBLAS's second choice, and steps that PyTorch refuses."""

import torch
import torch.nn.functional as F
from case import Setting, case, randn, with_grads

HALF = torch.float16
TYPES = {"fp16": HALF, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def off(*shape, by=1, dtype=HALF):
    """A contiguous tensor that begins ``by`` elements behind an aligned address."""
    count = torch.Size(shape).numel()
    return randn(count + by, dtype=dtype)[by:].view(shape)


def matmul_off(dtype):
    a, b = off(33, 65, dtype=dtype), off(65, 17, by=3, dtype=dtype)
    return with_grads(torch.matmul, a, b)


def matmul_strides(dtype):
    """Every second column, transposes, and a row stride that is no multiple of 16 bytes."""
    a, b = randn(32, 130, dtype=dtype), randn(64, 33, dtype=dtype)
    found = [a[:, ::2][:, :64] @ b, a[:, 1:65] @ b[:, :31], b.t() @ a.t()[:64]]
    return [*found, torch.bmm(a.view(4, 8, 130)[:, :, 3:36], randn(4, 33, 7, dtype=dtype))]


def linear_off(dtype):
    x, weight, bias = off(9, 33, dtype=dtype), off(7, 33, dtype=dtype), off(7, dtype=dtype)
    return with_grads(F.linear, x, weight, bias)


def conv_off(dtype):
    x, weight = off(2, 3, 9, 9, dtype=dtype), off(5, 3, 3, 3, by=5, dtype=dtype)
    return with_grads(F.conv2d, x, weight)


def conv_strides(dtype):
    x = randn(2, 6, 20, 20, dtype=dtype)[:, ::2, 1::2, ::3]
    return with_grads(F.conv2d, x, randn(4, 3, 3, 3, dtype=dtype)) + with_grads(
        F.conv2d, x.to(memory_format=torch.channels_last)[:, :, 1:], randn(4, 3, 2, 2, dtype=dtype)
    )


def conv_tiny(dtype):
    found = []
    for channels, outputs in ((1, 1), (1, 2), (3, 1), (5, 7)):
        x, weight = randn(1, channels, 5, 5, dtype=dtype), randn(outputs, channels, 3, 3, dtype=dtype)
        found += with_grads(lambda x, w: F.conv2d(x, w, padding=1), x, weight)
        layout = torch.channels_last
        found += with_grads(lambda x, w: F.conv2d(x, w), x.to(memory_format=layout), weight)
    return found


FUNCTIONS = {
    "matmul off alignment": matmul_off, "matmul of odd strides": matmul_strides,
    "linear with bias off alignment": linear_off, "conv off alignment": conv_off,
    "conv of odd strides": conv_strides, "conv of few channels": conv_tiny,
}
for name, function in FUNCTIONS.items():
    for word, dtype in TYPES.items():
        case(f"{name} {word}", dtype)(function)


@case("gelu epilogue off alignment")
def activation():
    bias, a, b = off(7), off(9, 33), off(33, 7)
    aligned = torch._addmm_activation(randn(8, dtype=HALF), randn(16, 32, dtype=HALF), randn(32, 8, dtype=HALF), use_gelu=True)
    return [torch._addmm_activation(bias, a, b, use_gelu=True), aligned]


@case("addmm with beta, out and a broadcast bias")
def addmm():
    a, b = randn(16, 32), randn(32, 8)
    out = torch.empty(16, 8, device=Setting.device)
    torch.addmm(randn(16, 8), a, b, beta=0.5, alpha=2.0, out=out)
    return [out, torch.addmm(randn(1, 8), a, b, beta=-1), torch.addmv(randn(16), a, randn(32)),
            torch.baddbmm(randn(2, 16, 8), a.expand(2, 16, 32), b.expand(2, 32, 8))]


@case("products of empty and single tensors")
def empty():
    device = Setting.device
    return [torch.empty(0, 5, device=device) @ randn(5, 3), torch.empty(4, 0, device=device) @ torch.empty(0, 3, device=device),
            randn(1, 1) @ randn(1, 1), torch.dot(randn(5), randn(5)), randn(5) @ randn(5, 3)]


@case("products of complex numbers", torch.complex64)
@case("products of complex doubles", torch.complex128)
def complex_products(dtype):
    a, b = randn(9, 17, dtype=dtype), randn(17, 5, dtype=dtype)
    return [a @ b, a.conj() @ b, a.mH.contiguous().mH @ b, torch.vdot(a[0], a[1])]


@case("conv of complex numbers")
def complex_conv():
    return [F.conv2d(randn(1, 2, 6, 6, dtype=torch.complex64), randn(3, 2, 3, 3, dtype=torch.complex64))]


@case("conv of an empty batch")
def empty_batch():
    return with_grads(F.conv2d, randn(2, 3, 8, 8)[:0], randn(4, 3, 3, 3))


@case("conv differentiated twice")
def twice():
    x, weight = randn(2, 3, 8, 8).requires_grad_(), randn(4, 3, 3, 3).requires_grad_()
    (grad,) = torch.autograd.grad(F.conv2d(x, weight).square().sum(), x, create_graph=True)
    return [grad, *torch.autograd.grad(grad.square().sum(), [x, weight])]


@case("conv with padding, dilation and stride at their ends")
def ends():
    x = randn(1, 4, 17, 17)
    found = with_grads(lambda x, w: F.conv2d(x, w, padding=20), x, randn(3, 4, 3, 3))
    found += with_grads(lambda x, w: F.conv2d(x, w, dilation=8), x, randn(3, 4, 3, 3))
    found += with_grads(lambda x, w: F.conv2d(x, w, stride=16), x, randn(3, 4, 1, 1))
    return found + with_grads(
        lambda x, w: F.conv_transpose2d(x, w, stride=3, output_padding=2, dilation=2), x, randn(4, 3, 3, 3)
    )


@case("conv without cuDNN")
def without():
    with torch.backends.cudnn.flags(enabled=False):
        return with_grads(F.conv2d, randn(2, 3, 8, 8), randn(4, 3, 3, 3))


@case("conv deterministic")
def deterministic():
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        return with_grads(F.conv2d, randn(2, 3, 8, 8), randn(4, 3, 3, 3))


@case("TF32 off and on")
def tf32():
    found, a, b = [], randn(64, 64), randn(64, 64)
    before = torch.get_float32_matmul_precision()
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        found.append(a @ b)
    torch.set_float32_matmul_precision(before)
    return found


@case("fused conv, bias and relu")
def fused():
    if not hasattr(torch, "cudnn_convolution_relu"):
        return []
    x, weight, bias = randn(2, 8, 8, 8), randn(8, 8, 3, 3), randn(8)
    if Setting.device == "cpu":
        return [F.relu(F.conv2d(x, weight, bias, padding=1))]
    relu = torch.cudnn_convolution_relu(x, weight, bias, (1, 1), (1, 1), (1, 1), 1)
    z = randn(2, 8, 8, 8)
    add = torch.cudnn_convolution_add_relu(x, weight, z, 0.5, bias, (1, 1), (1, 1), (1, 1), 1)
    return [relu, add]


def ints(*shape, dtype=torch.int8):
    return torch.randint(-9, 9, shape, dtype=dtype).to(Setting.device)


ERRORS = {
    "conv of int8": lambda: F.conv2d(ints(1, 4, 8, 8), ints(4, 4, 3, 3)),
    "conv of int64": lambda: F.conv2d(ints(1, 4, 8, 8, dtype=torch.int64), ints(4, 4, 3, 3, dtype=torch.int64)),
    "matmul of int64": lambda: ints(4, 4, dtype=torch.int64) @ ints(4, 4, dtype=torch.int64),
    "matmul of mixed types": lambda: randn(4, 4) @ randn(4, 4, dtype=HALF),
    "matmul of other shapes": lambda: randn(4, 5) @ randn(4, 5),
    "conv of mixed types": lambda: F.conv2d(randn(1, 4, 8, 8), randn(4, 4, 3, 3, dtype=HALF)),
    "conv of a large kernel": lambda: F.conv2d(randn(1, 4, 2, 2), randn(4, 4, 3, 3)),
    "conv of too few channels": lambda: F.conv2d(randn(1, 3, 8, 8), randn(4, 4, 3, 3)),
    "_int_mm of odd shapes": lambda: torch._int_mm(ints(17, 9), ints(9, 7)),
    "_int_mm of few rows": lambda: torch._int_mm(ints(8, 16), ints(16, 8)),
    "tensors on two devices": lambda: randn(4, 4) @ torch.randn(4, 4),
    "too much memory": lambda: torch.empty(1 << 50, device=Setting.device),
    "no such device": lambda: torch.empty(1, device=f"{Setting.device}:77"),
    "fp8 product off alignment": lambda: torch._scaled_mm(
        randn(17, 33).to(torch.float8_e4m3fn), randn(7, 33).to(torch.float8_e4m3fn).t(),
        scale_a=randn(1), scale_b=randn(1)),
    "lstm of other sizes": lambda: torch.nn.LSTM(4, 8).to(Setting.device)(randn(3, 2, 5)),
    "cholesky of an indefinite matrix": lambda: torch.linalg.cholesky(-torch.eye(3, device=Setting.device)),
    "inverse of a singular matrix": lambda: torch.linalg.inv(torch.zeros(3, 3, device=Setting.device)),
    "pin_memory of a device tensor": lambda: randn(3).pin_memory(),
}
for name, function in ERRORS.items():
    case(f"error: {name}")(function)
