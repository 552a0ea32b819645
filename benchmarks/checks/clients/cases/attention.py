"""Attention in every backend, and products of eight-bit numbers."""

import torch
import torch.nn.functional as F
from case import Setting, Skip, case, pick, randn, with_grads
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
SHAPES = {"": {}, "causal": {"is_causal": True}, "mask": {"mask": True}, "bool mask": {"mask": "bool"},
          "GQA": {"enable_gqa": True}, "cross": {"cross": True}, "dropout": {"dropout_p": 0.1},
          "head 72": {"width": 72}, "strided": {"strided": True}}  # fmt: skip
REFUSED = {  # what the backend itself does not offer
    ("flash", "fp32"), ("cudnn", "fp32"), ("flash", "mask"), ("flash", "bool mask"),
    ("mem-efficient", "GQA"),
}


def sdpa(backend, dtype, mask=None, enable_gqa=False, cross=False, width=32, strided=False, **settings):
    length = pick(64, 16)
    if Setting.tiny:
        settings.pop("dropout_p", None)
    q = randn(2, 4, length, width, dtype=dtype)
    k, v = (
        randn(2, 2 if enable_gqa else 4, length // 2 if cross else length, width, dtype=dtype)
        for _ in "kv"
    )
    if strided:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if mask:
        settings["attn_mask"] = randn(2, 4, length, length, dtype=dtype)
    if mask == "bool":
        settings["attn_mask"] = settings["attn_mask"] > -1

    def forward(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=enable_gqa, **settings)

    def step():
        torch.manual_seed(2)
        with sdpa_kernel(BACKENDS[backend]):
            return with_grads(forward, q, k, v)

    return step


def on_gpu(backend, dtype, settings):
    if Setting.device == "cpu" and backend in ("mem-efficient", "cudnn"):
        raise Skip(f"there is no {backend} backend on the CPU")
    return sdpa(backend, dtype, **settings)


for backend in BACKENDS:
    for word, dtype in TYPES.items():
        for shape, settings in SHAPES.items():
            wanted = word == "fp16" or shape in ("", "causal")
            if wanted and not {(backend, word), (backend, shape)} & REFUSED:
                name = f"{backend} {word} {shape}".strip()
                case(name, backend, dtype, settings)(on_gpu)


@case("whatever backend PyTorch takes", torch.float16)
@case("whatever backend PyTorch takes fp32", torch.float32)
def any_backend(dtype):
    q, k, v = (randn(2, 4, 32, 64, dtype=dtype) for _ in "qkv")
    return with_grads(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True), q, k, v)


@case("MultiheadAttention, training", True)
@case("MultiheadAttention, fast path", False)
def multihead(training):
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).to(Setting.device).train(training)
    x = randn(2, 10, 32)
    if training:
        return with_grads(lambda x: layer(x, x, x)[0], x, params=tuple(layer.parameters()))
    with torch.no_grad():
        return list(layer(x, x, x))


@case("TransformerEncoder, nested tensors")
def nested():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(Setting.device).eval()
    padding = torch.arange(10) >= torch.tensor([[10], [6]])
    with torch.no_grad():
        return [model(randn(2, 10, 32), src_key_padding_mask=padding.to(Setting.device))]


@case("flex_attention eager", torch.float32)
@case("flex_attention eager fp16", torch.float16)
def flex(dtype):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (randn(1, 2, 128, 16, dtype=dtype) for _ in "qkv")
    mask = create_block_mask(
        lambda b, h, i, j: i >= j, None, None, 128, 128, device=Setting.device
    )

    def forward(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + (j - i) * 0.1, block_mask=mask)

    if Setting.device == "cpu":  # which has no backward of it
        return [forward(q, k, v)]
    return with_grads(forward, q, k, v)


@case("_scaled_mm fp8 by tensor", "tensor", torch.float8_e4m3fn)
@case("_scaled_mm fp8 by row", "row", torch.float8_e4m3fn)
@case("_scaled_mm fp8 e5m2 by tensor", "tensor", torch.float8_e5m2)
@case("_scaled_mm fp8 by tensor, fast accumulation", "fast", torch.float8_e4m3fn)
def scaled(by, left):
    a, b = randn(64, 128).to(left), randn(32, 128).to(torch.float8_e4m3fn).t()
    scales = [torch.tensor(0.5), torch.tensor(0.25)]
    if by == "row":
        scales = [torch.rand(64, 1) + 0.5, torch.rand(1, 32) + 0.5]
    a_scale, b_scale = (scale.to(Setting.device) for scale in scales)
    return [
        torch._scaled_mm(
            a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16,
            use_fast_accum=by == "fast",
        )
    ]


@case("_scaled_mm fp8 with bias")
def scaled_bias():
    a, b = randn(64, 128).to(torch.float8_e4m3fn), randn(32, 128).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=Setting.device)
    bias = randn(32, dtype=torch.bfloat16)
    return [torch._scaled_mm(a, b, scale_a=one, scale_b=one, bias=bias, out_dtype=torch.bfloat16)]


@case("_int_mm")
def int_mm():
    a, b = (torch.randint(-128, 127, shape, dtype=torch.int8) for shape in ((64, 128), (128, 32)))
    a, b = a.to(Setting.device), b.to(Setting.device)
    column_major = b.t().contiguous().t()
    return [torch._int_mm(a, b), torch._int_mm(a, column_major)]
