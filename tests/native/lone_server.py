"""The smallest server: sessions of the null device in this process. It keeps every frame.

Its addresses are others than a real server's: those are a thread sanitizer's own.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

from mnemosyne import _native
from mnemosyne.protocol.control import Hello, Reader, Welcome, encode
from mnemosyne.protocol.frames import decode, encode_reply
from mnemosyne.server.devices.null import create
from mnemosyne.server.errors import CallError
from mnemosyne.server.session import Deferred, Effects, Layout

MIB = 1 << 20
GIB = 1 << 30
STAGING = 64 * MIB
#: Below 512 GiB, where a thread sanitizer lets a program have memory.
PLACE = Layout(
    device_base=128 * GIB, device_bytes=64 * GIB, host_base=64 * GIB, host_bytes=256 * MIB,
    staging_bytes=STAGING, quota=GIB,
)  # fmt: skip


class NoChunks:
    def make(self, offset: int, size: int) -> None: ...
    def drop(self, offset: int, size: int) -> None: ...
    def adopt(self, offset: int, size: int, source: int) -> None: ...

    def is_short(self) -> bool:
        return False


class LoneServer:
    """Serves whoever connects to ``path``; one client at a time has a session."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames: list[bytes] = []
        self._device = create(1)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """Ends after its clients."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                self._greet(client)

    def _greet(self, client: socket.socket) -> None:
        reader = Reader()
        while not (messages := reader.feed(client.recv(1 << 16))):
            pass
        (hello,) = messages
        assert isinstance(hello, Hello)
        if hello.purpose == "probe":
            return client.sendall(encode(self._welcome()))
        channel = _native.create_channel()
        host = _native.create_memory("lone-host", PLACE.host_bytes)
        event = os.eventfd(0, os.EFD_NONBLOCK)
        lane = _native.Lane(channel, event)
        socket.send_fds(client, [encode(self._welcome())], [channel, host])
        try:
            self._serve(client, lane, event)
        finally:
            lane.close("the lone server is done")
            for fd in (channel, host, event):
                os.close(fd)

    def _welcome(self) -> Welcome:
        device, at = self._device.describe(GIB), PLACE
        return Welcome(
            1, at.device_base, at.device_bytes, at.host_base, at.host_bytes, at.staging_bytes,
            at.quota, device.cuda, device.name, device.uuid, device.properties, device.attributes,
        )  # fmt: skip

    def _serve(self, client: socket.socket, lane: _native.Lane, event: int) -> None:
        """Until the client hangs up."""
        effects = Effects(NoChunks(), lambda offset, size: None, time.perf_counter)
        session = self._device.open(1, PLACE, effects)
        while client not in select.select([client, event], [], [])[0]:
            os.eventfd_read(event)
            while frames := lane.take(64):
                for slot, frame in frames:
                    self._execute(session, lane, slot, frame)
                    lane.done(1)

    def _execute(self, session: Any, lane: _native.Lane, slot: int, frame: bytes) -> None:
        self.frames.append(frame)
        message, values = decode(frame)
        try:
            outputs = self._device.handlers[message.name](session, *values)
            if isinstance(outputs, Deferred):
                outputs = outputs.finish(outputs.work())
            reply = encode_reply(0, *(outputs or ()))
        except CallError as error:
            reply = encode_reply(error.code, error.text)
            if slot < 0:
                lane.fail(error.code, error.text)
        if slot >= 0:
            lane.reply(slot, reply)
