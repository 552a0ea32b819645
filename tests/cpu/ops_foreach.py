"""Lists of tensors and optimizers: on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SIZES = ((3,), (5, 7), (1,), (64, 33), (70000,), (0,), (2, 65536), (150001,))


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Operations are fused and rounded in other places."""
    close = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 1e-2)}
    floating = wanted.is_floating_point() or wanted.is_complex()
    rtol, atol = close.get(wanted.dtype, (2e-5, 1e-5)) if floating else (0, 0)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def _values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(sizes, generator=generator).to(device, kind)


def _list(device: torch.device, kind: torch.dtype, offset: float = 0.0) -> list[torch.Tensor]:
    return [_values(device, *size, kind=kind) + offset for size in SIZES]


def _unary(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for kind in FLOATS[:2]:
        x = [t.abs() / 8 + 0.1 for t in _list(device, kind)]
        for name in ("sqrt", "exp", "abs", "neg", "reciprocal", "sigmoid", "log", "tanh", "round"):
            results += getattr(torch, f"_foreach_{name}")(x)
            copy = [t.clone() for t in x]
            getattr(torch, f"_foreach_{name}_")(copy)
            results += copy
        torch._foreach_zero_(x)
        results += x
    return results


def _binary(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for kind in FLOATS:
        x, y = _list(device, kind, 3.0), _list(device, kind, 5.0)
        scalars = [0.5 + 0.25 * at for at in range(len(x))]
        for name in ("add", "sub", "mul", "div"):
            function: Any = getattr(torch, f"_foreach_{name}")
            for other in (1.5, scalars, y):
                results += function(x, other)
                copy = [t.clone() for t in x]
                getattr(torch, f"_foreach_{name}_")(copy, other)
                results += copy
        results += torch._foreach_add(x, y, alpha=-0.5)
        results += torch._foreach_mul(x, torch.full((), 2.5, device=device, dtype=kind))
        results += torch._foreach_clamp_min(x, 1.0)
        results += torch._foreach_maximum(x, [t - 1 for t in y])
    for kind in (torch.int64, torch.int32):
        x = [torch.arange(size, device=device).to(kind) for size in (3, 70000)]
        results += [*torch._foreach_add(x, 2), *torch._foreach_mul(x, x)]
    return results


def _pointwise(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for kind in FLOATS[:2]:
        x, a, b = (_list(device, kind, offset) for offset in (0.0, 1.0, 9.0))
        scalars = [0.5 + 0.25 * at for at in range(len(x))]
        for value in (1.0, -0.3, scalars):
            results += torch._foreach_addcmul(x, a, b, value)
            results += torch._foreach_addcdiv(x, a, b, value)
            copy = [t.clone() for t in x]
            torch._foreach_addcdiv_(copy, a, b, value)
            results += copy
        results += torch._foreach_lerp(x, a, 0.3)
        results += torch._foreach_lerp(x, a, [t.sigmoid() for t in b])
    return results


def _copy(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for source in FLOATS:
        for target in FLOATS:
            x, y = _list(device, source), _list(device, target)
            torch._foreach_copy_(y, x)
            results += y
    return results


def _norms(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for kind in FLOATS[:2]:
        x = _list(device, kind)
        results += [*torch._foreach_norm(x, 1), *torch._foreach_norm(x, 2)]
        results += torch._foreach_norm([t for t in x if t.numel()], float("inf"))
        results += torch._foreach_max([t for t in x if t.numel()])
    gradients = []
    for size in SIZES:
        leaf = torch.zeros(size, device=device)
        leaf.grad = _values(device, *size)
        gradients.append(leaf)
    results.append(torch.nn.utils.clip_grad_norm_(gradients, 1.0))
    return results + [leaf.grad for leaf in gradients if leaf.grad is not None]


def _many(device: torch.device) -> Tensors:
    x = [_values(device, 1 + at % 7) for at in range(1000)]
    return [*torch._foreach_mul(x, 2.0), *torch._foreach_norm(x)]


def _optimizer(
    build: Callable[..., torch.optim.Optimizer],
    kinds: Sequence[torch.dtype] = FLOATS[:2],
    **options: Any,
) -> Case:
    """Three steps from the same start with the same gradients."""

    def case(device: torch.device) -> Tensors:
        results: list[torch.Tensor] = []
        for kind in kinds:
            leaves = [torch.nn.Parameter(_values(device, *size, kind=kind)) for size in SIZES]
            optimizer = build(leaves, **options)
            for step in range(3):
                for leaf in leaves:
                    gradient = _values(device, leaf.numel() + step, kind=kind)[step:]
                    leaf.grad = gradient.reshape(leaf.shape)
                optimizer.step()
            results += [leaf.detach() for leaf in leaves]
        return results

    return case


_STYLES: dict[str, dict[str, bool]] = {
    "for each": {"foreach": True},
    "one by one": {"foreach": False},
    "fused": {"fused": True},
}
_OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD with momentum": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.02}),
    "Adam with amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}

CASES: dict[str, Case] = {
    "unary": _unary,
    "binary": _binary,
    "pointwise": _pointwise,
    "copy": _copy,
    "norms": _norms,
    "many tensors": _many,
    "RMSprop": _optimizer(torch.optim.RMSprop, foreach=True),
    "Adagrad": _optimizer(torch.optim.Adagrad, foreach=True),
    **{
        f"{name}, {style}": _optimizer(build, **options, **choice)
        for name, (build, options) in _OPTIMIZERS.items()
        for style, choice in _STYLES.items()
    },
}
