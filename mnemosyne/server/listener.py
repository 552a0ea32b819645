"""The server's socket: who may connect, and the handshake up to a checked Hello."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mnemosyne.api import SPEC
from mnemosyne.protocol import PROTOCOL_VERSION, ProtocolError
from mnemosyne.protocol.control import Control, Hello, Refusal
from mnemosyne.server import versions
from mnemosyne.server.paths import MAX_SOCKET_PATH
from mnemosyne.server.wire import Wire

log = logging.getLogger("mnemosyne")

HELLO_SECONDS = 5.0
MAX_UNFINISHED = 64
_BACKLOG = 512  # connections that came in one burst and wait to be accepted
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class SocketInUse(Exception):
    """The socket cannot be had; the text says why."""


def bind(path: str) -> socket.socket:
    """A listening socket that only this user can reach. Raises SocketInUse."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise SocketInUse(f"the socket's path is longer than {MAX_SOCKET_PATH} bytes: {path}")
    if Path(path).exists() or Path(path).is_symlink():
        _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    previous = os.umask(0o177)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        todo = "make its folder or " if error.errno == errno.ENOENT else ""
        raise SocketInUse(
            f"cannot listen at {path}: {error.strerror}; {todo}choose another --socket"
        ) from None
    finally:
        os.umask(previous)
    return sock


def _remove_stale(path: str) -> None:
    if not Path(path).is_socket():
        raise SocketInUse(f"{path} exists and is no socket; choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        outcome = probe.connect_ex(path)
    if outcome in (0, errno.EAGAIN):
        raise SocketInUse(f"a server is listening at {path} already; choose another --socket")
    if outcome == errno.EACCES:
        raise SocketInUse(f"{path} belongs to another user; choose another --socket")
    with suppress(FileNotFoundError):
        os.unlink(path)


@dataclass(eq=False)
class Peer:
    """A connection; ``pid`` is the kernel's word, not the client's. ``ended``: it hung up."""

    pid: int
    ended: Callable[[], None] = lambda: None
    wire: Wire = field(init=False)
    hello: Hello = field(init=False)

    def answer(self, message: Control) -> None:
        """The last message of this connection."""
        self.wire.send(message)
        self.wire.close()

    def refuse(self, reason: str) -> None:
        self.answer(Refusal(reason))


class Listener:
    """Accepts connections and hands over those that said a proper Hello."""

    def __init__(self, sock: socket.socket, greeted: Callable[[Peer], None]) -> None:
        self._socket = sock
        self._greeted = greeted
        self._waiting: dict[Peer, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._acceptable)

    def close(self) -> None:
        """Stops listening, once; unfinished handshakes are dropped.

        The path goes while the socket still listens, so that it cannot be another server's yet.
        """
        if self._socket.fileno() < 0:
            return
        with suppress(OSError):
            os.unlink(self._socket.getsockname())
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for peer in list(self._waiting):
            self._forget(peer)
            peer.wire.close()

    def _acceptable(self) -> None:
        with suppress(BlockingIOError):
            while True:
                try:
                    sock, _ = self._socket.accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                        return log.warning("cannot accept a client: %s", error.strerror)
                    raise
                self._accepted(sock)

    def _accepted(self, sock: socket.socket) -> None:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != os.getuid() or len(self._waiting) >= MAX_UNFINISHED:
            why = "too many unfinished handshakes" if uid == os.getuid() else f"uid {uid}"
            log.warning("refused a connection of pid %d: %s", pid, why)
            return sock.close()
        peer = Peer(pid)
        peer.wire = Wire(
            sock,
            lambda message, fds: self._received(peer, message),
            lambda error: self._ended(peer, error),
            trusted=False,
        )
        self._waiting[peer] = self._loop.call_later(HELLO_SECONDS, self._too_slow, peer)

    def _received(self, peer: Peer, message: Control) -> None:
        if peer not in self._waiting or not isinstance(message, Hello):
            raise ProtocolError(f"{type(message).__name__} at the wrong time")
        versions.check(message.libraries)
        self._forget(peer)
        peer.hello = message
        if reason := _mismatch(message):
            log.warning("refused pid %d (%s): %s", peer.pid, message.program, reason)
            return peer.refuse(reason)
        self._greeted(peer)

    def _ended(self, peer: Peer, error: ProtocolError | None) -> None:
        self._forget(peer)
        if error:
            log.warning("dropped the connection of pid %d: %s", peer.pid, error)
        peer.ended()

    def _too_slow(self, peer: Peer) -> None:
        self._forget(peer)
        log.warning("dropped the connection of pid %d: no hello in %g s", peer.pid, HELLO_SECONDS)
        peer.refuse(f"no hello within {HELLO_SECONDS:g} s")

    def _forget(self, peer: Peer) -> None:
        if timer := self._waiting.pop(peer, None):
            timer.cancel()


def _mismatch(hello: Hello) -> str:
    if hello.protocol != PROTOCOL_VERSION:
        return (
            f"the client speaks protocol {hello.protocol}, the server {PROTOCOL_VERSION}; "
            "use the same version of mnemosyne for both"
        )
    if hello.digest != SPEC.digest:
        return (
            f"the client was built from specification {hello.digest}, the server from "
            f"{SPEC.digest}; use the same version of mnemosyne for both"
        )
    return ""
