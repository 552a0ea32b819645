"""An encoder with dropout, trained under bf16 autocast, beside one that drops the same by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from ops_flash import keep, start, values
from torch import Tensor, nn

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

STEPS, DROP = 10, 0.1


def compare(got: Tensor, wanted: Tensor) -> None:
    """Both round activations to eight bits, not always alike: a few errors of 2**-9 in ten steps.

    Another choice in attention alone moves a loss by 2**-6.
    """
    torch.testing.assert_close(got, wanted, rtol=2.0**-11, atol=2.0**-9)


class Choices:
    """What a model on the device drops, in the order of its layers."""

    def __init__(self, model: nn.Module) -> None:
        self._found: list[Tensor] = []
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.register_forward_pre_hook(self._attention)
            elif isinstance(module, nn.Dropout):
                module.register_forward_hook(self._dropout)

    def _attention(self, module: nn.MultiheadAttention, args: tuple[Tensor, ...]) -> None:
        batch, rows = args[0].shape[:2]
        offset = torch.cuda.default_generators[0].get_offset()
        heads = batch * module.num_heads
        self._found.append(keep(0, heads, rows, rows, module.dropout, offset))

    def _dropout(self, module: nn.Dropout, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Where the input is zero the choice makes no difference."""
        self._found.append((output != 0).cpu())

    def take(self, x: Tensor, drop: float) -> Tensor:
        """What is left of a tensor, by the next choice."""
        return x * self._found.pop(0).view(x.shape) / (1 - drop)


class Dropped(nn.Module):
    """Dropout by choices already made."""

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self._choices = choices

    def forward(self, x: Tensor) -> Tensor:
        return self._choices.take(x, DROP)


class Attention(nn.Module):
    """Self-attention, written out; the encoder asks it for `batch_first`."""

    batch_first = True

    def __init__(self, inner: nn.MultiheadAttention, choices: Choices) -> None:
        super().__init__()
        self._inner, self._choices = inner, choices

    def forward(self, x: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        projected = F.linear(x, self._inner.in_proj_weight, self._inner.in_proj_bias)
        heads = (-1, self._inner.num_heads, self._inner.head_dim)
        q, k, v = (part.unflatten(-1, heads[1:]).transpose(1, 2) for part in projected.chunk(3, -1))
        with torch.autocast("cpu", enabled=False):
            weights = (q.double() @ k.double().mT / heads[2] ** 0.5).softmax(-1)
            y = self._choices.take(weights, DROP) @ v.double()
        return self._inner.out_proj(y.to(q.dtype).transpose(1, 2).flatten(2)), None


def _model() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=DROP, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _by_hand(choices: Choices) -> nn.TransformerEncoder:
    model = _model()
    for layer in model.layers:
        layer.self_attn = Attention(layer.self_attn, choices)
        layer.dropout, layer.dropout1, layer.dropout2 = (Dropped(choices) for _ in range(3))
    return model


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    optimizer.zero_grad()
    with torch.autocast(x.device.type, torch.bfloat16):
        y = model(x)
    loss = (y - x.flip(0)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _training(device: torch.device) -> Tensors:
    """The losses of all steps, and the parameters after them."""
    there = torch.device("cuda")
    models: list[nn.Module] = [_model().to(there)]
    inputs = [values(there, 4, 12, 32, kind=torch.float32)]
    choices = Choices(models[0])
    if device.type == "cpu":
        models.append(_by_hand(choices))
        inputs.append(inputs[0].cpu())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.3) for model in models]
    start()
    losses = []
    for _ in range(STEPS):
        both = [_step(*run) for run in zip(models, optimizers, inputs, strict=True)]
        losses.append(both[-1])
    return [torch.stack(losses), *(x.detach() for x in models[-1].parameters())]


CASES: dict[str, Case] = {"training": _training}
