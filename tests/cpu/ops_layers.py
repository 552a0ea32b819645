"""Layers, losses, optimizers: values and gradients of what training programs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = Callable[[torch.device], Sequence[Tensor]]


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _tokens(*shape: int, below: int = 11, seed: int = 0) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums over many elements are taken in another order than on the CPU."""
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def layer(make: Callable[[], nn.Module], *inputs: Tensor) -> Case:
    """The output of a module, and the gradients of its parameters and inputs."""

    def run(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        module = make().to(device)
        there = [x.detach().clone().to(device) for x in inputs]
        leaves = [x.requires_grad_() for x in there if x.is_floating_point()]
        out = module(*there)
        (out * torch.linspace(-1, 1, out.numel()).view(out.shape).to(device)).sum().backward()
        return [
            out.detach(),
            *(x.grad for x in [*leaves, *module.parameters()] if x.grad is not None),
        ]

    return run


def function(compute: Callable[..., Tensor], *inputs: Tensor) -> Case:
    """As ``layer``, for a function."""

    class Module(nn.Module):
        def forward(self, *values: Tensor) -> Tensor:
            return compute(*values)

    return layer(Module, *inputs)


def training(optimizer: Callable[..., torch.optim.Optimizer], **options: object) -> Case:
    """The losses of ten steps with clipped gradients."""

    def run(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))
        model = model.to(device)
        optimizing = optimizer(model.parameters(), **options)
        x, y = _numbers(32, 8).to(device), _tokens(32, below=4).to(device)
        losses = []
        for _ in range(10):
            loss = F.cross_entropy(model(x), y)
            optimizing.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizing.step()
            losses.append(loss.detach())
        return losses

    return run


_X = _numbers(4, 6, 8)
_POSITIVE = _X.abs() + 0.1
_WIDE = _numbers(5, 3000)
_OPTIM = torch.optim

