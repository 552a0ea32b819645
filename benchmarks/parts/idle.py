"""Part idle: the server's processors while all clients have worked and now do nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench, Team, attempted, load, teams
from benchmarks.rows import OURS, AtMost, Row
from benchmarks.usage import watched

GOAL = (AtMost(0.01),)  # none: a hundredth of a per cent is half a millisecond in five seconds
SETTLING = 1.0  # seconds after the last call


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, [OURS], bench.clients) as sides:
        yield from attempted("idle", "% CPU", partial(look, bench, sides[OURS]), sides[OURS])


def look(bench: Bench, ours: Team) -> Iterator[Row]:
    load(bench.scale, ours.programs, f"decoder-{bench.middle}-bf16")
    ours.go(bench.scale.alone)
    time.sleep(SETTLING)
    processes = ours.place.server_processes()
    share, _ = watched(processes, lambda: time.sleep(bench.scale.idle))
    yield Row(f"server's processors, {bench.clients} idle clients", "% CPU", {OURS: [share]}, GOAL)
