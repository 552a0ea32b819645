"""Item copies: every size arrives unchanged in every way, about as fast as natively."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.checks.context import CLIENTS, NO_GPU, Context, attempt, attempts
from benchmarks.checks.programs import Program
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.server import Server
from benchmarks.parts import small
from benchmarks.report import row_text
from benchmarks.rows import NATIVE

#: What is copied how, and the least share of native's bandwidth it may reach.
BANDWIDTHS = {"h2d_pinned": 0.95, "d2h_pinned": 0.95, "h2d_pageable": 1.0, "d2h_pageable": 1.0}
LARGEST_ON_CPU = 100 * 2**20 + 1  # the CPU device's memory is the machine's, several times


def run(context: Context) -> Iterator[Check]:
    requests = {"2D copies": "rows", "memset": "fill"}
    for size in context.scale.copies:
        name = f"{size:,} bytes"
        if context.on_gpu or size <= LARGEST_ON_CPU:
            requests[name] = f"copy {size}"
        else:
            yield skipped(name, NO_GPU)
    with context.server("--clients", "2") as server:
        yield from check_copies(context, server, requests)
    yield from attempts("bandwidth", lambda: check_bandwidths(context))


def check_copies(context: Context, server: Server, requests: dict[str, str]) -> Iterator[Check]:
    """One program does all; when it fails, another one goes on."""
    left = dict(requests)
    while left:
        with context.program(server, CLIENTS / "copying.py") as program:
            while left and not program.failed:
                name = next(iter(left))
                yield attempt(name, partial(check_copy, program, name, left.pop(name)))


def check_copy(program: Program, name: str, request: str) -> Check:
    found = program.ask(request, "ways")
    wrong = found["wrong"]
    return judged(name, not wrong, f"{found['ways']} ways, wrong: {', '.join(wrong) or 'none'}")


def check_bandwidths(context: Context) -> Iterator[Check]:
    if not context.on_gpu:
        for way in BANDWIDTHS:
            yield skipped(way, NO_GPU)
        return
    with small.timers(context.bench) as both:
        for way, least in BANDWIDTHS.items():
            for row in small.copy(context.bench, both, way, way):
                figure = f"{row_text(row)}; at least {least:g} wanted"
                yield judged(way, row.ratio(NATIVE).value >= least, figure)
