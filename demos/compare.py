"""Says whether a program that ran through Mnemosyne computed what plain PyTorch computes.

Values in, values out: this file must never start a process or print.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TOLERANCE = 2e-3  # float32 sums in another order differ by about 1e-4 after 100 steps


@dataclass(frozen=True)
class Run:
    """What a demo wrote with ``--json``."""

    name: str
    device: str  # "cpu" or "cuda"
    device_name: str
    torch: str
    steps_per_second: float
    losses: list[float]


@dataclass(frozen=True)
class Comparison:
    """Two runs of one demo; ``problem`` is None if the proxied one did what it should."""

    proxied: Run
    plain: Run
    difference: float  # the largest relative difference of any step's loss
    step: int  # the step that has it, from 1; 0 if no step can be compared
    problem: str | None


def compare(proxied: Run, plain: Run, steps: int, tolerance: float = TOLERANCE) -> Comparison:
    """Compare the two runs, each of which should have made ``steps`` steps."""
    pairs = zip(proxied.losses, plain.losses, strict=False)
    differences = [relative_difference(loss, expected) for loss, expected in pairs]
    worst = max(differences, default=math.inf)
    step = differences.index(worst) + 1 if differences else 0
    problem = find_problem(proxied, plain, steps)
    if problem is None and worst > tolerance:
        loss, expected = proxied.losses[step - 1], plain.losses[step - 1]
        problem = f"loss {loss:.6g} at step {step}, plain PyTorch {expected:.6g}: " + (
            f"{worst:.2g} apart, {tolerance:g} allowed"
        )
    return Comparison(proxied, plain, worst, step, problem)


def relative_difference(loss: float, expected: float) -> float:
    """Infinite if either is not a finite number."""
    if not (math.isfinite(loss) and math.isfinite(expected)):
        return math.inf
    if loss == expected:
        return 0.0
    return abs(loss - expected) / abs(expected) if expected else math.inf


def find_problem(proxied: Run, plain: Run, steps: int) -> str | None:
    """A reason why the losses need no comparing."""
    if proxied.device != "cuda":
        return f"ran on '{proxied.device}', not on the proxied device"
    for run, where in ((proxied, "through the proxy"), (plain, "in plain PyTorch")):
        if len(run.losses) != steps:
            return f"{len(run.losses)} steps {where}, {steps} expected"
    return None
