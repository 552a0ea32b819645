"""A figure measured on several sides in turns, its ratios and targets. Values in, values out.

A window of ours is compared with the window of the other side in the same turn; a ratio above 1
always means that ours is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

NATIVE, SLICES, MPS, OURS = "native", "time_slices", "mps", "ours"
SIDES = (NATIVE, SLICES, MPS, OURS)

#: Units in which less is better; in others more is.
LESS_IS_BETTER = {"s", "ms", "us", "ns", "MB", "% CPU", "% apart"}


@dataclass(frozen=True)
class Ratio:
    """Ours to the other side's, above 1 if ours is better: one for each turn."""

    turns: Sequence[float]

    @property
    def value(self) -> float:
        return statistics.median(self.turns)

    def text(self) -> str:
        """Such as ``1.18 (1.15-1.21)``; near 1 with as many digits as tell on which side it is."""
        digits = 4 if 0.995 < self.value < 1.005 else 2
        return "{:.{n}f} ({:.{n}f}-{:.{n}f})".format(
            self.value, min(self.turns), max(self.turns), n=digits
        )


@dataclass(frozen=True)
class AtLeast:
    """Ours is at least so many times as good as the other side."""

    against: str
    bound: float

    def text(self) -> str:
        return f"≥ {self.bound:.2f}"

    def met(self, row: Row) -> bool:
        return row.ratio(self.against).value >= self.bound


@dataclass(frozen=True)
class Beyond:
    """Ours exceeds the other side by at most so much, in the unit of the row."""

    against: str
    bound: float

    def text(self) -> str:
        return f"≤ {self.bound:g} over"

    def met(self, row: Row) -> bool:
        pairs = zip(row.windows[OURS], row.windows[self.against], strict=True)
        return statistics.median(ours - other for ours, other in pairs) <= self.bound


@dataclass(frozen=True)
class AtMost:
    """Ours itself, in the unit of the row, is at most so much."""

    bound: float
    against = None

    def text(self) -> str:
        return f"≤ {self.bound:g}"

    def met(self, row: Row) -> bool:
        return row.value(OURS) <= self.bound


Target = AtLeast | Beyond | AtMost


@dataclass(frozen=True)
class Row:
    """``windows``: by side, as many figures each; empty with a ``note`` that says why."""

    name: str
    unit: str
    windows: Mapping[str, Sequence[float]] = field(default_factory=dict)
    targets: Sequence[Target] = ()
    clients: int = 0  # of a row that is a point of a curve, see ``point``
    note: str = ""
    failed: bool = False

    def value(self, side: str) -> float:
        return statistics.median(self.windows[side])

    def ratio(self, against: str) -> Ratio:
        pairs = zip(self.windows[OURS], self.windows[against], strict=True)
        return Ratio([quotient(*pair, self.unit) for pair in pairs])

    @property
    def curve(self) -> str:
        """That it is a point of; nothing if it is none."""
        return self.name.rpartition(", ")[0] if self.clients else ""

    @property
    def others(self) -> list[str]:
        """Sides that ours was compared with."""
        return [side for side in SIDES if side in self.windows and side != OURS]

    def verdicts(self) -> Iterator[tuple[Target, bool | None]]:
        """Whether each target was met; None where its side was not measured."""
        for target in self.targets:
            known = OURS in self.windows and (target.against or OURS) in self.windows
            yield target, target.met(self) if known else None


def point(
    curve: str, clients: int, unit: str, windows: Mapping[str, Sequence[float]]
) -> Row:  # fmt: skip
    """A figure that depends on the number of clients."""
    return Row(f"{curve}, {clients} clients", unit, windows, clients=clients)


def quotient(ours: float, other: float, unit: str) -> float:
    """How many times as good ours is; two figures of nothing are equally good."""
    better, worse = (other, ours) if unit in LESS_IS_BETTER else (ours, other)
    if worse == 0:
        return 1.0 if better == 0 else float("inf")
    return better / worse


def failed(name: str, unit: str, reason: str) -> Row:
    return Row(name, unit, note=f"failed: {reason}", failed=True)


def skipped(name: str, unit: str, reason: str) -> Row:
    return Row(name, unit, note=f"skipped: {reason}")
