"""Recurrent layers as cuDNN computes them."""

from __future__ import annotations

from typing import Any

import torch
from ops_recurrent import Case, layer

_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "RNN tanh": ("RNN", {}),
    "RNN relu": ("RNN", {"nonlinearity": "relu"}),
    "LSTM projected": ("LSTM", {"proj_size": 3}),
}
_TWO = {"num_layers": 2, "bidirectional": True}
_OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "both ways": {"bidirectional": True},
    "three layers": {"num_layers": 3},
    "two layers, both ways, from states": {**_TWO, "states": True},
    "without biases": {"bias": False, **_TWO},
    "batch first": {"batch_first": True},
    "packed": {"lengths": (7, 4, 2)},
    "packed, two layers, both ways": {"lengths": (7, 4, 2), **_TWO},
    "packed, not sorted, from states": {"lengths": (2, 7, 4), **_TWO, "states": True},
    "packed, all of one length": {"lengths": (7, 7, 7)},
    "float64": {"kind": torch.float64, **_TWO, "states": True},
    "float64, packed": {"kind": torch.float64, "lengths": (7, 4, 2), **_TWO},
    "bfloat16": {"kind": torch.bfloat16},
    "bfloat16, packed": {"kind": torch.bfloat16, "lengths": (7, 4, 2), "bidirectional": True},
    "float16": {"kind": torch.float16},
}


_ALL = {
    f"{kind}, {what}": (name, {**always, **options})
    for kind, (name, always) in _KINDS.items()
    for what, options in _OPTIONS.items()
}


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums are taken in other orders; 16-bit results differ by a rounding or two."""
    close = {
        torch.float64: (1e-9, 1e-9), torch.bfloat16: (8e-3, 8e-3), torch.float16: (1e-3, 1e-3),
    }  # fmt: skip
    rtol, atol = close.get(wanted.dtype, (1e-4, 1e-5))
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)


CASES: dict[str, Case] = {what: layer(name, cudnn=True, **o) for what, (name, o) in _ALL.items()}
#: cuDNN computes 16-bit layers in float.
EXPECTED: dict[str, Case] = {
    what: layer(name, compute=torch.float32, **options)
    for what, (name, options) in _ALL.items()
    if options.get("kind") in (torch.bfloat16, torch.float16)
}
