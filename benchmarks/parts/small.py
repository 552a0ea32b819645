"""Part small: what one operation, one wait and one copy take, natively and as the only client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

from benchmarks.bench import NO_GPU, Bench, Team, attempted, teams
from benchmarks.checks.programs import ROOT
from benchmarks.rows import NATIVE, OURS, AtLeast, Beyond, Row, Target, skipped
from benchmarks.turns import in_turns

TIMING = [str(ROOT / "benchmarks/checks/clients/timing.py")]
Targets = tuple[Target, ...]

#: Request, what it times, and the target.
OPERATIONS: tuple[tuple[str, str, Targets], ...] = (
    ("issue", "x.add_(1), issue", (AtLeast(NATIVE, 1.5),)),
    ("launch_sync", "x.add_(1) and wait", ()),
    ("item", "x.sum().item()", (Beyond(NATIVE, 10.0),)),
    ("sync", "wait for an idle stream", (Beyond(NATIVE, 10.0),)),
)
COPIES = (
    ("h2d_pinned", "host to device, pinned", AtLeast(NATIVE, 0.98)),
    ("d2h_pinned", "device to host, pinned", AtLeast(NATIVE, 0.98)),
    ("h2d_pageable", "host to device, pageable", AtLeast(NATIVE, 1.0)),
    ("d2h_pageable", "device to host, pageable", AtLeast(NATIVE, 1.0)),
)


def run(bench: Bench) -> Iterator[Row]:
    with timers(bench) as both:
        for request, name, targets in OPERATIONS:
            look = partial(operation, bench, both, request, name, targets)
            yield from attempted(name, "us", look, *both.values())
        for request, name, target in COPIES:
            if bench.on_gpu:
                look = partial(copy, bench, both, request, name, (target,))
                yield from attempted(name, "GB/s", look, *both.values())
            else:
                yield skipped(name, "GB/s", NO_GPU)


def timers(bench: Bench) -> AbstractContextManager[dict[str, Team]]:
    """A program on each side that times what it is asked for."""
    return teams(bench, (NATIVE, OURS), 1, TIMING)


def operation(
    bench: Bench, both: Mapping[str, Team], request: str, name: str, targets: Targets
) -> Iterator[Row]:
    seconds = timed(bench, both, f"{request} {bench.scale.repeats}")
    windows = {side: [1e6 * one for one in found] for side, found in seconds.items()}
    yield Row(name, "us", windows, targets)


def copy(
    bench: Bench, both: Mapping[str, Team], request: str, name: str, targets: Targets = ()
) -> Iterator[Row]:
    count = bench.scale.copied
    seconds = timed(bench, both, f"{request} {count}")
    windows = {side: [count / one / 1e9 for one in found] for side, found in seconds.items()}
    yield Row(name, "GB/s", windows, targets)


def timed(bench: Bench, both: Mapping[str, Team], request: str) -> dict[str, list[float]]:
    """Seconds of each side in each window."""

    def ask(one: Team) -> Callable[[], float]:
        return lambda: float(one.ask(request, "seconds")[0]["seconds"])

    return in_turns(bench.windows, {side: ask(one) for side, one in both.items()})
