"""Item loaders: data gets to the device as natively, and as fast."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.checks import cases
from benchmarks.checks.context import CLIENTS, NO_GPU, Context, attempt
from benchmarks.checks.ratios import rates
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.turns import compare

LEAST = 0.95  # of native's batches a second
NAME = "batches of 4 workers, pinned"


def run(context: Context) -> Iterator[Check]:
    yield from cases.run(cases.LOADERS, context)
    yield attempt(NAME, lambda: throughput(context)) if context.on_gpu else skipped(NAME, NO_GPU)


def throughput(context: Context) -> Check:
    """Both loaders stay, with their workers; one at a time is asked for batches."""
    script, scale = CLIENTS / "loading.py", context.scale
    with (
        context.server("--clients", "1") as server,
        context.program(None, script) as native,
        context.program(server, script) as ours,
    ):
        ratio = compare(scale.rounds, native, ours, "batches", scale.batches)
    holds = ratio.value >= LEAST
    return judged(NAME, holds, f"{rates(ratio)}; at least {LEAST:g}x wanted")
