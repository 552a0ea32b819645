"""Measures the same thing here and natively in turns, so that both meet the same machine."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.checks.programs import Program
from benchmarks.checks.ratios import Ratio


def in_turns(rounds: int, native: Callable[[], float], ours: Callable[[], float]) -> Ratio:
    """Seconds of both, once each a round; one round more, the first, is not counted."""
    native(), ours()
    pairs = [(native(), ours()) for _ in range(rounds)]
    return Ratio([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def timed(program: Program, request: str, amount: int) -> Callable[[], float]:
    return lambda: float(program.ask(f"{request} {amount}", "seconds")["seconds"])


def compare(rounds: int, native: Program, ours: Program, request: str, amount: int) -> Ratio:
    return in_turns(rounds, timed(native, request, amount), timed(ours, request, amount))
