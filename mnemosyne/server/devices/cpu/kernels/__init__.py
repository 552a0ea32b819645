"""PyTorch's CUDA kernels, by demangled name and parameter layout, as torch CPU operations.

Each file holds one family. A family is a table from a name pattern to a *binder*: it reads the
template arguments out of the kernel's name once and returns the function that runs a launch. The
package sees bytes and tensors only; it must never import sockets, asyncio, ctypes or the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class UnsupportedKernel(Exception):
    """The CPU device has no implementation of this kernel, or not for these arguments."""


class Memory(Protocol):
    """The memory of one session, as tensors."""

    def view(
        self, ptr: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
    ) -> torch.Tensor:
        """A tensor over device memory at ``ptr``; ``sizes`` and ``strides`` in elements.

        Raises IllegalAddress (of the device) when any element lies outside the session's memory.
        """


class KernelInfo(Protocol):
    """What a family needs to know of a kernel (``mnemosyne.cubin.Kernel`` is one)."""

    @property
    def name(self) -> str: ...  # mangled
    @property
    def demangled(self) -> str: ...
    @property
    def params(self) -> tuple[tuple[int, int], ...]: ...  # (offset, size) in bytes, in order


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: ``args`` is the packed parameter buffer, laid out by ``kernel.params``."""

    kernel: KernelInfo
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: bytes
    memory: Memory


Run = Callable[[Launch], None]
Binder = Callable[[KernelInfo], Run]
Family = Sequence[tuple[re.Pattern[str], Binder]]
