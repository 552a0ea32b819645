"""The CPU device: torch operations on the CPU stand in for the GPU's kernels and libraries.

Results depend on the number of threads torch computes with, so that is fixed when the device is
made and never follows the load.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from mnemosyne import _native
from mnemosyne.server import graphs, ipc
from mnemosyne.server.arena import Chunks
from mnemosyne.server.devices import Description, Fault
from mnemosyne.server.devices.cpu import blas, copies, cudnn, hopper, launches, libraries, lt
from mnemosyne.server.devices.cpu.bound import BoundKernels
from mnemosyne.server.devices.cpu.kernels import Binder
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import HANDLERS, Effects, Handlers, Layout

_GRANULE = 2 << 20


def create(threads: int) -> CpuDevice:
    """The device that computes."""
    from mnemosyne.server.devices.cpu.kernels.table import bind

    handlers = {
        **HANDLERS, **copies.HANDLERS, **launches.HANDLERS, **blas.HANDLERS, **lt.HANDLERS,
        **cudnn.HANDLERS, **ipc.HANDLERS, **graphs.HANDLERS, **libraries.HANDLERS,
    }  # fmt: skip
    handlers["graph_launch"] = graphs.launcher(dict(handlers))
    return CpuDevice("CPU device", threads, handlers, bind)


class CpuDevice:
    """Implements ``Device``; ``bind`` finds the function that runs a kernel."""

    def __init__(
        self, title: str, threads: int, handlers: Handlers, bind: Binder,
        executor: Callable[[], _native.Executor | None] = lambda: None,
    ) -> None:  # fmt: skip
        torch.set_num_threads(threads)
        self._executor = executor
        self._entered: list[torch.inference_mode] = []  # kept, for they end when they are freed
        self.chunks = FileChunks()
        self.fault_fd = None
        self._title = f"{title} ({threads} threads)"
        self._kernels = BoundKernels(hopper.SM, bind)
        self.handlers = handlers

    def start(self) -> None:
        """There is nothing to take hold of."""

    def describe(self, memory: int) -> Description:
        """Half of the machine's memory is for clients, unless they were promised more."""
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory > physical:
            raise ValueError(
                f"this machine has {physical >> 20} MiB, {memory >> 20} MiB are promised; "
                "use a smaller --memory-per-client or fewer --clients"
            )
        total = max(physical // 2, memory) // _GRANULE * _GRANULE
        return Description(
            device=self._title,
            memory=total,
            cuda=hopper.CUDA,
            name=hopper.NAME,
            uuid=hopper.UUID,
            properties=hopper.properties(total),
            attributes=hopper.attributes(),
        )

    def enter(self) -> None:
        mode = torch.inference_mode()
        mode.__enter__()
        self._entered.append(mode)

    def open(self, number: int, layout: Layout, effects: Effects) -> CpuSession:
        """A new session; its host slot is mapped already."""
        memory = CpuMemory()
        memory.add(layout.host_base, layout.host_bytes)
        chunks = _SeenChunks(effects.chunks, memory, layout.device_base)
        effects = replace(effects, chunks=chunks)
        return CpuSession(number, layout, effects, kernels=self._kernels, memory=memory)

    def executor(self, session: CpuSession) -> _native.Executor | None:
        return self._executor()

    def close(self, session: CpuSession) -> None:
        """Every frame has been executed by the time its handler returns."""

    def progress(self, session: CpuSession) -> object:
        return None

    def lost(self, code: int) -> None:
        raise NotImplementedError("the CPU is never lost")

    def fault(self) -> Fault:
        raise NotImplementedError("the CPU is never lost")

    def restore(self, session: CpuSession, chunks: list[list[int]], entries: Entries) -> None:
        """The chunks are mapped already."""
        for offset, size in chunks:
            session.memory.add(session.layout.device_base + offset, size)
        session.restore(chunks, entries)
        ipc.restore(session, entries)
        graphs.restore(session, entries)
        launches.restore(session, entries)
        cudnn.restore(session, entries)
        libraries.restore(session, entries)


class FileChunks:
    """Implements ``ChunkMemory`` with memory files."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}  # descriptors by address

    def reserve(self, places: Sequence[Layout]) -> None:
        for place in places:
            _native.reserve(place.device_base, place.device_bytes)

    def make(self, address: int, size: int) -> int:
        fd = _native.create_memory("mnemosyne-chunk", size)
        try:
            self.adopt(fd, address, size)
        except OSError:
            os.close(fd)
            raise
        return fd

    def adopt(self, fd: int, address: int, size: int) -> None:
        _native.map_fixed(fd, address, size, 0)
        self._files[address] = os.dup(fd)

    def share(self, address: int) -> int:
        return os.dup(self._files[address])

    def drop(self, address: int, size: int) -> None:
        _native.unmap_to_reserved(address, size)
        os.close(self._files.pop(address))


@dataclass(frozen=True)
class _SeenChunks:
    """Chunks that the session's memory knows of, from after their mapping to before its end."""

    chunks: Chunks
    memory: CpuMemory
    base: int

    def make(self, offset: int, size: int) -> None:
        self.chunks.make(offset, size)
        self.memory.add(self.base + offset, size)

    def is_short(self) -> bool:
        return self.chunks.is_short()

    def adopt(self, offset: int, size: int, source: int) -> None:
        self.chunks.adopt(offset, size, source)
        self.memory.add(self.base + offset, size)

    def drop(self, offset: int, size: int) -> None:
        self.memory.remove(self.base + offset)
        self.chunks.drop(offset, size)
