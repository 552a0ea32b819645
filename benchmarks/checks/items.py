"""The items, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.checks import (
    cases,
    copies,
    exact,
    faults,
    footprint,
    kills,
    limits,
    loading,
    sanitizer,
    speed,
    together,
)
from benchmarks.checks.context import Context
from benchmarks.checks.results import Check
from benchmarks.checks.runner import Item


def _cases(suites: Sequence[cases.Suite]) -> Callable[[Context], Iterator[Check]]:
    return partial(cases.run, suites)


ITEMS = (
    Item(1, "exact", "every loss of demos and trainings as natively", 300, exact.run),
    Item(2, "together", "four clients at once compute what they compute alone", 180, together.run),
    Item(3, "footprint", "one process on the GPU, little memory beyond tensors", 90, footprint.run),
    Item(4, "kills", "clients killed in mid-kernel: memory back, others exact", 240, kills.run),
    Item(5, "faults", "a fault ends its client; others keep memory and go on", 180, faults.run),
    Item(6, "limits", "quota, properties, out of memory, allocate and free", 120, limits.run),
    Item(7, "copies", "copies of every size and way, and their bandwidth", 240, copies.run),
    Item(8, "sanitizer", "compute-sanitizer finds nothing in the worker", 300, sanitizer.run),
    Item(9, "speed", "times beside native ones, alone and four at once", 480, speed.run),
    Item(10, "vision", "convolutional networks and their parts", 300, _cases(cases.VISION)),
    Item(11, "recurrent", "recurrent layers and CTC loss", 240, _cases(cases.RECURRENT)),
    Item(12, "language", "transformers, peft, accelerate, lightning", 300, _cases(cases.LANGUAGE)),
    Item(13, "attention", "every backend; eight-bit products", 240, _cases(cases.ATTENTION)),
    Item(14, "loaders", "loaders, streams, events, pinned memory", 300, loading.run),
    Item(15, "fallbacks", "second choices and errors as natively", 240, _cases(cases.FALLBACKS)),
    Item(16, "programs", "linalg, fft, sparse, graphs, IPC, ...", 400, _cases(cases.PROGRAMS)),
)


def choose(text: str) -> list[Item]:
    """Items by numbers and names, such as ``1,3,speed``; all for nothing. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = {**{str(item.number): item for item in ITEMS}, **{item.name: item for item in ITEMS}}
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"no item {unknown[0]!r}; there are {', '.join(known)}")
    return [item for item in ITEMS if {str(item.number), item.name} & set(words) or not words]
