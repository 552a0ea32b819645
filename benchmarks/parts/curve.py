"""Part curve: one program, two, and so on; their steps in sum and what the server's CPUs do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench, Team, attempted, load, sharing, teams
from benchmarks.rows import OURS, Row, point
from benchmarks.turns import in_turns
from benchmarks.usage import watched


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, sharing(bench), bench.scale.most) as sides:
        for count in range(1, bench.scale.most + 1):
            look = partial(compare, bench, sides, count)
            yield from attempted(f"{count} clients", "steps/s", look, *sides.values())


def compare(bench: Bench, sides: dict[str, Team], count: int) -> Iterator[Row]:
    """Fewer windows than elsewhere: each of the counts is a measurement of its own."""
    programs = [program for one in sides.values() for program in one.programs[:count]]
    load(bench.scale, programs, f"decoder-{bench.middle}-bf16")
    windows = in_turns(
        (bench.windows + 1) // 2,
        {side: partial(measure, bench, one, count) for side, one in sides.items()},
    )
    rates = {side: [rate for _, rate in found] for side, found in windows.items()}
    yield point(f"decoder {bench.middle} bf16 in sum", count, "steps/s", rates)
    shares = {OURS: [share for share, _ in windows[OURS]]}
    yield point("server's processors", count, "% CPU", shares)


def measure(bench: Bench, one: Team, count: int) -> tuple[float, float]:
    """Per cent of a CPU that the server uses, and steps per second."""
    work = partial(one.rate, bench.scale.alone, bench.scale.tail, count)
    return watched(one.place.server_processes(), work)
