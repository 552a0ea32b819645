"""Recurrent layers and the loss that is used with them."""

import torch
import torch.nn.functional as F
from case import Setting, case, pick, randint, randn, with_grads
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
VARIANTS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch_first": {"batch_first": True},
    "without bias": {"bias": False},
    "dropout": {"num_layers": 2, "dropout": 0.3},
    "proj_size": {"proj_size": 8},
}
AMP = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def recurrent(kind, settings, amp):
    if Setting.tiny:
        settings = {**settings, "dropout": 0.0}
    layer = KINDS[kind](16, pick(64, 16), **settings).to(Setting.device)
    x = randn(12, 8, 16)

    def step():
        with torch.autocast(Setting.device, amp or torch.bfloat16, enabled=amp is not None):
            return with_grads(lambda x: layer(x)[0], x, params=tuple(layer.parameters()))

    return step


for kind in KINDS:
    for variant, settings in VARIANTS.items():
        if variant != "proj_size" or kind == "lstm":
            case(f"{kind} {variant}", kind, settings, None)(recurrent)
    case(f"{kind} bf16", kind, VARIANTS["bidirectional"], AMP["bf16"])(recurrent)
    case(f"{kind} fp16", kind, VARIANTS["two layers"], AMP["fp16"])(recurrent)


@case("rnn relu")
def relu():
    return recurrent("rnn", {"nonlinearity": "relu"}, None)


@case("lstm packed sequences", "lstm")
@case("gru packed sequences", "gru")
@case("rnn packed sequences", "rnn")
def packed(kind):
    layer = KINDS[kind](16, 24, num_layers=2, bidirectional=True).to(Setting.device)
    x, lengths = randn(12, 4, 16), torch.tensor([5, 12, 3, 9])

    def forward(x):
        sequence = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pad_packed_sequence(layer(sequence)[0])[0]

    return lambda: with_grads(forward, x, params=tuple(layer.parameters()))


@case("lstm inference with its state", "lstm")
@case("gru inference with its state", "gru")
def inference(kind):
    layer = KINDS[kind](16, 24, num_layers=2).to(Setting.device).eval()
    x = randn(12, 4, 16)
    with torch.no_grad():
        first, state = layer(x[:6])
        second, state = layer(x[6:], state)
    return [first, second, *(state if isinstance(state, tuple) else [state])]


@case("lstm, gru and rnn cells")
def cells():
    found = []
    for make in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        cell = make(16, 24).to(Setting.device)
        x = randn(4, 16)
        first = (lambda x: cell(x)[0]) if make is nn.LSTMCell else cell  # noqa: B023
        found += with_grads(first, x, params=tuple(cell.parameters()))
    return found


@case("weights changed between steps")
def changed():
    """A training: cuDNN's flat weights are written by the optimizer."""
    layer = nn.LSTM(16, 24, num_layers=2).to(Setting.device)
    head = nn.Linear(24, 5).to(Setting.device)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    x, y = randn(12, 4, 16), randint(5, 12 * 4)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(layer(x)[0]).flatten(0, 1), y)
        loss.backward()
        optimizer.step()
        return [loss]

    return step


def ctc(targets_on_cpu):
    x = randn(20, 4, 10)
    lengths = torch.tensor([6, 5, 4, 3])
    targets = torch.randint(1, 10, (int(lengths.sum()),))
    if targets_on_cpu:  # what cuDNN's is taken for
        targets = targets.int()
        inputs, lengths = torch.full((4,), 20, dtype=torch.int32), lengths.int()
    else:
        targets, inputs = targets.to(Setting.device), torch.tensor([20, 18, 15, 20])

    def loss(x):
        return F.ctc_loss(x.log_softmax(2), targets, inputs, lengths, reduction="none")

    return with_grads(loss, x)


case("ctc loss, cuDNN's", True)(ctc)
case("ctc loss, PyTorch's own", False)(ctc)
