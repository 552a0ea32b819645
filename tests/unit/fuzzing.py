"""Mutated inputs for everything that reads what a client or a file says.

How this works: a target reads bytes and may refuse them with the one exception it documents. Its
inputs start as the kept corpus (tests/corpus/<target>) and are mutated, by a seeded generator; an
input that is refused in a new way is mutated further. scripts/fuzz runs targets for longer.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import golden
from cubin_images import FakeCubin, FakeKernel, cubin

from mnemosyne.cubin import Arch, CubinError, choose_entry, find_spans, read_fatbin, unpack
from mnemosyne.cubin.elf import read_elf
from mnemosyne.cubin.layout import read_layout
from mnemosyne.cubin.library import read_span
from mnemosyne.protocol import ProtocolError, control, frames

CORPUS = Path(__file__).parents[1] / "corpus"
SECONDS = 10  # after which an input counts as one that hangs its reader
DEVICE = Arch.parse("sm_90")


class Hang(BaseException):
    """A reader did not come back."""


@dataclass(frozen=True)
class Target:
    """``read`` raises ``refusal`` or nothing."""

    name: str
    read: Callable[[bytes], None]
    refusal: type[Exception]

    def corpus(self) -> list[Path]:
        return sorted(path for path in (CORPUS / self.name).iterdir() if path.is_file())

    def outcome(self, data: bytes) -> str:
        """How the input is refused, without its numbers; empty when it is taken."""
        try:
            with _limit():
                self.read(data)
        except self.refusal as error:
            return re.sub(r"\d+|'.*'", "#", str(error)) or "refused"
        return ""


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang(f"no answer in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_frame(data: bytes) -> None:
    message, values = frames.decode(data)
    assert len(values) == len(message.fields)


def _read_control(data: bytes) -> None:
    """Whole streams, in two pieces, and single bodies."""
    with suppress(ProtocolError):
        control.decode(data[4:])
    reader = control.Reader(1 << 16)
    reader.feed(data[: len(data) // 2])
    reader.feed(data[len(data) // 2 :])


def _read_fatbin(data: bytes) -> None:
    entries = read_fatbin(data)
    for entry in entries:
        with suppress(CubinError):
            assert len(unpack(entry)) <= max(entry.unpacked_bytes, len(entry.payload))
    choose_entry(entries, DEVICE)


def _read_elf(data: bytes) -> None:
    elf = read_elf(data, "cubin")
    for section in elf.sections:
        with suppress(CubinError):
            assert len(elf.data(section)) == section.size
    assert all(symbol.name.isprintable() for symbol in elf.symbols(frozenset(range(16))))


def _read_cubin(data: bytes) -> None:
    for kernel in read_layout(data).kernels.values():
        assert all(offset + size <= kernel.param_bytes for offset, size in kernel.params)


def _read_info(data: bytes) -> None:
    """The records of one kernel, in a cubin that is sound otherwise."""
    _read_cubin(cubin(FakeCubin([FakeKernel(info=data)])))


def _read_library(data: bytes) -> None:
    """A library's file: the fatbins in it."""
    fd = os.memfd_create("library")
    try:
        os.write(fd, data)
        path = Path(f"/proc/self/fd/{fd}")
        for span in find_spans(path):
            read_fatbin(read_span(path, span))
    finally:
        os.close(fd)


TARGETS = {
    target.name: target
    for target in (
        Target("frames", _read_frame, ProtocolError),
        Target("control", _read_control, ProtocolError),
        Target("fatbin", _read_fatbin, CubinError),
        Target("elf", _read_elf, CubinError),
        Target("cubin", _read_cubin, CubinError),
        Target("info", _read_info, CubinError),
        Target("library", _read_library, CubinError),
    )
}


class Fuzzer:
    """Inputs for one target without end. The same seed gives the same inputs."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.random = random.Random(f"{target.name} {seed}")
        self.pool = [path.read_bytes() for path in target.corpus()]
        if target.name == "frames":
            self.pool += golden_frames()
        self.outcomes = {target.outcome(data) for data in self.pool}

    def next_input(self) -> bytes:
        return mutate(self.random, self.random.choice(self.pool), self.pool)

    def try_input(self, data: bytes) -> None:
        """Anything but the target's refusal comes through."""
        outcome = self.target.outcome(data)
        if outcome not in self.outcomes:
            self.outcomes.add(outcome)
            self.pool.append(data)


def golden_frames() -> list[bytes]:
    """Frames that are short enough to be mutated quickly."""
    kept = golden.kept("frames.txt")
    return [frame for text, frame in kept if not text.startswith("reply ") and len(frame) < 1000]


INTERESTING = [0, 1, 2, 15, 16, 127, 128, 255, 256, 4095, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1,
               2**32, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip


def mutate(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """One to four mutations of ``data``, which may take pieces of the others."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_MUTATIONS)(rng, changed, others)
    return bytes(changed)


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randint(0, len(data))


def _set_byte(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    data[at : at + 1] = rng.randbytes(1)


def _flip_bit(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_number(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at, width = _place(rng, data), rng.choice((1, 2, 4, 8))
    number = rng.choice(INTERESTING) % (1 << 8 * width)
    data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))


def _add_to_byte(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    if data:
        at = rng.randrange(len(data))
        data[at] = (data[at] + rng.choice((-2, -1, 1, 2, 8))) % 256


def _insert(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8)))


def _delete(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _repeat(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    at, end = _place(rng, data), _place(rng, data)
    piece = data[at : min(end, at + 64)]
    data[at:at] = piece * rng.choice((1, 2, 16))


def _truncate(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    del data[_place(rng, data) :]


def _splice(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    other = rng.choice(others)
    at = _place(rng, data)
    data[at:] = other[rng.randint(0, len(other)) :]


_MUTATIONS = [
    _set_byte, _flip_bit, _set_number, _set_number, _add_to_byte, _insert, _delete, _repeat,
    _truncate, _splice,
]  # fmt: skip
