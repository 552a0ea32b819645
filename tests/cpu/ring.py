"""A client in Python that writes frames into its ring itself, so that a test can send anything.

The layout is that of csrc/common/channel.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import socket
import struct
import time
from pathlib import Path
from typing import Any

import msgpack
from golden import INTEGERS

from mnemosyne.api import SPEC, Field, Kind
from mnemosyne.protocol import PROTOCOL_VERSION
from mnemosyne.protocol.control import Hello, Reader, Welcome, encode
from mnemosyne.protocol.frames import encode as encode_frame

HEAD, COMPLETED, SERVER_SLEEPS, DEAD, ERROR = 64, 128, 192, 256, 260
DEAD_TEXT, ERROR_TEXT, TEXT_BYTES = 272, 768, 496
SLOTS, SLOT_BYTES = 1280, 8192
RING, RING_BYTES = SLOTS + 64 * SLOT_BYTES, 4 << 20
WAITED, READY = 1, 4
_FUTEX, _FUTEX_WAKE = 202, 1  # x86-64
MESSAGES = {message.name: message for message in SPEC.messages.values()}


class RingClient:
    """A session. Frames are sent by message name; ``call`` waits for the reply."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        hello = Hello("attach", PROTOCOL_VERSION, SPEC.digest, os.getpid(), "ring", [], 0, 0)
        self.socket.sendall(encode(hello))
        self.welcome, fds = self._answer()
        size = os.fstat(fds[0]).st_size
        self.map = mmap.mmap(fds[0], size)
        self.host = mmap.mmap(fds[1], self.welcome.staging_bytes + (1 << 20))
        for fd in fds:
            os.close(fd)
        self.head = 0

    def _answer(self) -> tuple[Welcome, list[int]]:
        reader, all_fds = Reader(), []
        while True:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 2)
            assert data, "the server hung up"
            all_fds += fds
            if messages := reader.feed(data):
                assert isinstance(messages[0], Welcome), messages[0]
                return messages[0], all_fds

    def close(self) -> None:
        self.socket.close()

    def post(self, name: str, *values: Any) -> None:
        self.put(encode_frame(MESSAGES[name], *values))

    def call(self, name: str, *values: Any) -> list[Any]:
        """The reply: [status, *outputs]."""
        return self.reply_to(encode_frame(MESSAGES[name], *values))

    def reply_to(self, frame: bytes, seconds: float = 20) -> list[Any]:
        self._write(SLOTS, "I", WAITED)
        self.put(frame, reply=0)
        self._wait(lambda: self._read(SLOTS, "I") == READY or self.dead, seconds)
        assert not self.dead, self.dead
        (size,) = struct.unpack_from("<I", self.map, SLOTS + 4)
        answer: list[Any] = msgpack.unpackb(self.map[SLOTS + 16 : SLOTS + 16 + size])
        return answer

    def put(self, frame: bytes, reply: int = -1, size: int | None = None) -> None:
        """Appends a record; ``size`` may lie."""
        length = 8 + (len(frame) + 7) // 8 * 8
        if self.head % RING_BYTES + length > RING_BYTES:
            struct.pack_into("<I", self.map, RING + self.head % RING_BYTES, 0xFFFFFFFF)
            self.head += RING_BYTES - self.head % RING_BYTES
        self._wait(lambda: self.head + length - self.completed <= RING_BYTES or bool(self.dead))
        at = RING + self.head % RING_BYTES
        struct.pack_into("<Ii", self.map, at, len(frame) if size is None else size, reply)
        self.map[at + 8 : at + 8 + len(frame)] = frame
        self.head += length
        self.move_head(self.head)

    def move_head(self, position: int) -> None:
        """In one piece: the server may look at any moment, and struct writes byte by byte."""
        ctypes.c_uint64.from_buffer(self.map, HEAD).value = position
        if self._read(SERVER_SLEEPS, "I"):
            self._write(SERVER_SLEEPS, "I", 0)
            word = ctypes.c_uint32.from_buffer(self.map, SERVER_SLEEPS)
            ctypes.CDLL(None).syscall(_FUTEX, ctypes.byref(word), _FUTEX_WAKE, 1 << 30, 0, 0, 0)

    def drain(self, seconds: float = 20) -> None:
        """Waits until everything sent has taken effect."""
        self._wait(lambda: self.completed == self.head or bool(self.dead), seconds)

    @property
    def completed(self) -> int:
        return self._read(COMPLETED, "Q")

    @property
    def dead(self) -> str:
        """Why the session is over, empty while it is not."""
        return self._text(DEAD_TEXT) if self._read(DEAD, "I") else ""

    def take_error(self) -> tuple[int, str]:
        """The latched asynchronous error."""
        code, text = self._read(ERROR, "i"), self._text(ERROR_TEXT)
        self._write(ERROR, "i", 0)
        return code, text if code else ""

    def wait_dead(self) -> str:
        self._wait(lambda: bool(self.dead))
        return self.dead

    def _wait(self, condition: Any, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.0005)

    def _text(self, at: int) -> str:
        return self.map[at : at + TEXT_BYTES].split(b"\0")[0].decode()

    def _read(self, at: int, form: str) -> int:
        value: int = struct.unpack_from("<" + form, self.map, at)[0]
        return value

    def _write(self, at: int, form: str, value: int) -> None:
        struct.pack_into("<" + form, self.map, at, value)


def random_value(rng: random.Random, field: Field, pointers: list[int]) -> Any:
    """A value of the right form, often of a wrong meaning."""
    number = rng.choice([0, 1, 2, 3, 16, 68, 100, 4096, 2**31 - 1, 2**40, 2**63, 2**64 - 1])
    if field.kind is Kind.INT:
        low, high = INTEGERS[field.ctype]
        signed = rng.choice([number, -1, -(2**31), -(2**63), rng.randint(0, 5)])
        return min(max(signed, low), high)
    blob = rng.choice([b"", b"\0" * 4, b"\0" * 8, rng.randbytes(rng.randint(0, 64))])
    nested = rng.choice([[], [0, 4, 4, 4, []], [68, 0, []], [[1, b"\0" * 4]], [[], 7, 3, b""]])
    choices: dict[Kind, Any] = {
        Kind.REAL: rng.random(),
        Kind.PTR: rng.choice([number, *pointers, *(p + rng.randint(0, 5000) for p in pointers)]),
        Kind.SCALAR: rng.choice([blob[:40] or b"\0", number, *pointers]),
        Kind.BYTES: blob,
        Kind.TEXT: rng.choice(["", "kernel", "\0", "ä" * 100]),
        Kind.LIST: nested,
    }
    return choices.get(field.kind, rng.choice([0, 1, 16, 32, number]))
