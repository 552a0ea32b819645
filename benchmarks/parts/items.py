"""The parts, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.parts import solo
from benchmarks.rows import Row


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    run: Callable[[Bench], Iterator[Row]]


PARTS = (Part("solo", "one program: steps, tokens and their latency, against native", solo.run),)


def choose(text: str) -> list[Part]:
    """Parts by name, such as ``solo,memory``; all for nothing. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    names = [part.name for part in PARTS]
    if unknown := [word for word in words if word not in names]:
        raise ValueError(f"no part {unknown[0]!r}; there are {', '.join(names)}")
    return [part for part in PARTS if part.name in words or not words]
