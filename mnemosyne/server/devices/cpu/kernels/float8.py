"""Casts to floats of eight bits.

`float8_copy_kernel_cuda` has a lambda for each type that it copies, and lambdas that take a wider
float: their numbers say what they give.
"""

from __future__ import annotations

import torch

from .operations import Operation, copy

_TYPES = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
#: By the wider float, what its lambdas give, in order; functors of their own give the other types.
_GIVEN = {
    torch.float32: _TYPES[2:],
    torch.float16: _TYPES[1:],
    torch.bfloat16: _TYPES[1:],
}

#: As `operations.CLASSES`.
CLASSES: dict[str, tuple[int, Operation]] = {
    "ConvertToFloat8E4M3fnOp": (1, copy(torch.float8_e4m3fn)),
    "ConvertFloatToFloat8E5M2Op": (1, copy(torch.float8_e5m2, of=(torch.float32,))),
}


def _lambdas(number: int) -> tuple[Operation, ...]:
    casts = [
        copy(given[number - 1], of=(kind,))
        for kind, given in _GIVEN.items()
        if number <= len(given)
    ]
    return (*casts, copy(of=_TYPES)) if number == 1 else tuple(casts)


#: As `operations.NUMBERED`.
NUMBERED: dict[str, tuple[int, dict[int, tuple[Operation, ...]]]] = {
    "float8_copy_kernel_cuda": (-1, {number: _lambdas(number) for number in range(1, 5)}),
}
