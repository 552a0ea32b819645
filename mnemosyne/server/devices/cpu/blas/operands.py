"""What routines of cuBLAS are given: types, vectors, triangles, places for scalars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.matrices import pack_scalar, scalar
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Outputs

Scalar = bytes | int  # from the host, or a pointer to device memory
Routine = Callable[..., Outputs]

_ELEMENTS = {
    "S": (torch.float32, torch.float32), "D": (torch.float64, torch.float64),
    "C": (torch.complex64, torch.float32), "Z": (torch.complex128, torch.float64),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a routine's matrices, the real one beside it, and that of its scalars."""

    element: torch.dtype
    real: torch.dtype
    scale: torch.dtype

    @classmethod
    def of(cls, element: str, letters: str) -> Type:
        """``letters`` as in the routine's name; CS and ZD: complex, with real scalars."""
        found, real = _ELEMENTS[element]
        return cls(found, real, real if letters in ("Cs", "Zd") else found)


@dataclass(frozen=True, slots=True)
class Vector:
    """n elements of device memory; ``backwards``: the first one is the last in memory."""

    memory: torch.Tensor
    backwards: bool

    def get(self) -> torch.Tensor:
        return self.memory.flip(0) if self.backwards else self.memory

    def put(self, value: torch.Tensor) -> None:
        self.memory.copy_(value.flip(0) if self.backwards else value)


def vector(s: CpuSession, pointer: int, dtype: torch.dtype, n: int, step: int) -> Vector:
    """Raises CallError for a step of 0 and for memory that is not the session's."""
    if step == 0:
        raise CallError(INVALID_VALUE, "a vector with a step of 0")
    return Vector(s.memory.view(pointer, dtype, (n,), (abs(step),)), step < 0)


def give(memory: CpuMemory, place: int, value: torch.Tensor) -> Outputs:
    """Puts a result to its place in device memory, or into the reply when that is 0."""
    data: Any = value.resolve_conj().reshape(1).view(torch.uint8).numpy().tobytes()
    if place == 0:
        return (data,)
    memory.write(place, data)
    return None


def change(
    memory: CpuMemory, places: tuple[Scalar, ...], values: tuple[Any, ...],
    dtypes: tuple[torch.dtype, ...],
) -> Outputs:  # fmt: skip
    """New values for scalars: in device memory, or in the reply where they came from the host."""
    new = [pack_scalar(value, dtype) for value, dtype in zip(values, dtypes, strict=True)]
    if all(isinstance(place, bytes) for place in places):
        return tuple(new)
    for place, data in zip(places, new, strict=True):
        if not isinstance(place, int):
            raise CallError(INVALID_VALUE, "scalars of one call in host and in device memory")
        memory.write(place, data)
    return None


def read(s: CpuSession, dtype: torch.dtype, *values: Scalar) -> tuple[Any, ...]:
    return tuple(scalar(s.memory, value, dtype) for value in values)


LOWER, UPPER = 0, 1  # cublasFillMode_t
_UNIT = 1  # cublasDiagType_t


def triangle(matrix: torch.Tensor, uplo: int) -> torch.Tensor:
    """One triangle, the rest zero."""
    return torch.tril(matrix) if uplo == LOWER else torch.triu(matrix)


def put_triangle(matrix: torch.Tensor, uplo: int, value: torch.Tensor) -> None:
    """Stores one triangle of ``value``; the other one of ``matrix`` is nobody's."""
    mask = triangle(torch.ones(matrix.shape, dtype=torch.bool), uplo)
    matrix.copy_(torch.where(mask, value, matrix))


def whole(matrix: torch.Tensor, uplo: int, hermitian: bool) -> torch.Tensor:
    """The symmetric or Hermitian matrix whose triangle is stored."""
    half = triangle(matrix, uplo)
    other = half.mH if hermitian else half.mT
    diagonal = half.diagonal()
    full = half + other - torch.diag(diagonal)
    if hermitian and matrix.is_complex():
        full.diagonal().copy_(diagonal.real)
    return full


def operated(matrix: torch.Tensor, op: int) -> torch.Tensor:
    """op(matrix); ``op`` is a cublasOperation_t."""
    return (matrix, matrix.mT, matrix.mH)[op]


def triangular(matrix: torch.Tensor, uplo: int, op: int, diag: int) -> torch.Tensor:
    """op of a triangular matrix; with a unit diagonal, the stored one is not read."""
    half = triangle(matrix, uplo)
    if diag == _UNIT:
        half.diagonal().fill_(1)
    return operated(half, op)


def check_choices(**choices: int) -> None:
    """Raises CallError for a value that no enumeration of cuBLAS has."""
    for name, value in choices.items():
        if value not in (0, 1):
            raise CallError(INVALID_VALUE, f"{name} is {value}, which cuBLAS does not know")
