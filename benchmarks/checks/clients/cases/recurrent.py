"""Recurrent layers and the loss that is used with them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from case import (
    Setting,
    Step,
    Tensors,
    autocast,
    case,
    cases,
    pick,
    randint,
    randn,
    with_grads,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
VARIANTS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch_first": {"batch_first": True},
    "without bias": {"bias": False},
    "dropout": {"num_layers": 2, "dropout": 0.3},
}
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


@cases({
    **{f"{kind} {name}": (kind, one, None) for kind in KINDS for name, one in VARIANTS.items()},
    **{f"{kind} {word}": (kind, VARIANTS["bidirectional"], amp)
       for kind in KINDS for word, amp in AMP.items()},
    "lstm proj_size": ("lstm", {"num_layers": 2, "proj_size": 8}, None),
    "rnn relu": ("rnn", {"nonlinearity": "relu"}, None),
})  # fmt: skip
def layers(kind: str, settings: dict[str, Any], amp: torch.dtype | None) -> Step:
    if Setting.tiny:  # a CPU drops others than a GPU
        settings = {**settings, "dropout": 0.0}
    layer = KINDS[kind](16, pick(64, 16), **settings).to(Setting.device)
    x = randn(12, 8, 16)

    def step() -> Tensors:
        with autocast(amp):
            return with_grads(lambda x: layer(x)[0], x, parameters=tuple(layer.parameters()))

    return step


@cases({f"{kind} packed sequences": (kind, False) for kind in KINDS})
@cases({f"{kind} packed sequences, sorted": (kind, True) for kind in KINDS})
def packed(kind: str, is_sorted: bool) -> Step:
    layer = KINDS[kind](16, 24, num_layers=2, bidirectional=True).to(Setting.device)
    x = randn(12, 4, 16)
    lengths = torch.tensor([12, 9, 5, 3] if is_sorted else [5, 12, 3, 9])

    def forward(x: Tensor) -> Tensor:
        sequence = pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)
        return pad_packed_sequence(layer(sequence)[0])[0]

    return lambda: with_grads(forward, x, parameters=tuple(layer.parameters()))


@cases({f"{kind} evaluation, its state carried on": (kind,) for kind in KINDS})
def evaluation(kind: str) -> Step:
    layer = KINDS[kind](16, 24, num_layers=2).to(Setting.device).eval()
    x = randn(12, 4, 16)

    def step() -> Tensors:
        with torch.no_grad():
            first, state = layer(x[:6])
            second, state = layer(x[6:], state)
        return [first, second, *(state if isinstance(state, tuple) else [state])]

    return step


@cases({"LSTMCell": (nn.LSTMCell,), "GRUCell": (nn.GRUCell,), "RNNCell": (nn.RNNCell,)})
def cell(make: type[nn.RNNCellBase]) -> Step:
    layer = make(16, 24).to(Setting.device)
    x = randn(4, 16)

    def forward(x: Tensor) -> Tensor:
        state = layer(x)
        return state[0] if isinstance(state, tuple) else state

    return lambda: with_grads(forward, x, parameters=tuple(layer.parameters()))


@cases({f"{kind} training": (kind,) for kind in KINDS})
def training(kind: str) -> Step:
    """The optimizer writes the weights that cuDNN keeps in one piece."""
    layer = KINDS[kind](16, 24, num_layers=2).to(Setting.device)
    head = nn.Linear(24, 5).to(Setting.device)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    x, y = randn(12, 4, 16), randint(5, 12 * 4)

    def step() -> Tensors:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(layer(x)[0]).flatten(0, 1), y)
        loss.backward()
        optimizer.step()
        return [loss]

    return step


@case("lstm without cuDNN")
def without_cudnn() -> Tensors:
    with torch.backends.cudnn.flags(enabled=False):
        layer = nn.LSTM(16, 24, num_layers=2).to(Setting.device)
        parameters = tuple(layer.parameters())
        return with_grads(lambda x: layer(x)[0], randn(12, 4, 16), parameters=parameters)


@case("ctc loss, cuDNN's")
def ctc_of_cudnn() -> Tensors:
    """Targets that PyTorch takes it for: of 32 bits, on the CPU, under inputs of full length."""
    lengths = torch.tensor([6, 5, 4, 3], dtype=torch.int32)
    targets = torch.randint(1, 10, (18,), dtype=torch.int32)
    return ctc(targets, torch.full((4,), 20, dtype=torch.int32), lengths)


@case("ctc loss, PyTorch's own")
def ctc_of_pytorch() -> Tensors:
    targets = torch.randint(1, 10, (4, 6)).to(Setting.device)
    return ctc(targets, torch.tensor([20, 18, 15, 20]), torch.tensor([6, 5, 4, 3]))


def ctc(targets: Tensor, inputs: Tensor, lengths: Tensor) -> Tensors:
    def loss(x: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(2), targets, inputs, lengths, reduction="none")

    return with_grads(loss, randn(20, 4, 10))
