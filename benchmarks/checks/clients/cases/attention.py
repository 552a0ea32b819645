"""Attention in every backend, and products of eight-bit numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from case import Setting, Skip, Step, Tensors, case, cases, pick, randn, with_grads
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

FP32, BF16, FP16, FP8 = torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn
TYPES = {"fp16": FP16, "bf16": BF16, "fp32": FP32}
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
ON_CPU = ("flash", "math")
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "float mask": {"mask": "float"},
    "bool mask": {"mask": "bool"},
    "GQA": {"heads": 2, "enable_gqa": True},
    "cross": {"keys": 0.5},
    "dropout": {"dropout_p": 0.1},
    "scale": {"scale": 0.5},
    "72 wide": {"width": 72},
    "128 wide": {"width": 128},
    "strided": {"strided": True},
}
NOT_OFFERED = {  # by the backend itself
    *(("flash", what) for what in ("fp32", "float mask", "bool mask")),
    ("cudnn", "fp32"),
    ("mem-efficient", "GQA"),
}


@cases({
    f"{backend} {word} {shape}": (backend, dtype, settings)
    for backend in BACKENDS for word, dtype in TYPES.items() for shape, settings in SHAPES.items()
    if (word == "fp16" or shape in ("plain", "causal"))
    and not {(backend, word), (backend, shape)} & NOT_OFFERED
})  # fmt: skip
def attention(backend: str, dtype: torch.dtype, settings: dict[str, Any]) -> Step:
    if Setting.device == "cpu" and backend not in ON_CPU:
        raise Skip(f"the CPU has no {backend} attention")
    inputs, settings = prepare(dtype, **settings)

    def step() -> Tensors:
        torch.manual_seed(2)
        with sdpa_kernel(BACKENDS[backend]):
            return with_grads(
                lambda *qkv: F.scaled_dot_product_attention(*qkv, **settings), *inputs
            )

    return step


def prepare(
    dtype: torch.dtype, mask: str = "", heads: int = 4, keys: float = 1, width: int = 32,
    strided: bool = False, **settings: Any,
) -> tuple[list[Tensor], dict[str, Any]]:  # fmt: skip
    """Query, key and value, and what else the function is given."""
    length = pick(64, 16)
    shapes = [(2, 4, length, width), *[(2, heads, int(length * keys), width)] * 2]
    inputs = [randn(*shape, dtype=dtype) for shape in shapes]
    if strided:
        inputs = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    if mask:
        drawn = randn(2, 4, length, length, dtype=dtype)
        settings["attn_mask"] = drawn if mask == "float" else drawn > -1
    if Setting.tiny:  # a CPU drops others than a GPU
        settings.pop("dropout_p", None)
    return inputs, settings


@cases({f"PyTorch's choice {word}": (dtype,) for word, dtype in TYPES.items()})
def choice(dtype: torch.dtype) -> Step:
    inputs, settings = prepare(dtype, width=64, is_causal=True)
    return lambda: with_grads(
        lambda *qkv: F.scaled_dot_product_attention(*qkv, **settings), *inputs
    )


@case("MultiheadAttention, training")
def multihead() -> Step:
    layer = nn.MultiheadAttention(32, 4, batch_first=True).to(Setting.device)
    x = randn(2, 10, 32)
    parameters = tuple(layer.parameters())
    return lambda: with_grads(lambda x: layer(x, x, x)[0], x, parameters=parameters)


@case("MultiheadAttention, evaluation")
def fast_path() -> Step:
    layer = nn.MultiheadAttention(32, 4, batch_first=True).to(Setting.device).eval()
    x = randn(2, 10, 32)

    def step() -> Tensors:
        with torch.no_grad():
            return list(layer(x, x, x))

    return step


@case("TransformerEncoder, nested tensors")
def nested() -> Step:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(Setting.device).eval()
    x = randn(2, 10, 32)
    padding = (torch.arange(10) >= torch.tensor([[10], [6]])).to(Setting.device)

    def step() -> Tensors:
        with torch.no_grad():
            return [model(x, src_key_padding_mask=padding)]

    return step


@cases({"flex_attention eager fp32": (FP32,), "flex_attention eager fp16": (FP16,)})
def flex(dtype: torch.dtype) -> Step:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    inputs = [randn(1, 2, 128, 16, dtype=dtype) for _ in "qkv"]
    settings = {"device": Setting.device, "B": None, "H": None, "Q_LEN": 128, "KV_LEN": 128}
    mask = create_block_mask(lambda batch, head, query, key: query >= key, **settings)

    def forward(*qkv: Tensor) -> Tensor:
        return flex_attention(*qkv, lambda s, b, h, i, j: s + (j - i) * 0.1, block_mask=mask)

    if Setting.tiny:  # a CPU has no gradient of it
        return lambda: [forward(*inputs)]
    return lambda: with_grads(forward, *inputs)


@cases({
    "_scaled_mm by tensor": (FP8, False, {}),
    "_scaled_mm by row": (FP8, True, {}),
    "_scaled_mm by tensor, e5m2": (torch.float8_e5m2, False, {}),
    "_scaled_mm by tensor, fast": (FP8, False, {"use_fast_accum": True}),
    "_scaled_mm by row, fast": (FP8, True, {"use_fast_accum": True}),
})  # fmt: skip
def scaled(left: torch.dtype, by_row: bool, settings: dict[str, bool]) -> Step:
    a, b = eight_bit(left)
    shapes = ((64, 1), (1, 32)) if by_row else ((), ())
    scales = [(torch.rand(shape) + 0.5).to(Setting.device) for shape in shapes]
    return lambda: [torch._scaled_mm(a, b, *scales, out_dtype=BF16, **settings)]


@cases({f"_scaled_mm with bias to {word}": (TYPES[word],) for word in ("bf16", "fp16")})
def scaled_with_bias(dtype: torch.dtype) -> Step:
    a, b = eight_bit(FP8)
    one, bias = torch.ones((), device=Setting.device), randn(32, dtype=dtype)
    return lambda: [torch._scaled_mm(a, b, one, one, bias=bias, out_dtype=dtype)]


def eight_bit(left: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two matrices, the right one with its columns in one piece."""
    return randn(64, 128).to(left), randn(32, 128).to(FP8).t()


@cases({"_int_mm of rows": (False,), "_int_mm of columns": (True,)})
def int_mm(columns: bool) -> Step:
    a, b = (torch.randint(-128, 127, size, dtype=torch.int8) for size in ((64, 128), (32, 128)))
    a, b = a.to(Setting.device), b.to(Setting.device)
    b = b.t() if columns else b.t().contiguous()
    return lambda: [torch._int_mm(a, b)]
