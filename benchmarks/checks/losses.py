"""Says whether a training run computed what native runs compute. Values in, values out.

Two native runs of one program may differ themselves, where kernels add with atomics. So every step
has a distance that is allowed: what native runs were apart up to that step, which is nothing while
they agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

Losses = Sequence[float]


@dataclass(frozen=True)
class Judgement:
    holds: bool
    figure: str


def judge(losses: Losses, natives: Sequence[Losses], tolerance: float = 0.0) -> Judgement:
    """Compare a run with at least one native one; ``tolerance`` is relative, for every step."""
    lengths = {len(native) for native in natives}
    if lengths != {len(losses)}:
        return Judgement(False, f"{len(losses)} steps, natively {sorted(lengths)}")
    distances = [distance_to_nearest(*step) for step in zip(losses, *natives, strict=True)]
    spreads = list(running_spread(natives))
    for step, (distance, spread) in enumerate(zip(distances, spreads, strict=True)):
        if distance > max(spread, tolerance):
            return Judgement(False, _complaint(step, losses, natives[0], distance, spread))
    if not any(distances):
        return Judgement(True, f"bit-identical, {len(losses)} steps")
    spread = spreads[-1] if spreads else 0.0
    allowed = f"native's own {spread:.2g}" if spread > tolerance else f"{tolerance:.2g} allowed"
    return Judgement(True, f"{max(distances):.2g} apart, {allowed}")


def agree(runs: Sequence[Losses]) -> bool:
    """Whether all runs are bit-identical."""
    return all(list(run) == list(runs[0]) for run in runs)


def distance_to_nearest(loss: float, *natives: float) -> float:
    return min(distance(loss, native) for native in natives)


def distance(one: float, other: float) -> float:
    """Relative; nothing between equal values or two NaNs, infinite if only one is finite."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)) or other == 0:
        return math.inf
    return abs(one - other) / abs(other)


def running_spread(runs: Sequence[Losses]) -> Iterator[float]:
    """For every step, the largest distance between any two runs up to it."""
    largest = 0.0
    for step in zip(*runs, strict=True):
        pairs = (distance(*pair) for pair in combinations(step, 2))
        largest = max(largest, max(pairs, default=0.0))
        yield largest


def _complaint(
    step: int, losses: Losses, native: Losses, distance: float, spread: float
) -> str:  # fmt: skip
    return (
        f"step {step + 1}: {losses[step]!r}, natively {native[step]!r}: {distance:.2g} apart, "
        f"native runs {spread:.2g}"
    )
