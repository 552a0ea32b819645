"""How a figure of ours stands to native's, measured in turns. Values in, values out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """Times of the same work, one pair for each round; above 1 ours is faster."""

    native: Sequence[float]  # seconds
    ours: Sequence[float]  # seconds

    @property
    def rounds(self) -> list[float]:
        return [native / ours for native, ours in zip(self.native, self.ours, strict=True)]

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    def text(self) -> str:
        """Such as ``1.18x (1.15-1.21)``."""
        return f"{self.value:.2f}x ({min(self.rounds):.2f}-{max(self.rounds):.2f})"


def time_text(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def times(ratio: Ratio) -> str:
    native, ours = statistics.median(ratio.native), statistics.median(ratio.ours)
    return f"{ratio.text()}  {time_text(ours)}, native {time_text(native)}"


def bandwidths(ratio: Ratio, count: int) -> str:
    """The same for copies of ``count`` bytes."""
    native, ours = (count / statistics.median(side) / 1e9 for side in (ratio.native, ratio.ours))
    return f"{ratio.text()}  {ours:.3g} GB/s, native {native:.3g} GB/s"


def rates(ratio: Ratio) -> str:
    """The same for times that are those of one step."""
    native, ours = (1 / statistics.median(side) for side in (ratio.native, ratio.ours))
    return f"{ratio.text()}  {ours:.3g} steps/s, native {native:.3g} steps/s"
