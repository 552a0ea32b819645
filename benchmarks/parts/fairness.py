"""Part fairness: programs that do the same get as far as each other in any few seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.bench import Bench, Team, attempted, everybody, load, sharing, teams
from benchmarks.rows import AtMost, Row

GOAL = (AtMost(5.0),)
SHIFT = 0.1  # of a window, between the beginnings of two


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, sharing(bench), bench.clients) as sides:
        yield from attempted("fairness", "% apart", partial(look, bench, sides), *sides.values())


def look(bench: Bench, sides: dict[str, Team]) -> Iterator[Row]:
    """Each side works once, and each program waits for every step, so that each has its moment."""
    load(bench.scale, everybody(sides), f"decoder-{bench.middle}-bf16")
    found = {side: [largest_deviation(bench, one)] for side, one in sides.items()}
    window = f"any {bench.scale.fairness_window:g} s"
    yield Row(f"{bench.clients} equal clients, steps in {window}", "% apart", found, GOAL)


def largest_deviation(bench: Bench, one: Team) -> float:
    ends = [answer["ends"] for answer in one.trace(bench.scale.fairness)]
    return 100 * max(deviations(ends, bench.scale.fairness_window))


def deviations(ends: Sequence[Sequence[float]], window: float) -> Iterator[float]:
    """For windows that slide over the moments of all programs' steps: how far one is off the mean.

    Relative to the mean; only windows in which all were at work. At least one is looked at.
    """
    start, last = max(one[0] for one in ends), min(one[-1] for one in ends)
    shifts = max(1, 1 + int((last - start - window) / (window * SHIFT)))
    for begin in (start + at * window * SHIFT for at in range(shifts)):
        counts = [bisect_left(one, begin + window) - bisect_left(one, begin) for one in ends]
        mean = sum(counts) / len(counts)
        yield max(abs(count - mean) for count in counts) / max(mean, 1.0)
