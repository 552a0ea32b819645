"""Part together: several programs train at once; their steps in sum, on every side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench, Team, attempted, everybody, load, sharing, teams
from benchmarks.rows import MPS, SLICES, AtLeast, Row
from benchmarks.turns import in_turns

TARGETS = {
    "tiny": (AtLeast(MPS, 1.05),),
    "base": (AtLeast(MPS, 1.05),),
    "large": (AtLeast(MPS, 1.0), AtLeast(SLICES, 1.4)),
}


def run(bench: Bench) -> Iterator[Row]:
    """All programs of all sides start together and stay; one side at a time works."""
    with teams(bench, sharing(bench), bench.clients) as sides:
        for size in bench.scale.sizes:
            name = f"{bench.clients} x decoder {size} bf16"
            look = partial(compare, bench, sides, size, name)
            yield from attempted(name, "steps/s", look, *sides.values())


def compare(bench: Bench, sides: dict[str, Team], size: str, name: str) -> Iterator[Row]:
    scale = bench.scale
    load(scale, everybody(sides), f"decoder-{size}-bf16")
    windows = in_turns(
        bench.windows,
        {side: partial(one.rate, scale.together, scale.tail) for side, one in sides.items()},
    )
    yield Row(name, "steps/s", windows, TARGETS[size])
