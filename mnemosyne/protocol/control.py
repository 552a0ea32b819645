"""Control messages: what travels on the Unix sockets, never in the ring.

Each is a 4-byte little-endian length and one msgpack array ``[kind, *fields]``; file descriptors
ride along as ancillary data of the same bytes. A client sends Hello and gets Welcome, Status or
Refusal; the rest is between supervisor and worker.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

import msgpack

from mnemosyne.protocol.errors import ProtocolError

#: Longest control message in bytes. A longer journal travels in parts.
MAX_CONTROL = 1 << 26
_LENGTH = struct.Struct("<I")
#: MemoryError: a list that claims more elements than there is room for.
_MALFORMED = (ValueError, msgpack.exceptions.UnpackException, RecursionError, MemoryError)


@dataclass(frozen=True)
class Hello:
    """Client to supervisor, first message. ``purpose``: "probe" asks what the device is and takes
    no slot, "attach" takes one, "status" is for administrators."""

    KIND: ClassVar[int] = 1
    purpose: str
    protocol: int
    digest: str  # Spec.digest the client was built from
    pid: int
    program: str
    libraries: list[list[Any]]  # [[name, version number], ...] of those the client has loaded
    memory: int  # wanted quota in bytes, 0 for the server's default
    priority: int


@dataclass(frozen=True)
class Welcome:
    """Supervisor to client. After "attach" two fds ride along: channel and host slot.

    Addresses and sizes are in bytes. ``properties`` is a cudaDeviceProp of the CUDA major version
    ``cuda``; ``attributes`` are [[cudaDeviceAttr, value], ...].
    """

    KIND: ClassVar[int] = 2
    session: int
    device_base: int
    device_bytes: int
    host_base: int
    host_bytes: int
    staging_bytes: int  # the front of the host slot; the client's own to use
    quota: int
    cuda: int  # CUDA version, e.g. 13000
    name: str
    uuid: bytes
    properties: bytes
    attributes: list[list[int]]


@dataclass(frozen=True)
class Refusal:
    """Supervisor to client, or a worker that cannot serve to its supervisor: one line that says
    why, and what to do."""

    KIND: ClassVar[int] = 3
    reason: str


@dataclass(frozen=True)
class Status:
    """Supervisor to an administrator: one row per session."""

    KIND: ClassVar[int] = 4
    device: str
    clients: int
    sessions: list[list[Any]]  # [[session, pid, program, memory used, quota, seconds], ...]


@dataclass(frozen=True)
class Ready:
    """Worker to supervisor, once: the device it serves (see Welcome)."""

    KIND: ClassVar[int] = 10
    device: str  # one line for people
    memory: int  # bytes that can be given to clients
    cuda: int
    name: str
    uuid: bytes
    properties: bytes
    attributes: list[list[int]]
    libraries: list[list[Any]]  # see Hello; one that is not named goes with any version


@dataclass(frozen=True)
class Open:
    """Supervisor to worker: serve this session, whose journal came in Journal messages before.
    fds: channel, host slot, then its chunks."""

    KIND: ClassVar[int] = 11
    session: int
    slot: int
    device_base: int
    device_bytes: int
    host_base: int
    host_bytes: int
    staging_bytes: int
    quota: int
    priority: int
    chunks: list[list[int]]  # [[offset in the device slot, bytes], ...]


@dataclass(frozen=True)
class Opened:
    """Worker to supervisor: the session runs, or why not."""

    KIND: ClassVar[int] = 12
    session: int
    error: str


@dataclass(frozen=True)
class Close:
    """Supervisor to worker: the client is gone; end its session and drop what it holds."""

    KIND: ClassVar[int] = 13
    session: int
    reason: str


@dataclass(frozen=True)
class Closed:
    """Worker to supervisor: the session has ended. ``reason`` is empty when it was asked for."""

    KIND: ClassVar[int] = 14
    session: int
    reason: str


@dataclass(frozen=True)
class Chunk:
    """Worker to supervisor: a chunk of device memory was made; its fd rides along, to be held."""

    KIND: ClassVar[int] = 15
    session: int
    offset: int
    size: int


@dataclass(frozen=True)
class ChunkGone:
    """Worker to supervisor: the chunk was given back; close the fd."""

    KIND: ClassVar[int] = 16
    session: int
    offset: int


@dataclass(frozen=True)
class Journal:
    """Worker to supervisor: entries of a session's journal; a nil value removes the key.
    Supervisor to worker: some of those that are left, in the order first written."""

    KIND: ClassVar[int] = 17
    session: int
    entries: list[list[Any]]  # [[key, value], ...]


@dataclass(frozen=True)
class Shutdown:
    """Supervisor to worker: end every session and exit."""

    KIND: ClassVar[int] = 18
    reason: str


@dataclass(frozen=True)
class Lost:
    """Worker to supervisor: the device is lost, another worker is needed. ``code`` is a
    cudaError_t; ``suspects`` are the sessions that had work on the device."""

    KIND: ClassVar[int] = 19
    code: int
    text: str
    suspects: list[int]


@dataclass(frozen=True)
class Start:
    """Supervisor to worker: take hold of the device, then say Ready. A worker that waits for it
    holds nothing of the device, and has done all that takes time before."""

    KIND: ClassVar[int] = 20


@dataclass(frozen=True)
class Ending:
    """Worker to supervisor: a session that is to end still has work, which goes on."""

    KIND: ClassVar[int] = 21
    session: int


Control = (
    Hello | Welcome | Refusal | Status | Ready | Open | Opened | Close | Closed | Chunk | ChunkGone
    | Journal | Shutdown | Lost | Start | Ending
)  # fmt: skip
_KINDS: dict[int, type[Any]] = {cls.KIND: cls for cls in Control.__args__}
_TYPES = {"int": int, "str": str, "bytes": bytes}


def encode(message: Control) -> bytes:
    """Length prefix and body."""
    body: bytes = msgpack.packb([message.KIND, *astuple(message)])
    return _LENGTH.pack(len(body)) + body


class Reader:
    """Collects bytes in any chunking; ``feed`` returns the messages they complete."""

    def __init__(self, limit: int = MAX_CONTROL) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Control]:
        """Raises ProtocolError; the reader is of no use afterwards."""
        self._buffer += data
        messages = []
        while (body := self._next()) is not None:
            messages.append(decode(body))
        return messages

    def _next(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._limit:
            raise ProtocolError(f"a control message of {length} bytes (limit {self._limit})")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body


def decode(body: bytes) -> Control:
    """One message without its length prefix. Raises ProtocolError."""
    try:
        values = msgpack.unpackb(body, max_map_len=0, max_ext_len=0)
    except _MALFORMED as error:
        raise ProtocolError(f"not msgpack: {error or type(error).__name__}") from None
    if type(values) is not list or not values or type(values[0]) is not int:
        raise ProtocolError("a control message is not an array that starts with its kind")
    cls = _KINDS.get(values[0])
    if cls is None:
        raise ProtocolError(f"no control message has kind {values[0]}")
    message: Control = cls(*_checked(cls, values[1:]))
    return message


def _checked(cls: type[Any], values: list[Any]) -> list[Any]:
    expected = fields(cls)
    if len(values) != len(expected):
        raise ProtocolError(f"{cls.__name__}: {len(values)} fields, expected {len(expected)}")
    for field, value in zip(expected, values, strict=True):
        wanted = _TYPES.get(str(field.type), list)
        if type(value) is not wanted:
            raise ProtocolError(f"{cls.__name__}: {field.name} is not of type {field.type}")
    return values
