"""Recurrent layers without cuDNN, and connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums are taken in other orders; in bfloat16 a step's state is rounded to 8 bits."""
    close = {torch.bfloat16: (2e-2, 2e-2), torch.float64: (1e-9, 1e-9)}
    rtol, atol = close.get(wanted.dtype, (1e-4, 1e-5))
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(
    name: str, kind: torch.dtype = torch.float32, lengths: Sequence[int] = (),
    cudnn: bool = False, states: bool = False, compute: torch.dtype | None = None, **options: Any,
) -> Case:  # fmt: skip
    """Outputs, last states and all gradients of a layer of torch.nn.

    ``states``: to start from. ``compute``: in which type to compute, with the values of ``kind``.
    """
    wide = compute or kind

    def case(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        with torch.backends.cudnn.flags(enabled=cudnn):
            module = getattr(nn, name)(6, 5, **options).to(device, kind).to(wide)
            x = _numbers(7, 3, 6).to(device, kind).to(wide).requires_grad_()
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False) if lengths else x
            starts = _states(name, options) if states else []
            starts = [s.to(device, kind).to(wide).requires_grad_() for s in starts]
            y, state = module(packed, *([starts[0] if len(starts) == 1 else starts] * states))
            y = y.data if lengths else y
            if cudnn and device.type == "cuda":
                assert _is_made_by_cudnn(y), y.grad_fn
            results = [y, *(state if isinstance(state, tuple) else (state,))]
            loss = sum(
                (r * torch.linspace(-1, 1, r.numel()).view(r.shape).to(kind).to(r)).sum()
                for r in results
            )
            loss.backward()
        leaves = (x, *starts, *module.parameters())
        return [t.to(kind) for t in (*(r.detach() for r in results), *(p.grad for p in leaves))]

    return case


def _states(name: str, options: dict[str, Any]) -> list[Tensor]:
    """First states for a layer of three sequences."""
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    sizes = [options.get("proj_size") or 5, 5] if name == "LSTM" else [5]
    return [_numbers(count, 3, size, seed=size) for size in sizes]


def _is_made_by_cudnn(y: Tensor) -> bool:
    """Whether it is cuDNN's result, or a view of it."""
    function: Any = y.grad_fn
    while function is not None and "Cudnn" not in function.name():
        function = function.next_functions[0][0]
    return function is not None


def cell(name: str, **options: Any) -> Case:
    """A cell run three times, on a state that is no contiguous tensor."""

    def case(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        module = getattr(nn, name)(6, 5, **options).to(device)
        x = _numbers(3, 6).to(device).requires_grad_()
        start = _numbers(3, 10).to(device).requires_grad_()
        pair = name == "LSTMCell"
        state: Any = (start[:, ::2], start[:, 1::2]) if pair else start[:, ::2]
        for _ in range(3):
            state = module(x, state)
        results = list(state) if pair else [state]
        loss = sum((r * torch.linspace(-1, 1, 15).view(3, 5).to(r)).sum() for r in results)
        loss.backward()
        return [*(r.detach() for r in results), *(p.grad for p in (x, start, *module.parameters()))]

    return case


def ctc(
    sizes: tuple[int, int, int], inputs: Sequence[int], lengths: Sequence[int], *,
    joined: bool = False, kind: torch.dtype = torch.float32, index: torch.dtype = torch.int64,
    repeat: bool = False, **options: Any,
) -> Case:  # fmt: skip
    """The loss of (time, sequence, label) and its gradient; targets in rows, or joined."""

    def case(device: torch.device) -> list[Tensor]:
        x = _numbers(*sizes).to(device, kind).requires_grad_()
        blank = options.get("blank", 0)
        generator = torch.Generator().manual_seed(1)
        choices = [label for label in range(sizes[2]) if label != blank][: 2 if repeat else None]
        shape = (sizes[1], max(lengths))
        picked = torch.randint(len(choices), shape, generator=generator)
        targets = torch.tensor(choices)[picked].to(index)
        if joined:
            targets = torch.cat([row[:n] for row, n in zip(targets, lengths, strict=True)])
        ends = torch.tensor(inputs), torch.tensor(lengths)
        y = F.ctc_loss(x.log_softmax(2), targets.to(device), *ends, **options)
        (y * torch.linspace(1, 2, y.numel()).view(y.shape).to(y)).sum().backward()
        return [y.detach(), x.grad]

    return case


_LAYERS = ("LSTM", "GRU", "RNN")

CASES: dict[str, Case] = {
    **{name: layer(name) for name in _LAYERS},
    **{
        f"{name}, {what}": layer(name, **options)
        for name in _LAYERS
        for what, options in {
            "two layers, both ways": {"num_layers": 2, "bidirectional": True},
            "without biases": {"bias": False},
            "batch first": {"batch_first": True},
            "packed": {"lengths": (7, 4, 2)},
            "packed, both ways": {"lengths": (7, 4, 2), "bidirectional": True},
            "bfloat16": {"kind": torch.bfloat16},
            "float64": {"kind": torch.float64},
        }.items()
    },
    "LSTM, projected": layer("LSTM", proj_size=3),
    **{name: cell(name) for name in ("LSTMCell", "GRUCell", "RNNCell")},
    **{f"{name} without biases": cell(name, bias=False) for name in ("LSTMCell", "GRUCell")},
    "ctc": ctc((12, 3, 6), (12, 9, 12), (4, 2, 3)),
    "ctc, repeated labels": ctc((12, 4, 6), (12, 9, 12, 8), (4, 2, 3, 4), repeat=True),
    "ctc, joined targets": ctc((12, 3, 6), (12, 9, 12), (4, 2, 3), joined=True),
    "ctc, another blank": ctc((12, 3, 6), (12, 9, 12), (4, 2, 3), blank=3, reduction="none"),
    "ctc, an empty target": ctc((12, 3, 6), (12, 9, 12), (4, 0, 3), reduction="none"),
    "ctc, impossible": ctc((3, 3, 6), (3, 3, 3), (5, 1, 2), reduction="sum", zero_infinity=True),
    "ctc, float64": ctc((12, 3, 6), (12, 9, 12), (4, 2, 3), kind=torch.float64),
    "ctc, many times": ctc((240, 5, 30), (240, 200, 11, 240, 77), (40, 31, 4, 17, 30)),
    "ctc, many labels": ctc((40, 3, 3000), (40, 33, 11), (20, 11, 4), reduction="sum"),
    "ctc, many times, joined": ctc(
        (240, 3, 30), (240, 200, 11), (40, 31, 4), joined=True, repeat=True, blank=5
    ),
}
