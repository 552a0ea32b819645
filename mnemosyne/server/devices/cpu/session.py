"""A session on the CPU device: what the common session knows, its memory, functions and modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mnemosyne.cubin import Module
from mnemosyne.server.devices.cpu.bound import BoundKernels
from mnemosyne.server.devices.cpu.functions import Function
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.session import Session

if TYPE_CHECKING:
    from mnemosyne.server.devices.cpu.cudnn.graph import Graph


@dataclass(kw_only=True)
class CpuSession(Session):
    """``kernels`` is the device's; the rest is this client's own."""

    kernels: BoundKernels
    memory: CpuMemory = field(default_factory=CpuMemory)
    functions: dict[int, Function] = field(default_factory=dict)
    settings: dict[int, dict[int, int]] = field(default_factory=dict)  # of functions, by attribute
    modules: dict[int, Module | None] = field(default_factory=dict)  # in memory; None: PTX
    last_function: int = 0
    plans: dict[int, Graph] = field(default_factory=dict)  # of cuDNN, by the client's number
