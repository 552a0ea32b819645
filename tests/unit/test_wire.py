"""Control messages with file descriptors over a real socket pair."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import Chunk, ChunkGone, Control, Hello, Journal, Open, encode
from mnemosyne.server.wire import Wire

Scene = Callable[[Wire, socket.socket, list[object]], Awaitable[None]]


def play(scene: Scene, trusted: bool = True) -> list[object]:
    """Runs a scene: a wire, the raw socket at its other end, and what another wire there got."""

    async def run() -> list[object]:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        got: list[object] = []
        receiver = Wire(right, lambda m, fds: got.append((m, fds)), got.append, trusted)
        sender = Wire(left, lambda m, fds: None, lambda error: None)
        await scene(sender, left, got)
        receiver.close()
        sender.close()
        return got

    return asyncio.run(asyncio.wait_for(run(), 10))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def names(fds: list[int]) -> list[str]:
    """What was written into each file; closes them."""
    texts = []
    for fd in fds:
        texts.append(os.pread(fd, 100, 0).decode())
        os.close(fd)
    return texts


def file_with(text: str) -> int:
    fd = os.memfd_create(text)
    os.write(fd, text.encode())
    return fd


def test_file_descriptors_come_with_the_message_they_belong_to() -> None:
    async def scene(wire: Wire, _: socket.socket, got: list[object]) -> None:
        for n in range(50):
            fd = file_with(str(n))
            wire.send(ChunkGone(n, 0))
            wire.send(Chunk(n, 0, 1), [fd])
            os.close(fd)
        await until(lambda: len(got) == 100)

    got = play(scene)
    for n in range(50):
        assert got[2 * n] == (ChunkGone(n, 0), [])
        message, fds = got[2 * n + 1]  # type: ignore[misc]
        assert message == Chunk(n, 0, 1)
        assert names(fds) == [str(n)]


def test_what_goes_wrong_with_a_message_ends_the_wire() -> None:
    """Those that came with it are not handled as if nothing had been."""
    handled: list[object] = []

    async def run() -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ended: list[object] = []

        def fail(message: Control, fds: list[int]) -> None:
            handled.append(message)
            raise KeyError(message)

        receiver = Wire(right, fail, ended.append)
        left.send(encode(ChunkGone(1, 0)) + encode(ChunkGone(2, 0)))
        await until(lambda: bool(ended))
        assert isinstance(ended[0], ProtocolError)
        assert not receiver.open
        left.close()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert handled == [ChunkGone(1, 0)]


def test_more_file_descriptors_than_one_send_can_carry() -> None:
    count = 450
    message = Open(1, 0, 0, 0, 0, 0, 0, 0, 0, [[n, 1] for n in range(count - 2)])

    async def scene(wire: Wire, _: socket.socket, got: list[object]) -> None:
        fds = [file_with(str(n)) for n in range(count)]
        wire.send(message, fds)
        for fd in fds:
            os.close(fd)
        await until(lambda: len(got) == 1)

    ((received, fds),) = play(scene)  # type: ignore[misc]
    assert received == message
    assert names(fds) == [str(n) for n in range(count)]


def test_a_long_message_waits_for_room() -> None:
    message = Journal(1, [["key", "x" * 3_000_000]])

    async def scene(wire: Wire, _: socket.socket, got: list[object]) -> None:
        wire.send(message)
        await until(lambda: len(got) == 1)

    assert play(scene) == [(message, [])]


@pytest.mark.parametrize("data", [b"\xff" * 8, encode(Chunk(1, 0, 1))])
def test_bad_bytes_end_the_wire_once(data: bytes) -> None:
    async def scene(_: Wire, raw: socket.socket, got: list[object]) -> None:
        raw.send(data + data)
        await until(lambda: len(got) == 1)

    (error,) = play(scene)
    assert isinstance(error, ProtocolError)


def test_a_client_may_send_neither_file_descriptors_nor_long_messages() -> None:
    long: Control = Hello("attach", 1, "", 1, "x" * 100_000, [], 0, 0)

    async def with_fd(wire: Wire, _: socket.socket, got: list[object]) -> None:
        wire.send(ChunkGone(1, 0), [0])
        await until(lambda: len(got) == 1)

    async def too_long(wire: Wire, _: socket.socket, got: list[object]) -> None:
        wire.send(long)
        await until(lambda: len(got) == 1)

    for scene in (with_fd, too_long):
        (error,) = play(scene, trusted=False)
        assert isinstance(error, ProtocolError)


def test_what_a_peer_said_before_it_went_is_not_lost() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sent, got = [ChunkGone(n, 0) for n in range(10_000)], []

    async def run() -> None:
        wire = Wire(right, lambda message, fds: got.append(message), lambda error: None)
        left.sendall(b"".join(map(encode, sent)))
        left.close()
        wire.drain()
        assert not wire.open

    asyncio.run(run())
    assert got == sent


def test_the_end_of_the_peer_is_told_once_and_later() -> None:
    async def scene(wire: Wire, _: socket.socket, got: list[object]) -> None:
        wire.close()
        await until(lambda: len(got) == 1)
        wire.send(ChunkGone(1, 0))  # to nobody

    assert play(scene) == [None]
