"""Part mixed: one program trains a large model while another generates text, on every side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.bench import Bench, Team, attempted, load, rate_of, sharing, teams
from benchmarks.rows import Row
from benchmarks.turns import in_turns

#: Which of the two programs, what is told of its answer, and in which unit.
FIGURES: tuple[tuple[str, int, str, Callable[[dict[str, Any]], float]], ...] = (
    ("training beside gpt2", 0, "steps/s", rate_of),
    ("gpt2 beside training", 1, "tokens/s", rate_of),
    ("gpt2 token beside training, median", 1, "ms", lambda one: 1e3 * float(one["median_s"])),
    ("gpt2 token beside training, p99", 1, "ms", lambda one: 1e3 * float(one["p99_s"])),
)


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, sharing(bench), 2) as sides:
        look = partial(compare, bench, sides)
        yield from attempted("training and gpt2", "", look, *sides.values())


def compare(bench: Bench, sides: dict[str, Team]) -> Iterator[Row]:
    """The tail is longer than a text, whose last tokens would else be alone."""
    scale = bench.scale
    for at, name in enumerate((f"decoder-{scale.sizes[-1]}-bf16", "gpt2")):
        load(scale, [one.programs[at] for one in sides.values()], name)
    windows = in_turns(
        bench.windows,
        {side: partial(one.go, scale.together, 3 * scale.tail) for side, one in sides.items()},
    )
    for name, which, unit, figure in FIGURES:
        figures = {side: [figure(one[which]) for one in found] for side, found in windows.items()}
        yield Row(name, unit, figures)
