"""Part fairness: programs that do the same get as far as each other in any few seconds.

With large models the GPU is what they share. Smaller ones are bound by the processor that each
program's own thread happens to have, and no way of sharing a GPU makes these equal. How unequal the
machine's processors are, loops show that use nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench, Team, attempted, everybody, load, sharing, teams
from benchmarks.rows import SLICES, AtMost, Row, Target

GOAL = (AtMost(5.0),)
SHIFT = 0.1  # of a window, between the beginnings of two


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, sharing(bench), bench.clients) as sides:
        for size in dict.fromkeys([bench.scale.sizes[-1], bench.middle]):
            yield from look(bench, sides, f"decoders {size}", f"decoder-{size}-bf16", GOAL)
        yield from look(bench, {SLICES: sides[SLICES]}, "loops without a GPU", "loop", ())


def look(
    bench: Bench, sides: dict[str, Team], what: str, workload: str, goal: Sequence[Target]
) -> Iterator[Row]:
    """Each side works once."""

    def rows() -> Iterator[Row]:
        load(bench.scale, everybody(sides), workload)
        found = {side: [largest_distance(bench, one)] for side, one in sides.items()}
        window = f"any {bench.scale.fairness_window:g} s"
        yield Row(f"{bench.clients} equal {what}, steps in {window}", "% apart", found, goal)

    yield from attempted("fairness", "% apart", rows, *sides.values())


def largest_distance(bench: Bench, one: Team) -> float:
    ends = [answer["ends"] for answer in one.trace(bench.scale.fairness)]
    return 100 * max(distances(ends, bench.scale.fairness_window))


def distances(ends: Sequence[Sequence[float]], window: float) -> Iterator[float]:
    """For windows that slide over the moments of all programs' steps: the most less the fewest.

    Relative to the mean; only windows in which all were at work. At least one is looked at.
    """
    start, last = max(one[0] for one in ends), min(one[-1] for one in ends)
    shifts = max(1, 1 + int((last - start - window) / (window * SHIFT)))
    for begin in (start + at * window * SHIFT for at in range(shifts)):
        counts = [bisect_left(one, begin + window) - bisect_left(one, begin) for one in ends]
        mean = sum(counts) / len(counts)
        yield (max(counts) - min(counts)) / max(mean, 1.0)
