"""Part start: from a process's start to its first finished kernel, without the import of torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.bench import FIRST_KERNEL, Bench, Place, attempted, place
from benchmarks.rows import MPS, NATIVE, OURS, AtMost, Row, Target
from benchmarks.turns import in_turns

NAME = "process start to first kernel, without import"

#: What is told of an answer, in milliseconds.
FIGURES: dict[str, tuple[Callable[[dict[str, Any]], float], tuple[Target, ...]]] = {
    NAME: (lambda one: one["done"] - one["begun"] - one["import_s"], (AtMost(100.0),)),
    "import to first kernel": (lambda one: one["first_s"], ()),
    "import torch": (lambda one: one["import_s"], ()),
}


def run(bench: Bench) -> Iterator[Row]:
    yield from attempted(NAME, "ms", partial(starts, bench))


def starts(bench: Bench) -> Iterator[Row]:
    """Each window is a process of its own, one at a time; the server is warm."""
    sides = (NATIVE, MPS, OURS) if bench.has_mps else (NATIVE, OURS)
    with ExitStack() as stack:
        places = {side: stack.enter_context(place(bench, side, 1)) for side in sides}
        windows = in_turns(
            bench.windows, {side: partial(first, one) for side, one in places.items()}
        )
    for name, (figure, targets) in FIGURES.items():
        found = {side: [1e3 * figure(one) for one in answers] for side, answers in windows.items()}
        yield Row(name, "ms", found, targets)


def first(place: Place) -> dict[str, Any]:
    begun = time.monotonic()
    with place.start(FIRST_KERNEL) as program:
        answer = program.answer("done")
        program.finish()
    return {**answer, "begun": begun}
