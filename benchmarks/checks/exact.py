"""Item exact: every loss of a training is the one native PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from benchmarks.checks.context import Context, attempt
from benchmarks.checks.losses import judge
from benchmarks.checks.results import Check, judged
from benchmarks.checks.trainings import Demo, Work, native_losses, training

KINDS = ("encoder", "decoder", "encdec")


def run(context: Context) -> Iterator[Check]:
    """Each training alone on a server of its own; some side by side, as nothing is timed."""

    def look(work: Work) -> Check:
        return attempt(work.name, lambda: compare(context, work))

    with ThreadPoolExecutor(context.at_once) as pool:
        yield from pool.map(look, works(context))


def works(context: Context) -> list[Work]:
    scale = context.scale
    trainings = [
        training(context, kind, size, amp, scale.steps)
        for size, amp, kind in product(scale.sizes, (False, True), KINDS)
    ]
    return [*(Demo(kind, scale.steps) for kind in KINDS), *trainings]


def compare(context: Context, work: Work) -> Check:
    natives = native_losses(context, work)
    with context.server("--clients", "1") as server:
        losses = work.losses(context, server)
    found = judge(losses, natives, context.tolerance)
    return judged(work.name, found.holds, found.figure)
