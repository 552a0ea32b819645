"""A session's own state: memory, streams, events, library handles. Pure: no I/O, no clock.

How this works: a frame's message names a handler, a function of the session and the frame's fields.
It returns the reply's outputs (a tuple, or None for none), raises CallError as CUDA would fail, or
returns Deferred when it has to do something slow. Devices build their tables on ``HANDLERS``, which
holds what needs no device: it is for those that execute frames in order, where a wait is only a
check. On a GPU the lane waits (see csrc/lane/cuda).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.arena import Arena, Chunks
from mnemosyne.server.errors import (
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    CallError,
)
from mnemosyne.server.exports import Event, Exports, Import
from mnemosyne.server.hostmemory import HostMemory
from mnemosyne.server.journal import Entries, Journal, of_kind
from mnemosyne.server.modules import MAX_MODULE, Upload, Uploads

_EVENT_DISABLE_TIMING = 2
_BLANK_EVENT = 0  # kBlankEvent of channel.h: one that nobody records
_MAX_KEPT = 16 << 20  # bytes of modules in a journal, which fits into one control message


class DeviceLost(Exception):
    """No call of anybody can succeed any more. ``code`` is a cudaError_t."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Deferred:
    """``work`` runs in another thread; ``finish`` turns its result into outputs, back in turn."""

    work: Callable[[], Any]
    finish: Callable[[Any], tuple[Any, ...] | None]


Outputs = tuple[Any, ...] | None | Deferred
Handler = Callable[..., Outputs]
Handlers = Mapping[str, Handler]


@dataclass(frozen=True, slots=True)
class Layout:
    """A session's place in the address space, in bytes; see the Open control message."""

    device_base: int
    device_bytes: int
    host_base: int
    host_bytes: int
    staging_bytes: int
    quota: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What a session may do to the world around it."""

    chunks: Chunks
    release_host: Callable[[int, int], None]
    clock: Callable[[], float]  # seconds
    exports: Exports = field(default_factory=Exports)


@dataclass(slots=True)
class BlasHandle:
    """The settings of ``blas_configure``."""

    stream: int = 0
    math_mode: int = 0
    pointer_mode: int = 0


@dataclass(slots=True)
class LibraryObject:
    """A handle or descriptor of a library. ``calls``: [function, arguments] of those that made it
    what it is; ``lossy``: they are not all; ``value``: what the device has behind it."""

    of: str
    calls: list[list[Any]] = field(default_factory=list)
    lossy: bool = False
    value: Any = None


@dataclass
class Session:
    """One client's objects, by the numbers the client chose."""

    number: int
    layout: Layout
    effects: Effects
    streams: dict[int, tuple[int, int]] = field(default_factory=lambda: {0: (0, 0)})
    events: dict[int, Event] = field(default_factory=dict)
    blas: dict[int, BlasHandle] = field(default_factory=dict)
    uploads: Uploads = field(default_factory=Uploads)
    kept_modules: dict[int, int] = field(default_factory=dict)  # bytes in the journal, by number
    cudnn: set[int] = field(default_factory=set)
    graphs: dict[int, list[bytes]] = field(default_factory=dict)  # pieces of their frames
    objects: dict[int, LibraryObject] = field(default_factory=dict)
    imports: dict[int, Import] = field(default_factory=dict)  # by address
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        at = self.layout
        self.arena = Arena(at.device_base, at.device_bytes, at.quota, self.effects.chunks)
        self.host = HostMemory(at.staging_bytes, at.host_bytes, self.effects.release_host)

    def restore(self, chunks: list[list[int]], entries: Entries) -> None:
        """Rebuilds the session from its journal. Raises ValueError when that cannot be."""
        imported = {chunk for _, (_, chunk, *_) in of_kind(entries, "import")}
        self.arena.restore(chunks, dict(of_kind(entries, "malloc")), imported)
        self.host.restore(dict(of_kind(entries, "host")))
        self.streams.update((n, tuple(v)) for n, v in of_kind(entries, "stream"))
        restored = self.effects.exports.restore_event
        self.events.update((n, restored(*v)) for n, v in of_kind(entries, "event"))
        self.blas.update((n, BlasHandle(*v[:3])) for n, v in of_kind(entries, "blas"))
        self.cudnn.update(n for n, _ in of_kind(entries, "cudnn"))
        self.kept_modules.update((n, len(data)) for n, data in of_kind(entries, "module"))

    def check_stream(self, stream: int) -> None:
        """Raises CallError when the session has no such stream."""
        if stream not in self.streams:
            raise _unknown("stream", stream)

    def event(self, event: int) -> Event:
        """Raises CallError when the session has no such event."""
        found = self.events.get(event)
        if found is None:
            raise _unknown("event", event)
        return found

    def past_event(self, event: int) -> Event:
        """For what asks about the event's record: the blank one, too."""
        return Event(0) if event == _BLANK_EVENT else self.event(event)

    def blas_handle(self, handle: int) -> BlasHandle:
        """Raises CallError when the session has no such library handle."""
        found = self.blas.get(handle)
        if found is None:
            raise _unknown("library handle", handle)
        return found

    def take_upload(self, name: bytes) -> bytes:
        """The bytes of a module that has been uploaded; ``name`` is their hash, little-endian."""
        data = self.uploads.take(int.from_bytes(name, "little"))
        if data is None:
            raise ProtocolError("module_load: the module's bytes are missing")
        return data

    def keep_module(self, number: int, data: bytes) -> None:
        """So that another worker can load it; what is too much is not there then."""
        kept = sum(self.kept_modules.values()) + len(data) <= _MAX_KEPT
        self.kept_modules[number] = len(data) if kept else 0
        self.journal.put("module", number, data if kept else b"")

    def forget_module(self, number: int) -> None:
        self.kept_modules.pop(number, None)
        self.journal.drop("module", number)

    def check_cudnn(self, handle: int, stream: int) -> None:
        """Raises CallError when the session has no such cuDNN handle or stream."""
        if handle not in self.cudnn:
            raise _unknown("cuDNN handle", handle)
        self.check_stream(stream)


