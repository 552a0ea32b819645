"""Control messages and file descriptors over one Unix socket: the only place that touches either.

File descriptors belong to messages by count and order: the kernel may deliver the bytes of a
message without fds together with the next one's, so the reader hands out fds as messages need them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import MAX_CONTROL, Chunk, Control, Open, Reader, encode

log = logging.getLogger("mnemosyne")

_READ_BYTES = 1 << 16
_FDS_PER_SEND = 200  # the kernel takes 253
MAX_FROM_CLIENT = 1 << 16  # bytes
Received = Callable[[Control, list[int]], None]
Ended = Callable[[ProtocolError | None], None]


class Wire:
    """One end of a control connection, driven by the running event loop.

    ``received`` gets every message with the fds it owns from then on. ``ended`` is called once,
    later, with a ProtocolError for bad bytes and None when the peer has closed. A client is
    ``trusted`` with neither long messages nor file descriptors.
    """

    def __init__(
        self, sock: socket.socket, received: Received, ended: Ended, trusted: bool = True
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._poll = select.poll()  # select() takes small file descriptors only
        self._poll.register(self._socket, select.POLLOUT)
        self._received = received
        self._ended = ended
        self._trusted = trusted
        self._reader = Reader(MAX_CONTROL if trusted else MAX_FROM_CLIENT)
        self._fds: deque[int] = deque()
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def open(self) -> bool:
        return self._socket.fileno() >= 0

    def send(self, message: Control, fds: Sequence[int] = ()) -> None:
        """Sends now or when the peer has room; the caller keeps its fds and may close them.

        Raises OSError when the process may not have that many files.
        """
        if not self.open:
            return
        data, rest = encode(message), _duplicates(fds)
        while len(rest) > _FDS_PER_SEND:
            self._unsent.append((data[:1], rest[:_FDS_PER_SEND]))
            data, rest = data[1:], rest[_FDS_PER_SEND:]
        self._unsent.append((data, rest))
        self._writable()

    def flush(self) -> None:
        """Waits until everything is sent, for what must be known before the caller goes on."""
        while self._unsent and self.open:
            self._poll.poll()
            self._writable()

    def close(self) -> None:
        """Closes without calling ``ended``."""
        if not self.open:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for fd in [*self._fds, *(fd for _, fds in self._unsent for fd in fds)]:
            os.close(fd)
        self._fds.clear()
        self._unsent.clear()

    def _writable(self) -> None:
        try:
            while self._unsent:
                self._send_some()
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._writable)
            return
        except OSError:
            self._end(None)
            return
        self._loop.remove_writer(self._socket.fileno())

    def _send_some(self) -> None:
        data, fds = self._unsent[0]
        sent = socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
        self._unsent.popleft()
        for fd in fds:
            os.close(fd)
        if sent < len(data):
            self._unsent.appendleft((data[sent:], []))

    def drain(self) -> None:
        """Takes what a peer that is gone had sent before."""
        while self._read():
            pass

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Takes some bytes; False when there were none."""
        if not self.open:
            return False
        try:
            data, fds, _, _ = socket.recv_fds(
                self._socket, _READ_BYTES, _FDS_PER_SEND, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        except OSError:
            self._end(None)
            return False
        self._fds.extend(fds)
        try:
            self._take(data)
        except ProtocolError as error:
            self._end(error)
        except Exception:  # the messages after it, and whose fds are whose, are lost
            log.exception("bug: a control message was not handled")
            self._end(ProtocolError("the server failed; its log has the details"))
        return self.open

    def _take(self, data: bytes) -> None:
        if not data:
            return self._end(None)
        if self._fds and not self._trusted:
            raise ProtocolError("file descriptors that nobody asked for")
        for message in self._reader.feed(data):
            if not self.open:
                return
            self._received(message, self._fds_of(message))

    def _fds_of(self, message: Control) -> list[int]:
        count = _fd_count(message)
        if count > len(self._fds):
            raise ProtocolError(f"{type(message).__name__} came without its file descriptors")
        return [self._fds.popleft() for _ in range(count)]

    def _end(self, error: ProtocolError | None) -> None:
        if self.open:
            self.close()
            self._loop.call_soon(self._ended, error)


def _duplicates(fds: Sequence[int]) -> list[int]:
    """All of them or none. Raises OSError."""
    with ExitStack() as undo:
        made = []
        for fd in fds:
            made.append(os.dup(fd))
            undo.callback(os.close, made[-1])
        undo.pop_all()
    return made


def _fd_count(message: Control) -> int:
    """Of messages that the server receives."""
    if isinstance(message, Open):
        return 2 + len(message.chunks)
    return int(isinstance(message, Chunk))
