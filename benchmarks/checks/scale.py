"""How much of everything is done: quick tries the checker out, full takes as long as it takes."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Scale:
    steps: int  # of a training that is compared
    sizes: tuple[str, ...]  # of models that are compared
    timed_sizes: tuple[str, ...]  # of models that are timed
    shared_sizes: tuple[str, ...]  # of models that four programs train at once
    window: int  # steps of a training between two turns
    shared_seconds: float  # that four programs train at once between two turns
    rounds: int  # of a figure that is measured in turns
    kills: int
    victim_bytes: int
    chain_seconds: float  # of kernels that a victim has enqueued
    held_bytes: int  # of checksummed memory beside a fault
    quota: str
    cycles: int  # of allocating and freeing
    copies: tuple[int, ...]  # bytes
    bandwidth_bytes: int
    repeats: int  # of a small operation that is timed
    tiny_cases: bool  # of users' models
    batches: int  # that a loader gives between two turns


QUICK = Scale(
    steps=3, sizes=("tiny",), timed_sizes=("tiny",), shared_sizes=("tiny",), window=2,
    shared_seconds=1.0, rounds=2, kills=2, victim_bytes=16 * MIB, chain_seconds=0.5,
    held_bytes=16 * MIB, quota="256MiB", cycles=200, copies=(1, 3, 4 * KIB, MIB),
    bandwidth_bytes=16 * MIB, repeats=200, tiny_cases=True, batches=8,
)  # fmt: skip
NORMAL = Scale(
    steps=100, sizes=("tiny", "base"), timed_sizes=("tiny", "base", "large"),
    shared_sizes=("base",), window=30, shared_seconds=3.0, rounds=5, kills=20,
    victim_bytes=GIB, chain_seconds=1.0, held_bytes=10 * GIB, quota="4GiB", cycles=10_000,
    copies=(1, 3, 4 * KIB, MIB, 100 * MIB + 1, 5 * GIB), bandwidth_bytes=256 * MIB,
    repeats=5_000, tiny_cases=False, batches=200,
)  # fmt: skip
FULL = Scale(
    steps=100, sizes=("tiny", "base"), timed_sizes=("tiny", "base", "large"),
    shared_sizes=("tiny", "base", "large"), window=100, shared_seconds=8.0, rounds=9, kills=20,
    victim_bytes=GIB, chain_seconds=2.0, held_bytes=10 * GIB, quota="4GiB", cycles=10_000,
    copies=(1, 3, 4 * KIB, MIB, 100 * MIB + 1, 5 * GIB), bandwidth_bytes=1 * GIB,
    repeats=20_000, tiny_cases=False, batches=600,
)  # fmt: skip
SCALES = {"quick": QUICK, "normal": NORMAL, "full": FULL}
