"""Asking a running server about its sessions, from another program; blocks for a few seconds."""

from __future__ import annotations

import os
import socket

from mnemosyne.api import SPEC
from mnemosyne.protocol import PROTOCOL_VERSION
from mnemosyne.protocol.control import Control, Hello, Reader, Refusal, Status, encode

_SECONDS = 20.0  # a worker may have to start first


def ask_status(path: str) -> Status:
    """The status of the server at this socket. Raises OSError when it gives none."""
    question = Hello("status", PROTOCOL_VERSION, SPEC.digest, os.getpid(), "mnemosyne", [], 0, 0)
    answer = _ask(path, question)
    if isinstance(answer, Status):
        return answer
    reason = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
    raise ConnectionError(f"the server answered: {reason}")


def _ask(path: str, question: Hello) -> Control:
    reader = Reader()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_SECONDS)
        sock.connect(path)
        sock.sendall(encode(question))
        while data := sock.recv(1 << 16):
            if answers := reader.feed(data):
                return answers[0]
    raise ConnectionError("the server hung up")
