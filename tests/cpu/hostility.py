"""Hostile clients by the thousand beside one that trains: see scripts/fuzz-frames.

How this works: mutated golden frames go, session after session, into the ring of a real server. A
session ends with its first malformed frame, for the reason that ``decode`` gives here, or else with
an attack on the ring itself. The bystander trains the same model from the same seed again and
again, and prints the losses of each round.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from conftest import ROOT
from fuzzing import golden_frames, mutate
from logged_server import LoggedServer
from ring import COMPLETED, HEAD, MESSAGES, RING, RING_BYTES, SERVER_SLEEPS, SLOTS, RingClient

from mnemosyne.cli import client_library
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.frames import decode, encode

LENGTHS = (1, 1, 3, 30)  # sound frames in a session before it attacks the ring

TRAINING = """
import sys, torch
def train():
    torch.manual_seed(7)
    layers = torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(48, 5)
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(10):
        x, y = torch.randn(64, 24, device="cuda"), torch.randint(5, (64,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item().hex()
while sys.stdin.readline():
    print(*train(), flush=True)
"""


class Bystander:
    """A PyTorch program that trains. Every round must have the losses of its first one."""

    def __init__(self, socket: Path) -> None:
        environment = {
            **os.environ, "LD_PRELOAD": str(client_library()), "MNEMOSYNE_SOCKET": str(socket),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", TRAINING], env=environment, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.losses = self._round()
        assert len(set(self.losses.split())) == 10, self.losses
        self.rounds = 0
        self._lock = Lock()
        self._trainer = ThreadPoolExecutor(1)
        self._training: Future[None] | None = None

    def _round(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("train\n")
        return self._process.stdout.readline()

    def train(self) -> None:
        """Begins another round, unless one is not over yet."""
        with self._lock:
            if self._training is None or self._training.done():
                self.wait()
                self._training = self._trainer.submit(self._compare)

    def wait(self) -> None:
        """Raises AssertionError when the last round was disturbed."""
        if self._training is not None:
            self._training.result()

    def _compare(self) -> None:
        losses = self._round()
        self.rounds += 1
        assert losses == self.losses, f"round {self.rounds}: {losses}undisturbed: {self.losses}"

    def __enter__(self) -> Bystander:
        return self

    def __exit__(self, *_: object) -> None:
        self._trainer.shutdown()
        self._process.communicate()
        self.wait()


@dataclass
class Hostility:
    """Sends ``count`` mutated frames in all; what came of them is counted."""

    server: LoggedServer
    seed: int
    malformed: int = 0
    sound: int = 0
    sessions: int = 0
    ended: int = 0  # for breaking the protocol
    attacks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._pool = golden_frames()

    def frames(self, count: int) -> list[bytes]:
        pool = self._pool
        return [mutate(self._random, self._random.choice(pool), pool) for _ in range(count)]

    def send(self, frames: list[bytes]) -> None:
        """All of them, in as many sessions as it takes."""
        left = iter(frames)
        while self._session(left):
            pass

    def _session(self, frames: Iterator[bytes]) -> bool:
        """One session's frames; False when there are no more."""
        client = self._attach()
        try:
            for count in range(1, self._random.choice(LENGTHS) + 1):
                frame = next(frames, None)
                if frame is None:
                    client.drain()
                    self.ended += bool(client.dead)  # by a field of its last frames
                    return False
                client.put(frame, reply=self._random.choice((-1, -1, 0, 63)))
                reason = complaint(frame)
                self.malformed += bool(reason)
                self.sound += not reason
                if reason or client.dead:
                    self._expect_end(client, count, reason)
                    return True
            name = self._random.choice(list(ATTACKS))
            self._attack(client, name)
        finally:
            client.close()
        return True

    def attack(self, name: str) -> None:
        """One session that does nothing else."""
        client = self._attach()
        try:
            self._attack(client, name)
        finally:
            client.close()

    def _attach(self) -> RingClient:
        """Ended sessions may take a moment to make room."""
        for _ in range(10_000):
            try:
                client = self.server.client()
            except AssertionError as error:
                if "slots are in use" not in str(error):
                    raise
            else:
                self.sessions += 1
                return client
        raise AssertionError("ended sessions make no room for others")

    def _expect_end(self, client: RingClient, count: int, reason: str) -> None:
        """The server names this frame and the reason, or a sound frame before it with a field that
        its handler does not allow."""
        self.ended += 1
        said = client.wait_dead()
        assert said.startswith("the server ended this session, frame "), said
        number, _, text = said.removeprefix("the server ended this session, frame ").partition(": ")
        assert int(number) <= count, said
        if int(number) == count and reason:
            assert reason.startswith(text), (said, reason)

    def _attack(self, client: RingClient, name: str) -> None:
        self.attacks[name] = self.attacks.get(name, 0) + 1
        client.drain()
        self.ended += 1
        expected = "the server ended this session, "
        if not client.dead:  # by a field of its last frames
            ATTACKS[name](client, self._random)
            expected += "" if name == MIXED else "after frame "
        assert client.wait_dead().startswith(expected), (name, client.dead)


def complaint(frame: bytes) -> str:
    """Why a frame is malformed, as a session's end says it; empty when it is not."""
    try:
        decode(frame)
    except ProtocolError as error:
        return str(error)
    return ""


def _record(client: RingClient, size: int, reply: int, moved: int) -> None:
    at = RING + client.head % RING_BYTES
    struct.pack_into("<Ii", client.map, at, size, reply)
    client.move_head(client.head + moved)


def _size_too_large(client: RingClient, rng: random.Random) -> None:
    _record(client, rng.choice([(1 << 20) + 1, 1 << 22, 1 << 31, 0xFFFFFFFE]), -1, 1 << 21)


def _size_past_the_head(client: RingClient, rng: random.Random) -> None:
    _record(client, rng.choice([9, 64, 4096]), -1, 16)


def _size_past_the_end(client: RingClient, rng: random.Random) -> None:
    """The record lies before the ring's end, and its frame would go on behind it."""
    filling = encode(MESSAGES["copy_inline"], 4096, bytes(600_000), 0)
    while (to_end := RING_BYTES - client.head % RING_BYTES) > 1_000_000:
        client.put(filling)
    client.drain()
    _record(client, to_end + 8 * rng.randint(0, 1000), -1, to_end + 10_000)


def _reply_slot(client: RingClient, rng: random.Random) -> None:
    sound = encode(MESSAGES["cudaDeviceSynchronize"])
    client.put(sound, reply=rng.choice([64, 65, -2, 2**31 - 1, -(2**31)]))


def _skip_past_the_head(client: RingClient, rng: random.Random) -> None:
    client.put(encode(MESSAGES["cudaDeviceSynchronize"]))
    _record(client, 0xFFFFFFFF, -1, 8 * rng.randint(1, 100))


def _head(client: RingClient, rng: random.Random) -> None:
    head = client.head
    wrong = rng.choice([head + RING_BYTES + 8, head + 4, head - 8, 2**64 - 8])
    client.move_head(wrong % 2**64)


def _scribble(client: RingClient, rng: random.Random) -> None:
    """Writes anywhere but where the reason of the end will be, while the server reads it."""
    places = [HEAD, COMPLETED, COMPLETED + 8, SERVER_SLEEPS, *range(SLOTS, SLOTS + 4096, 8)]
    for _ in range(500):
        at = rng.choice([*places, RING + rng.randrange(0, 4096, 8)])
        number = rng.choice([0, 8, 16, 64, 0xFFFFFFFF, rng.getrandbits(64)])
        struct.pack_into("<Q", client.map, at, number)
    client.map[SERVER_SLEEPS : SERVER_SLEEPS + 4] = b"\1\0\0\0"  # so that it is woken
    client.move_head(2**64 - 8)


MIXED = "memory that changes"  # it may hold frames, too
ATTACKS: dict[str, Callable[[RingClient, random.Random], None]] = {
    "a size that no frame has": _size_too_large,
    "a frame past the head": _size_past_the_head,
    "a frame past the ring's end": _size_past_the_end,
    "a reply slot that does not exist": _reply_slot,
    "a skip past the head": _skip_past_the_head,
    "an impossible head": _head,
    MIXED: _scribble,
}
