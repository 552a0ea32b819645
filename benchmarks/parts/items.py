"""The parts, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.parts import curve, fairness, idle, memory, mixed, small, solo, start, together
from benchmarks.rows import Row


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    run: Callable[[Bench], Iterator[Row]]


PARTS = (
    Part("solo", "one program: steps, tokens and their latency, against native", solo.run),
    Part("small", "one operation, one wait, one copy, against native", small.run),
    Part("start", "process start to first kernel, against native and MPS", start.run),
    Part("together", "programs that train at once, against time slices and MPS", together.run),
    Part("mixed", "training beside text generation, against time slices and MPS", mixed.run),
    Part("curve", "one program, two, ...: steps in sum, and the server's processors", curve.run),
    Part("fairness", "programs that do the same get equally far", fairness.run),
    Part("memory", "memory beyond tensors, on the GPU and on the host", memory.run),
    Part("idle", "the server's processors while all clients are idle", idle.run),
)


def choose(text: str) -> list[Part]:
    """Parts by name, such as ``solo,memory``; all for nothing. Raises ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    names = [part.name for part in PARTS]
    if unknown := [word for word in words if word not in names]:
        raise ValueError(f"no part {unknown[0]!r}; there are {', '.join(names)}")
    return [part for part in PARTS if part.name in words or not words]
