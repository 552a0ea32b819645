"""The worker's start: what the supervisor says early is not lost."""

from __future__ import annotations

import socket

import pytest

from mnemosyne.protocol.control import Close, Reader, Start, encode
from mnemosyne.server.worker import told_to_start


@pytest.mark.parametrize("pieces", [[encode(Start())], [encode(Start())[:3], encode(Start())[3:]]])
def test_messages_behind_the_first_are_left_for_the_event_loop(pieces: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for piece in pieces:
            ours.sendall(piece)
        ours.sendall(encode(Close(7, "it has ended")))
        assert told_to_start(theirs)
        assert Reader().feed(theirs.recv(1 << 12)) == [Close(7, "it has ended")]


def test_a_worker_that_is_not_wanted_is_told_by_the_end() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        assert not told_to_start(theirs)