CASES: dict[str, Case] = {
    "linear": layer(lambda: nn.Linear(8, 5), _X),
    "linear without bias": layer(lambda: nn.Linear(8, 5, bias=False), _X),
    "linear of one row": layer(lambda: nn.Linear(8, 5), _X[0, :1]),
    "linear, large": layer(lambda: nn.Linear(512, 300), _numbers(129, 512)),
    "bilinear": layer(lambda: nn.Bilinear(8, 8, 3), _X, _numbers(4, 6, 8, seed=1)),
    "embedding": layer(lambda: nn.Embedding(11, 8), _tokens(4, 7)),
    "embedding with padding": layer(lambda: nn.Embedding(11, 8, padding_idx=0), _tokens(4, 7)),
    "embedding, many tokens": layer(
        lambda: nn.Embedding(401, 8), _tokens(40, 100, below=401)
    ),
    "layer norm": layer(lambda: nn.LayerNorm(8), _X),
    "layer norm, large": layer(lambda: nn.LayerNorm(3000), _WIDE),
    "layer norm without weights": layer(lambda: nn.LayerNorm(8, elementwise_affine=False), _X),
    "layer norm over two dimensions": layer(lambda: nn.LayerNorm((6, 8)), _X),
    "rms norm": layer(lambda: nn.RMSNorm(8), _X),
    **{
        f"{name} along {dim}": function(lambda x, f=f, d=dim: f(x, d), _X)
        for name, f in [("softmax", torch.softmax), ("log_softmax", torch.log_softmax)]
        for dim in (0, 1, 2)
    },
    "softmax, wide": function(lambda x: x.softmax(-1), _WIDE),
    "log_softmax, wide": function(lambda x: x.log_softmax(-1), _WIDE),
    **{
        name: function(getattr(F, name), _X)
        for name in (
            "relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "softplus", "hardtanh",
            "hardswish", "hardsigmoid", "logsigmoid", "mish", "relu6", "selu", "softsign",
        )
    },
    "gelu by tanh": function(lambda x: F.gelu(x, approximate="tanh"), _X),
    "glu": function(F.glu, _X),
    "prelu": layer(nn.PReLU, _X),
    "cross entropy": function(lambda x: F.cross_entropy(x[:, 0], _t(x, 4, 8)), _X),
    "cross entropy, smoothed": function(
        lambda x: F.cross_entropy(x[:, 0], _t(x, 4, 8), label_smoothing=0.1), _X
    ),
    "cross entropy, ignoring": function(
        lambda x: F.cross_entropy(x[:, 0], _t(x, 4, 8), ignore_index=3, reduction="sum"), _X
    ),
    "cross entropy, weighted": function(
        lambda x: F.cross_entropy(x[:, 0], _t(x, 4, 8), weight=x.detach()[0, 0].abs()), _X
    ),
    "cross entropy of pixels": function(
        lambda x: F.cross_entropy(x, torch.zeros(4, 8, dtype=torch.long, device=x.device)), _X
    ),
    "nll without reduction": function(
        lambda x: F.nll_loss(x[:, 0], _t(x, 4, 8), reduction="none"), _X
    ),
    "mse": function(lambda x: F.mse_loss(x, x.detach() * 2), _X),
    "l1": function(lambda x: F.l1_loss(x, x.detach() * 2 - 1), _X),
    "smooth l1": function(lambda x: F.smooth_l1_loss(x, x.detach() * 2 - 1), _X),
    "huber": function(lambda x: F.huber_loss(x, x.detach() * 2 - 1), _X),
    "binary cross entropy": function(
        lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0) * 1.0), _X
    ),
    "binary cross entropy of logits": function(
        lambda x: F.binary_cross_entropy_with_logits(x, (x > 0) * 1.0), _X
    ),
    "kl": function(lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1)), _X),
    "cosine similarity": function(lambda x: F.cosine_similarity(x, x.flip(0), -1), _X),
    "masked fill": function(lambda x: x.masked_fill(x > 0, -1e9).softmax(-1), _X),
    "where": function(lambda x: torch.where(x > 0, x * 2, x.exp()), _X),
    "tril": function(torch.tril, _X),
    "triu": function(lambda x: x.triu(1), _X),
    "cat": function(lambda x: torch.cat([x, x * 2, x[:, :1]], 1), _X),
    "stack": function(lambda x: torch.stack([x, x * 2], 1), _X),
    "gather": function(lambda x: x.gather(2, _t(x, 4, 6, 3, below=8)), _X),
    "index": function(lambda x: x[:, _t(x, 5, below=6)], _X),
    "index select": function(lambda x: x.index_select(1, _t(x, 5, below=6)), _X),
    "slices": function(lambda x: x[1:, ::2].transpose(0, 1) * x[:3, 1::2].transpose(0, 1), _X),
    "bmm": function(lambda x: x @ x.transpose(1, 2), _X),
    "matmul of a vector": function(lambda x: x @ x[0, 0], _X),
    "einsum": function(lambda x: torch.einsum("bij,bkj->ik", x, x), _X),
    "baddbmm": function(lambda x: torch.baddbmm(x[:, :, :6], x, x.mT, beta=0.5, alpha=2), _X),
    "attention": function(
        lambda x: (x @ x.mT / 8**0.5).masked_fill(_causal(x), float("-inf")).softmax(-1) @ x, _X
    ),
    "reductions": function(
        lambda x: torch.stack([x.sum(), x.mean(), x.max(), x.min(), x.std(), x.norm()]),
        _numbers(3, 4),
    ),
    "reductions along": function(
        lambda x: torch.cat([x.sum(1), x.mean(1), x.amax(1), x.var(1), x.logsumexp(1)]), _X
    ),
    "cumsum": function(lambda x: x.cumsum(1), _X),
    "pow": function(lambda x: x**2 + x**3 + (x**2 + 1) ** 0.5 + 2**x, _X),
    "logs and roots": function(
        lambda x: x.log() + x.sqrt() + x.rsqrt() + x.reciprocal() + x.log1p(), _POSITIVE
    ),
    "clamp": function(lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp(max=0.2), _X),
    "maximum": function(lambda x: torch.maximum(x, x.flip(0)), _X),
    "pad": function(lambda x: F.pad(x, (1, 2, 0, 1)), _X),
    "unfold and fold": function(lambda x: x.unfold(2, 3, 2), _X),
    "sgd": training(_OPTIM.SGD, lr=0.1),
    "sgd with momentum": training(
        _OPTIM.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "sgd, one by one": training(_OPTIM.SGD, lr=0.1, momentum=0.9, foreach=False),
    "adam": training(_OPTIM.Adam),
    "adam, one by one": training(_OPTIM.Adam, foreach=False),
    "adam with amsgrad": training(_OPTIM.Adam, amsgrad=True),
    "adamw": training(_OPTIM.AdamW),
    "adamw, one by one": training(_OPTIM.AdamW, foreach=False),
    "rmsprop": training(_OPTIM.RMSprop),
    "adagrad": training(_OPTIM.Adagrad),
}  # fmt: skip


def _t(x: Tensor, *shape: int, below: int | None = None) -> Tensor:
    """Tokens where x is: the last number is their bound, if ``below`` is not given."""
    if below is None:
        *shape, below = shape
    return _tokens(*shape, below=below).to(x.device)


def _causal(x: Tensor) -> Tensor:
    return torch.ones(6, 6, dtype=torch.bool, device=x.device).triu(1)
