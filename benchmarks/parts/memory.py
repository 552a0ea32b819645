"""Part memory: what programs take beyond their tensors, on the GPU and on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import psutil

from benchmarks.bench import WORKLOADS, Bench, Team, attempted, load, place
from benchmarks.rows import MPS, NATIVE, OURS, AtLeast, Row, point
from benchmarks.usage import resident

GOAL = (AtLeast(NATIVE, 1.0),)
PAUSE, LOOKS = 0.5, 20  # seconds between two looks, and how many
BEYOND = "GPU memory beyond tensors"


@dataclass
class Use:
    """Of the programs of one side, in MB."""

    beyond: list[float] = field(default_factory=list)  # on the GPU, with one program, two, ...
    private: list[float] = field(default_factory=list)  # each program's, shared pages in part (PSS)
    resident: list[float] = field(default_factory=list)  # each program's with all pages (RSS)
    server: float = 0.0  # PSS


def run(bench: Bench) -> Iterator[Row]:
    yield from attempted("memory", "MB", partial(look, bench))


def look(bench: Bench) -> Iterator[Row]:
    """One side after the other: the driver tells the memory of all processes in sum."""
    names = (NATIVE, OURS, MPS) if bench.has_mps else (NATIVE, OURS)
    uses = {side: use_of(bench, side) for side in names}
    for at in range(len(uses[OURS].beyond)):
        found = {side: [use.beyond[at]] for side, use in uses.items()}
        yield point(BEYOND, at + 1, "MB", found)
    if bench.on_gpu:
        ends = {NATIVE: uses[NATIVE].beyond[:1], OURS: uses[OURS].beyond[-1:]}
        yield Row(f"{BEYOND}, {bench.scale.most} clients, one native program", "MB", ends, GOAL)
    private = {side: use.private for side, use in uses.items()}
    yield Row("host memory of a client, PSS", "MB", private, GOAL)
    yield Row("host memory of a client, RSS", "MB", {s: u.resident for s, u in uses.items()}, GOAL)
    yield Row("host memory of the server, PSS", "MB", {OURS: [uses[OURS].server]})


def use_of(bench: Bench, side: str) -> Use:
    """All programs import PyTorch side by side; then one after another begins to train."""
    use = Use()
    empty = settled(partial(used_on_gpu, bench))
    with ExitStack() as stack:
        where = stack.enter_context(place(bench, side, bench.scale.most))
        programs = Team(where, WORKLOADS, bench.scale.most, stack)
        for count in range(1, bench.scale.most + 1):
            load(bench.scale, [programs.programs[count - 1]], f"decoder-{bench.middle}-bf16")
            reserved = programs.ask("memory", "reserved", count)
            if bench.on_gpu:
                tensors = sum(float(one["reserved"]) for one in reserved)
                use.beyond.append((used_on_gpu(bench) - empty - tensors) / 1e6)
        found = [resident(psutil.Process(program.pid)) for program in programs.programs]
        use.private, use.resident = ([one[at] / 1e6 for one in found] for at in (0, 1))
        use.server = sum(resident(one)[0] / 1e6 for one in where.server_processes())
    return use


def settled(used: Callable[[], float]) -> float:
    """What is in use once it stays so: the memory of processes that ended goes a little later."""
    before = used()
    for _ in range(LOOKS):
        time.sleep(PAUSE)
        if (now := used()) == before:
            break
        before = now
    return before


def used_on_gpu(bench: Bench) -> float:
    return float(bench.machine.gpu.used()) if bench.on_gpu and bench.machine.gpu else 0.0