def _unknown(what: str, number: int) -> CallError:
    return CallError(INVALID_RESOURCE_HANDLE, f"this client has no {what} {number:#x}")


def _malloc(s: Session, size: int) -> Outputs:
    pointer = s.arena.malloc(_positive(size))
    s.journal.put("malloc", pointer, s.arena.size_of(pointer))
    return (pointer,)


def _free(s: Session, pointer: int) -> Outputs:
    if not s.arena.free(pointer):
        raise CallError(INVALID_VALUE, f"no device memory was allocated at {pointer:#x}")
    s.journal.drop("malloc", pointer)
    if s.effects.exports.remove(s, pointer):
        s.journal.drop("export_memory", pointer)
    return None


def _host_alloc(s: Session, size: int) -> Outputs:
    offset = s.host.alloc(_positive(size))
    s.journal.put("host", offset, s.host.size_of(offset))
    return (offset,)


def _host_free(s: Session, offset: int) -> Outputs:
    s.host.free(offset)
    s.journal.drop("host", offset)
    return None


def _positive(size: int) -> int:
    if size <= 0:
        raise CallError(INVALID_VALUE, f"{size} bytes cannot be allocated")
    return size


def _memory_info(s: Session) -> Outputs:
    return (s.arena.quota - s.arena.used, s.arena.quota)


def _create_stream(s: Session, stream: int, flags: int, priority: int) -> Outputs:
    check_new(stream, s.streams, "stream")
    s.streams[stream] = (flags, priority)
    s.journal.put("stream", stream, [flags, priority])
    return None


def _destroy_stream(s: Session, stream: int) -> Outputs:
    s.check_stream(stream)
    if stream == 0:
        raise CallError(INVALID_RESOURCE_HANDLE, "the null stream cannot be destroyed")
    del s.streams[stream]
    s.journal.drop("stream", stream)
    return None


def check_new(number: int, table: Container[int], what: str) -> None:
    """Raises CallError when the client has used the number already."""
    if number == 0 or number in table:
        raise CallError(INVALID_VALUE, f"{what} {number:#x} exists already")


def _wait_stream(s: Session, stream: int) -> Outputs:
    s.check_stream(stream)
    return None


def _wait_device(s: Session) -> Outputs:
    return None


def _create_event(s: Session, event: int, flags: int) -> Outputs:
    check_new(event, s.events, "event")
    add_event(s, event, Event(flags))
    return None


def add_event(s: Session, number: int, event: Event) -> None:
    """Its name is kept, too: sessions that share an event share it in another worker."""
    s.events[number] = event
    s.journal.put("event", number, [event.flags, event.token])


