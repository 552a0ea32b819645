"""What executes a session's calls: ``cpu`` (torch on the CPU), ``cuda`` (the GPU), ``null``.

A device knows memory, streams, kernels and library calls; it knows no sockets and no asyncio. Its
module is imported by name, so that nobody loads torch or CUDA for a device that is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from mnemosyne import _native
from mnemosyne.api import SPEC
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import Effects, Handlers, Layout, Session

#: Devices by name: where they are made.
MODULES = {
    "cpu": "mnemosyne.server.devices.cpu.device",
    "cuda": "mnemosyne.server.devices.cuda.device",
    "null": "mnemosyne.server.devices.null",
}


@dataclass(frozen=True)
class Description:
    """What a device is; see the Ready control message."""

    device: str
    memory: int
    cuda: int
    name: str
    uuid: bytes
    properties: bytes
    attributes: list[list[int]]
    libraries: list[list[object]] = field(default_factory=list)


class ChunkMemory(Protocol):
    """The memory behind sessions' arenas, in pieces that outlive this process as files.

    Addresses lie in ranges that ``reserve`` took; sizes are multiples of 2 MiB.
    """

    def reserve(self, places: Sequence[Layout]) -> None:
        """Takes the device ranges of all slots, before anything else can. Raises OSError."""

    def make(self, address: int, size: int) -> int:
        """Maps new memory, all zero; returns its file descriptor. Raises OSError."""

    def adopt(self, fd: int, address: int, size: int) -> None:
        """Maps memory that another process made. Raises OSError."""

    def share(self, address: int) -> int:
        """A file descriptor, the caller's, of the piece at this address. Raises OSError."""

    def drop(self, address: int, size: int) -> None:
        """Unmaps one piece, whole."""


@dataclass(frozen=True)
class Fault:
    """The device is lost. ``suspects``: numbers of the sessions that had work on it."""

    code: int  # a cudaError_t
    text: str
    suspects: list[int]


class Device(Protocol):
    """What executes sessions. ``handlers`` takes any Session that its ``open`` made."""

    @property
    def handlers(self) -> Handlers: ...

    @property
    def chunks(self) -> ChunkMemory: ...

    @property
    def fault_fd(self) -> int | None:
        """An eventfd that becomes readable when the device is lost; None: it never is."""

    def lost(self, code: int) -> None:
        """A call raised DeviceLost; ``fault_fd`` becomes readable."""

    def fault(self) -> Fault:
        """What happened, once ``fault_fd`` is readable."""

    def start(self) -> None:
        """Takes hold of the device, first of all; until then this process holds nothing of it.

        Raises CallError, OSError or RuntimeError when it cannot be used.
        """

    def describe(self, memory: int) -> Description:
        """``memory``: bytes for all clients together, 0 for the device's own default.

        Raises ValueError when the device has not that much.
        """

    def enter(self) -> None:
        """Called once in every thread that calls handlers or their deferred work."""

    def open(self, number: int, layout: Layout, effects: Effects) -> Session:
        """A new session. Its host slot is mapped already."""

    def executor(self, session: Session) -> _native.Executor | None:
        """What the session's lane runs without Python; None: nothing."""

    def restore(self, session: Session, chunks: list[list[int]], entries: Entries) -> None:
        """Rebuilds a session from its journal; may be slow. Raises ValueError."""

    def progress(self, session: Session) -> object:
        """Equal to an earlier one's if no work of the session was finished since."""

    def close(self, session: Session) -> None:
        """Waits for the session's work and gives back all but its chunks; may be slow."""


def create(name: str, threads: int) -> Device:
    """The device of this name. Raises LookupError when it lacks a handler of the specification."""
    device: Device = import_module(MODULES[name]).create(threads)
    check_handlers(name, device.handlers)
    return device


def check_handlers(name: str, handlers: Iterable[str]) -> None:
    """Raises LookupError with the names of messages that have no handler, and the other way."""
    wanted, present = {m.name for m in SPEC.messages.values()}, set(handlers)
    if wrong := sorted(wanted ^ present):
        raise LookupError(f"device {name}: handlers and messages differ in: {', '.join(wrong)}")
