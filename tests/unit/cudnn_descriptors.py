"""Descriptors of cuDNN's backend API as frames carry them, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch

CODE = {
    torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.int32: 4, torch.bfloat16: 9,
    torch.bool: 11,
}  # fmt: skip
Raw = list[Any]


def enum(value: int, kind: int = 1) -> tuple[int, bytes]:
    return kind, struct.pack("<i", value)


def integers(*values: int) -> tuple[int, bytes]:
    return 3, struct.pack(f"<{len(values)}q", *values)


def real(value: float) -> tuple[int, bytes]:
    return 4, struct.pack("<f", value)


def nested(*descriptors: Raw) -> tuple[int, list[Raw]]:
    return 15, list(descriptors)


def descriptor(kind: int, attributes: dict[int, tuple[int, Any]]) -> Raw:
    return [kind, [[name, form, value] for name, (form, value) in attributes.items()]]


def tensor(
    number: int, like: torch.Tensor, virtual: bool = False, by_value: bool = False,
    attributes: dict[int, tuple[int, Any]] | None = None,
) -> Raw:  # fmt: skip
    """``attributes``: what to have otherwise than ``like``."""
    own = {
        900: integers(16), 901: enum(CODE[like.dtype]), 902: integers(*like.shape),
        903: integers(*like.stride()), 906: integers(number),
        907: (2, bytes([virtual])), 908: (2, bytes([by_value])),
    }  # fmt: skip
    return descriptor(17, {**own, **(attributes or {})})


def movement(
    before: Sequence[int], after: Sequence[int], strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1), mode: int = 1,
) -> Raw:  # fmt: skip
    return descriptor(1, {
        100: enum(0), 101: enum(mode, 7), 102: integers(*dilations), 103: integers(*strides),
        104: integers(*after), 105: integers(*before), 106: integers(len(before)),
    })  # fmt: skip


#: Kind of operation, its first attribute (alpha), and those of x, w and y.
FORWARD = 10, 700, (704, 703, 705)
FILTER_GRADIENT = 11, 712, (716, 715, 717)
IMAGE_GRADIENT = 12, 706, (710, 709, 711)


def convolution(
    which: tuple[int, int, tuple[int, int, int]], moves: Raw, tensors: Sequence[Raw],
    alpha: float = 1, beta: float = 0,
) -> Raw:  # fmt: skip
    kind, first, names = which
    operands = {name: nested(t) for name, t in zip(names, tensors, strict=True)}
    own = {first: real(alpha), first + 1: real(beta), first + 2: nested(moves)}
    return descriptor(kind, {**own, **operands})


def pointwise(
    mode: int, x: Raw, y: Raw, b: Raw | None = None, t: Raw | None = None,
    how: dict[int, tuple[int, Any]] | None = None,
) -> Raw:  # fmt: skip
    """``how``: more attributes of the mode."""
    own = descriptor(0, {0: enum(mode, 14), 1: enum(0), **(how or {})})
    tensors = {750: own, 751: x, 752: b, 753: y, 758: t}
    return descriptor(13, {name: nested(v) for name, v in tensors.items() if v})


def graph(*operations: Raw) -> Raw:
    return descriptor(15, {800: (0, b""), 801: nested(*operations)})


def heuristic(of: Raw) -> Raw:
    return descriptor(4, {200: enum(3, 8), 201: nested(of)})


def plan(of: Raw) -> Raw:
    engine = descriptor(2, {1300: nested(of), 1301: integers(0)})
    return descriptor(5, {400: (0, b""), 401: nested(descriptor(3, {300: nested(engine)}))})
