"""What routines of all libraries have in common."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch

from mnemosyne.server.devices.cpu.matrices import Matrix
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Outputs

#: A call's arguments, by the names of its parameters.
Arguments = SimpleNamespace
Routine = Callable[[CpuSession, Arguments], Outputs]


def nothing(s: CpuSession, a: Arguments) -> Outputs:
    """For what makes, sets or ends a handle without more to it."""
    return None


#: Of a linear solver: how it ended, for each matrix.
Solve = Callable[[CpuSession, torch.dtype, Arguments], int | list[int]]

_ENOUGH = 256


def sizes(s: CpuSession, a: Arguments) -> Outputs:
    """How much room a routine needs: none here, but programs allocate what they are told."""
    return (_ENOUGH, 0) if hasattr(a, "computeType") or hasattr(a, "typeA") else (_ENOUGH,)


def matrix(
    s: CpuSession, pointer: int, t: torch.dtype, rows: int, columns: int, leading: int
) -> torch.Tensor:
    """A column-major matrix. Raises CallError for an impossible leading dimension."""
    return Matrix(pointer, t, leading).view(s.memory, rows, columns)


def row(s: CpuSession, pointer: int, t: torch.dtype, count: int) -> torch.Tensor:
    """Elements one behind the other."""
    return s.memory.view(pointer, t, (count,), (1,))