def _destroy_event(s: Session, event: int) -> Outputs:
    s.event(event)
    del s.events[event]
    s.journal.drop("event", event)
    return None


def _record_event(s: Session, event: int, stream: int, flags: int) -> Outputs:
    s.check_stream(stream)
    s.event(event).recorded = s.effects.clock()
    return None


def _wait_event(s: Session, event: int) -> Outputs:
    s.past_event(event)
    return None


def _stream_waits(s: Session, stream: int, event: int, flags: int) -> Outputs:
    s.check_stream(stream)
    s.past_event(event)
    return None


def _elapsed(s: Session, start: int, end: int) -> Outputs:
    """Milliseconds. Source: cudaEventElapsedTime in cuda_runtime_api.h."""
    first, last = s.past_event(start), s.past_event(end)
    if (first.flags | last.flags) & _EVENT_DISABLE_TIMING:
        raise CallError(INVALID_RESOURCE_HANDLE, "an event was created without timing")
    if first.recorded is None or last.recorded is None:
        raise CallError(INVALID_RESOURCE_HANDLE, "an event has not been recorded")
    return ((last.recorded - first.recorded) * 1e3,)


def _create_blas(s: Session, handle: int) -> Outputs:
    check_new(handle, s.blas, "library handle")
    s.blas[handle] = BlasHandle()
    s.journal.put("blas", handle, [0, 0, 0])
    return None


def _destroy_blas(s: Session, handle: int) -> Outputs:
    s.blas_handle(handle)
    del s.blas[handle]
    s.journal.drop("blas", handle)
    return None


def _configure_blas(
    s: Session, handle: int, stream: int, math: int, pointer: int, workspace: int, size: int,
    multiprocessors: int,
) -> Outputs:  # fmt: skip
    """Devices here compute without a workspace and have no multiprocessors to choose from."""
    s.blas_handle(handle)
    s.check_stream(stream)
    s.blas[handle] = BlasHandle(stream, math, pointer)
    s.journal.put("blas", handle, [stream, math, pointer])
    return None


def _module_bytes(s: Session, name: bytes, total: int, offset: int, data: bytes) -> Outputs:
    """``name`` is the module's hash, little-endian. Pieces must come in order."""
    if len(name) != 8 or not 0 < total <= MAX_MODULE:
        raise ProtocolError(f"module_bytes: a module of {total} bytes")
    key, waiting = int.from_bytes(name, "little"), s.uploads.waiting
    if offset == 0:
        held = sum(upload.total for other, upload in waiting.items() if other != key)
        if held + total > MAX_MODULE:
            raise CallError(NOT_SUPPORTED, f"more than {MAX_MODULE} bytes of uploaded modules")
        waiting[key] = Upload(total)
    if key not in waiting:
        raise ProtocolError("module_bytes: the first piece is missing")
    waiting[key].add(offset, data)
    return None


def _create_cudnn(s: Session, handle: int) -> Outputs:
    check_new(handle, s.cudnn, "cuDNN handle")
    s.cudnn.add(handle)
    s.journal.put("cudnn", handle, 1)
    return None


def _destroy_cudnn(s: Session, handle: int) -> Outputs:
    s.check_cudnn(handle, 0)
    s.cudnn.remove(handle)
    s.journal.drop("cudnn", handle)
    return None


HANDLERS: Handlers = {
    "module_bytes": _module_bytes,
    "malloc": _malloc,
    "free": _free,
    "host_alloc": _host_alloc,
    "host_free": _host_free,
    "cudaMemGetInfo": _memory_info,
    "cudaStreamCreateWithPriority": _create_stream,
    "cudaStreamDestroy": _destroy_stream,
    "cudaStreamSynchronize": _wait_stream,
    "stream_query": _wait_stream,
    "cudaStreamWaitEvent": _stream_waits,
    "cudaDeviceSynchronize": _wait_device,
    "cudaEventCreateWithFlags": _create_event,
    "cudaEventDestroy": _destroy_event,
    "event_record": _record_event,
    "cudaEventSynchronize": _wait_event,
    "event_query": _wait_event,
    "cudaEventElapsedTime": _elapsed,
    "cublasCreate_v2": _create_blas,
    "cublasDestroy_v2": _destroy_blas,
    "blas_configure": _configure_blas,
    "cudnnCreate": _create_cudnn,
    "cudnnDestroy": _destroy_cudnn,
}
