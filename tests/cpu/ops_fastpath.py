"""The inference fast path of attention and encoders, and the nested tensors that it makes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

KINDS = (torch.float32, torch.float16, torch.bfloat16)
LENGTHS = (4, 2, 6)  # of sequences, padded to the longest
_nested: Any = torch.nested
_efficient: Any = torch.ops.aten._efficient_attention_forward
_from_padded: Any = torch._nested_from_padded


def compare(got: Tensor, wanted: Tensor) -> None:
    """Whole numbers exactly; results of layers, of about one, within four of their own units.

    The CPU computes layers in 32 bits throughout, the device rounds after each operation.
    """
    exact = wanted.dtype == torch.float64
    unit = 0.0 if exact else 4 * max(torch.finfo(got.dtype).eps, 2.0**-20)
    torch.testing.assert_close(
        got.to(wanted.dtype), wanted, rtol=unit, atol=unit, check_stride=False, equal_nan=True
    )


def values(*sizes: int, kind: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(sizes, generator=generator).to(kind)


def placed(x: Any, device: torch.device) -> Any:
    """A model or tensor on the device; on the CPU the same values in 32 bits."""
    return x.float() if device.type == "cpu" else x.to(device)


def _mask() -> Tensor:
    """True where a sequence has ended."""
    return torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None]


def _attention(kind: torch.dtype, width: int) -> Case:
    def case(device: torch.device) -> Tensors:
        torch.manual_seed(0)
        model = nn.MultiheadAttention(width, 4, batch_first=True).to(kind).eval()
        nn.init.normal_(model.in_proj_bias)
        model, x = placed(model, device), placed(values(3, 6, width, kind=kind), device)
        padding = _mask().to(device)
        ahead = torch.ones(6, 6, dtype=torch.bool).triu(1).to(device)
        with torch.no_grad():
            found = [
                model(x, x, x),
                model(x, x, x, need_weights=False),
                model(x, x, x, average_attn_weights=False),
                model(x, x, x, key_padding_mask=padding),
                model(x, x, x, attn_mask=ahead),
            ]
        return [y for pair in found for y in pair if y is not None]

    return case


def _encoder(kind: torch.dtype, width: int, padded: bool, gelu: bool) -> Case:
    """The fast path computes GELU by a tanh, as cublasLt does."""

    def case(device: torch.device) -> Tensors:
        torch.manual_seed(0)
        activation: Any = "relu"
        if gelu:
            tanh = partial(F.gelu, approximate="tanh")
            activation = tanh if device.type == "cpu" else "gelu"
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, batch_first=True, activation=activation, norm_first=gelu
        )
        model = placed(nn.TransformerEncoder(layer, 2).to(kind).eval(), device)
        x = placed(values(3, 6, width, kind=kind), device)
        mask = _mask().to(device) if padded else None
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            result = model(x, src_key_padding_mask=mask)
        return [result.masked_fill(mask[..., None], 0) if mask is not None else result]

    return case


def _sequences(kind: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.arange(1.0, 1 + torch.Size(s).numel()).view(s).to(kind) for s in shapes]


def _nest(device: torch.device, sequences: Sequence[Tensor]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _nested.nested_tensor([x.to(device) for x in sequences])


def _padded(device: torch.device) -> Tensors:
    """To a padded tensor, by one kernel for each number of dimensions."""
    results = []
    for kind in (*KINDS, torch.float64):
        for shapes in (((3,), (5,)), ((3, 4), (5, 4), (1, 4)), ((2, 3, 4), (2, 1, 4), (0, 2, 4))):
            sequences = _sequences(kind, *shapes)
            largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
            more = [len(shapes) + 1, *(size + 2 for size in largest)]
            if device.type == "cpu":
                results += [_by_hand(sequences, [len(shapes), *largest]), _by_hand(sequences, more)]
            else:
                nested = _nest(device, sequences)
                results += [nested.to_padded_tensor(-2.5), nested.to_padded_tensor(-2.5, more)]
    return results


def _by_hand(sequences: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    out = torch.full(tuple(shape), -2.5, dtype=torch.float64)
    for place, sequence in zip(out, sequences, strict=False):
        place[tuple(slice(size) for size in sequence.shape)] = sequence.double()
    return out


def _unpadded(device: torch.device) -> Tensors:
    """Out of a padded tensor; also with heads before rows, as attention leaves them."""
    results = []
    for kind in KINDS:
        plain = torch.arange(72.0).view(3, 6, 4).to(kind)
        heads = torch.arange(144.0).view(3, 2, 6, 4).to(kind)
        sizes = torch.tensor([[n, 4] for n in LENGTHS])
        cubes = torch.tensor([[2, n, 3] for n in LENGTHS])
        if device.type == "cpu":
            results += [x[:n].double() for x, n in zip(plain, LENGTHS, strict=True)]
            results += [x[:, :n, :3].double() for x, n in zip(heads, LENGTHS, strict=True)]
            behind = heads.transpose(1, 2).flatten(2).double()
            results += [x[:n] for x, n in zip(behind, LENGTHS, strict=True)]
            continue
        results += _from_padded(plain.to(device), sizes).unbind()
        results += _from_padded(heads.to(device), cubes).unbind()
        results += _from_padded(heads.to(device), sizes * torch.tensor([1, 2]), True).unbind()
    return results


def _dense_row(device: torch.device) -> Tensors:
    """One dense row for all rows of a sequence."""
    results = []
    for kind in (*KINDS, torch.float64, torch.int32, torch.int64):
        sequences = _sequences(kind, (3, 4), (5, 4), (1, 4))
        dense = (torch.arange(12).view(3, 1, 4) - 5).to(kind)
        if device.type == "cpu":
            pairs = list(zip(sequences, dense, strict=True))
            results += [(x + y).double() for x, y in pairs] + [(x * y).double() for x, y in pairs]
            continue
        nested = _nest(device, sequences)
        results += [*(nested + dense.to(device)).unbind(), *(nested * dense.to(device)).unbind()]
    return results


def _operations(device: torch.device) -> Tensors:
    """Simple operations of nested tensors."""
    results: list[Tensor] = []
    for kind in KINDS:
        sequences = [values(n, 4, kind=kind) for n in LENGTHS]
        x = _nest(device, [placed(s, device) for s in sequences])
        weight, bias = (placed(values(*s, kind=kind), device) for s in ((5, 4), (5,)))
        for y in (
            x * 2, x + x, torch.relu(x), torch.softmax(x, -1), F.linear(x, weight, bias),
            torch.matmul(x, x.transpose(1, 2)), F.layer_norm(x, (4,), weight[0], weight[1]),
        ):  # fmt: skip
            results += y.unbind()
    return results


def _gradient(device: torch.device) -> Tensors:
    leaves = [x.double().to(device).requires_grad_() for x in _sequences(KINDS[0], (3, 4), (5, 4))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = _nested.as_nested_tensor(leaves)
    (nested * nested).to_padded_tensor(0.0).square().sum().backward()
    return [x.grad for x in leaves if x.grad is not None]


def _packed(kind: torch.dtype, causal: bool, lengths: bool) -> Case:
    """Memory-efficient attention over sequences one behind the other, and what it leaves."""
    starts, used = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()], (3, 2, 1)

    def case(device: torch.device) -> Tensors:
        rows = [values(1, sum(LENGTHS), 2, 8 * n, kind=kind)[..., :8] for n in (1, 2, 3)]
        counts = used if lengths else LENGTHS
        if device.type == "cpu":
            split = zip(*(x[0].float().split(LENGTHS) for x in rows), strict=True)
            return _one_by_one(split, counts, causal)
        places = torch.tensor(starts, dtype=torch.int32, device=device)
        seen = torch.tensor(used, dtype=torch.int32, device=device) if lengths else None
        q, k, v = (x.to(device) for x in rows)
        most = max(LENGTHS)
        y, sums, *_ = _efficient(
            q, k, v, None, places, places, most, most, 0.0, int(causal), True, seqlen_k=seen
        )
        return [y, *(sums[i, :, :n] for i, n in enumerate(LENGTHS))]

    return case


def _one_by_one(
    pieces: Iterable[tuple[Tensor, ...]], counts: Sequence[int], causal: bool
) -> list[Tensor]:
    outputs, sums = [], []
    for (q, k, v), count in zip(pieces, counts, strict=True):
        q, k, v = q.transpose(0, 1), k[:count].transpose(0, 1), v[:count].transpose(0, 1)
        logits = q @ k.mT / 8**0.5
        if causal:
            hidden = torch.ones(logits.shape[1:], dtype=torch.bool).triu(1)
            logits = logits.masked_fill(hidden, -torch.inf)
        outputs.append((logits.softmax(-1) @ v).transpose(0, 1))
        sums.append(logits.logsumexp(-1))
    return [torch.cat(outputs)[None], *sums]


def _packed_gradient(device: torch.device) -> Tensors:
    """Attention over nested sequences, with gradients."""
    q, k, v = (
        values(sum(LENGTHS), 2 * n, 8, kind=KINDS[0])[:, :2].to(device).requires_grad_()
        for n in (1, 2, 3)
    )
    if device.type == "cpu":
        parts = [[y.transpose(0, 1) for y in x.split(LENGTHS)] for x in (q, k, v)]
        outs = [F.scaled_dot_product_attention(*part) for part in zip(*parts, strict=True)]
        y = torch.cat([out.transpose(0, 1) for out in outs])
    else:
        offsets = torch.tensor([0, *LENGTHS]).cumsum(0).to(device)
        nested = [_nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in (q, k, v)]
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
            y = F.scaled_dot_product_attention(*nested).transpose(1, 2).values()
    weight = torch.arange(1.0, 1 + y.numel()).view(y.shape).to(device) / y.numel()
    return [y.detach(), *torch.autograd.grad(y, (q, k, v), weight)]


CASES: dict[str, Case] = {
    **{f"attention {k} {w}": _attention(k, w) for k in KINDS for w in (32, 12)},
    **{
        f"encoder {k} {w}{' padded' * padded}{' gelu' * gelu}": _encoder(k, w, padded, gelu)
        for k in KINDS for w in (32, 12) for padded in (False, True) for gelu in (False, True)
    },
    "to padded": _padded,
    "from padded": _unpadded,
    "a dense row": _dense_row,
    "operations": _operations,
    "gradient": _gradient,
    **{f"packed attention {k}": _packed(k, False, False) for k in KINDS},
    "packed causal attention": _packed(KINDS[0], True, False),
    "packed attention, lengths of keys": _packed(KINDS[0], False, True),
    "packed attention's gradient": _packed_gradient,
}  # fmt: skip
