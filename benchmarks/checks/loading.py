"""Item loaders: data gets to the device as natively, and as fast."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.checks import cases
from benchmarks.checks.context import CLIENTS, NO_GPU, Context, attempt
from benchmarks.checks.programs import Program
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.report import row_text
from benchmarks.rows import NATIVE, OURS, Row
from benchmarks.turns import in_turns

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
        sides = {NATIVE: native, OURS: ours}
        batches = {side: partial(rate, one, scale.batches) for side, one in sides.items()}
        row = Row(NAME, "batches/s", in_turns(scale.rounds, batches))
    holds = row.ratio(NATIVE).value >= LEAST
    return judged(NAME, holds, f"{row_text(row)}; at least {LEAST:g} wanted")


def rate(program: Program, count: int) -> float:
    return 1 / float(program.ask(f"batches {count}", "seconds")["seconds"])
