"""What a check found, and what several of them say together. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ``seconds``: filled in by whoever timed it.

    ``cells``: where a case was compared, what native PyTorch and we gave, and the speed.
    """

    name: str
    verdict: Verdict
    figure: str
    seconds: float = 0.0
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemResult:
    """All checks of an item."""

    number: int
    name: str
    checks: Sequence[Check]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        return overall([check.verdict for check in self.checks])

    @property
    def figure(self) -> str:
        """The figure of the only check, else how many held and those that did not."""
        if len(self.checks) == 1:
            return self.checks[0].figure
        count = {v: sum(check.verdict is v for check in self.checks) for v in Verdict}
        parts = [f"{count[Verdict.PASS]} of {len(self.checks)} hold"]
        if count[Verdict.SKIP]:
            parts.append(f"{count[Verdict.SKIP]} skipped")
        failed = [check for check in self.checks if check.verdict is Verdict.FAIL]
        text = ", ".join(parts) + (f"; {failed[0].name}: {failed[0].figure}" if failed else "")
        others = ", ".join(check.name for check in failed[1:])
        return text + (f"; failed as well: {others}" if others else "")


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """FAIL if anything failed, SKIP if nothing was looked at, else PASS."""
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if Verdict.PASS in verdicts else Verdict.SKIP


def judged(name: str, holds: bool, figure: str) -> Check:
    return Check(name, Verdict.PASS if holds else Verdict.FAIL, figure)


def skipped(name: str, reason: str) -> Check:
    return Check(name, Verdict.SKIP, f"skipped: {reason}")
