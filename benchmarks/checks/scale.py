"""How much of everything is done: quick tries the checker out, full takes as long as it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import benchmarks.scale

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Scale:
    steps: int  # of a training that is compared
    sizes: tuple[str, ...]  # of models that are compared
    rounds: int  # of a figure that is measured in turns
    kills: int
    victim_bytes: int
    chain_seconds: float  # of kernels that a victim has enqueued
    held_bytes: int  # of checksummed memory beside a fault
    quota: str
    cycles: int  # of allocating and freeing
    copies: tuple[int, ...]  # bytes
    timed: benchmarks.scale.Scale  # of what is measured
    tiny_cases: bool  # of users' models
    batches: int  # that a loader gives between two turns


QUICK = Scale(
    steps=3, sizes=("tiny",), rounds=2, kills=2, victim_bytes=16 * MIB, chain_seconds=0.5,
    held_bytes=16 * MIB, quota="256MiB", cycles=200, copies=(1, 3, 4 * KIB, MIB),
    timed=benchmarks.scale.QUICK, tiny_cases=True, batches=8,
)  # fmt: skip
NORMAL = Scale(
    steps=100, sizes=("tiny", "base"), rounds=5, kills=20, victim_bytes=GIB, chain_seconds=1.0,
    held_bytes=10 * GIB, quota="4GiB", cycles=10_000,
    copies=(1, 3, 4 * KIB, MIB, 100 * MIB + 1, 5 * GIB),
    timed=replace(benchmarks.scale.NORMAL, kinds=("decoder",)), tiny_cases=False, batches=200,
)  # fmt: skip
FULL = replace(
    NORMAL, rounds=9, chain_seconds=2.0,
    timed=replace(NORMAL.timed, alone=2.0, together=8.0, copied=GIB), batches=600,
)  # fmt: skip
SCALES = {"quick": QUICK, "normal": NORMAL, "full": FULL}
