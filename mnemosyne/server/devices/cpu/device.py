"""The CPU device: torch operations on the CPU stand in for the GPU's kernels and libraries.

Results depend on the number of threads torch computes with, so that is fixed when the device is
made and never follows the load.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from mnemosyne.server.arena import Chunks
from mnemosyne.server.devices import Description
from mnemosyne.server.devices.cpu import blas, copies, cudnn, hopper, launches, lt
from mnemosyne.server.devices.cpu.kernels import Binder
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.modules import Modules
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import HANDLERS, Effects, Handlers, Layout

_GRANULE = 2 << 20


def create(threads: int) -> CpuDevice:
    """The device that computes."""
    from mnemosyne.server.devices.cpu.kernels.table import bind

    handlers = {
        **HANDLERS, **copies.HANDLERS, **launches.HANDLERS, **blas.HANDLERS, **lt.HANDLERS,
        **cudnn.HANDLERS,
    }  # fmt: skip
    return CpuDevice("CPU device", threads, handlers, bind)


class CpuDevice:
    """Implements ``Device``; ``bind`` finds the function that runs a kernel."""

    def __init__(self, title: str, threads: int, handlers: Handlers, bind: Binder) -> None:
        torch.set_num_threads(threads)
        self._title = f"{title} ({threads} threads)"
        self._modules = Modules(hopper.SM, bind)
        self.handlers = handlers

    def describe(self, memory: int) -> Description:
        """Half of the machine's memory is for clients, unless they were promised more."""
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        total = max(half, memory) // _GRANULE * _GRANULE
        return Description(
            device=self._title,
            memory=total,
            cuda=hopper.CUDA,
            name=hopper.NAME,
            uuid=hopper.UUID,
            properties=hopper.properties(total),
            attributes=hopper.attributes(),
        )

    def active(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    def open(self, number: int, layout: Layout, effects: Effects) -> CpuSession:
        """A new session; its host slot is mapped already."""
        memory = CpuMemory()
        memory.add(layout.host_base, layout.host_bytes)
        chunks = _SeenChunks(effects.chunks, memory, layout.device_base)
        effects = replace(effects, chunks=chunks)
        return CpuSession(number, layout, effects, modules=self._modules, memory=memory)

    def restore(self, session: CpuSession, chunks: list[list[int]], entries: Entries) -> None:
        """The chunks are mapped already."""
        for offset, size in chunks:
            session.memory.add(session.layout.device_base + offset, size)
        session.restore(chunks, entries)
        launches.restore(session, entries)
        cudnn.restore(session, entries)


@dataclass(frozen=True)
class _SeenChunks:
    """Chunks that the session's memory knows of, from after their mapping to before its end."""

    chunks: Chunks
    memory: CpuMemory
    base: int

    def make(self, offset: int, size: int) -> None:
        self.chunks.make(offset, size)
        self.memory.add(self.base + offset, size)

    def drop(self, offset: int, size: int) -> None:
        self.memory.remove(self.base + offset)
        self.chunks.drop(offset, size)
