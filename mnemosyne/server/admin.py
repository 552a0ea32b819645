"""Asking a running server about its sessions, from another program; blocks for a few seconds.

What goes wrong is told in the words of the client library (csrc/client_hook/connect.cpp).
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from mnemosyne.api import SPEC
from mnemosyne.protocol import PROTOCOL_VERSION, ProtocolError
from mnemosyne.protocol.control import Control, Hello, Reader, Refusal, Status, encode
from mnemosyne.server.paths import MAX_SOCKET_PATH, usual_socket

_SECONDS = 20.0  # a worker may have to start first
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class NoStatus(ConnectionError):
    """The server gives none; the text is one line that says why, and what to do."""


def ask_status(path: str) -> Status:
    """The status of the server at this socket. Raises NoStatus."""
    question = Hello("status", PROTOCOL_VERSION, SPEC.digest, os.getpid(), "mnemosyne", [], 0, 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_SECONDS)
        _connect(sock, path)
        try:
            answer = _ask(sock, question)
        except OSError as error:
            raise NoStatus(_no_answer(path, error)) from None
        except ProtocolError as error:
            raise NoStatus(f"the server at {path} answered something else: {error}") from None
    if isinstance(answer, Status):
        return answer
    reason = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
    raise NoStatus(f"the server at {path} refused: {reason}")


def _connect(sock: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise NoStatus(f"the socket's path is longer than {MAX_SOCKET_PATH} bytes: {path}")
    try:
        sock.connect(path)
    except BlockingIOError as error:
        raise NoStatus(_no_answer(path, error)) from None
    except OSError as error:
        raise NoStatus(_no_connection(path, error)) from None
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(raw)[1] != os.getuid():
        raise NoStatus(_foreign(path))


def _ask(sock: socket.socket, question: Hello) -> Control:
    reader = Reader()
    sock.sendall(encode(question))
    while data := sock.recv(1 << 16):
        if answers := reader.feed(data):
            return answers[0]
    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def _no_connection(path: str, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return _foreign(path)
    option = "" if path == usual_socket() else f" --socket {path}"
    return (
        f"no server at {path} ({error.strerror or error}); start one with: mnemosyne server{option}"
    )


def _foreign(path: str) -> str:
    return (
        f"the socket {path} belongs to another user; give the server another --socket, and set "
        "MNEMOSYNE_SOCKET to the same path"
    )


def _no_answer(path: str, error: OSError) -> str:
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return (
            f"the server at {path} did not answer within {_SECONDS:g} s; its log may say why; "
            "if it hangs, stop it and start it again"
        )
    return (
        f"the server at {path} hung up ({error.strerror}); its log says why; "
        "use the same version of mnemosyne for both"
    )
