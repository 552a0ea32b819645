"""Part idle: the server's processors while all clients have worked and now do nothing.

The CUDA driver has a thread that looks around a few times a second, in every process that uses a
GPU. So the server's own threads are told apart, and the whole stands beside an idle native program.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import psutil

from benchmarks.bench import Bench, Team, attempted, load, teams
from benchmarks.rows import NATIVE, OURS, AtMost, Beyond, Row
from benchmarks.usage import by_thread

# A hundredth of a per cent is half a millisecond in five seconds.
NONE = (AtMost(0.01),)
AS_NATIVE = (Beyond(NATIVE, 0.02),)
SETTLING = 1.0  # seconds after the last call
DRIVERS = "cuda-"  # how the names of the driver's threads begin


def run(bench: Bench) -> Iterator[Row]:
    with teams(bench, [OURS], bench.clients) as here, teams(bench, [NATIVE], 1) as alone:
        ours, native = here[OURS], alone[NATIVE]
        yield from attempted("idle", "% CPU", partial(look, bench, ours, native), ours, native)


def look(bench: Bench, ours: Team, native: Team) -> Iterator[Row]:
    for one in (ours, native):
        load(bench.scale, one.programs, f"decoder-{bench.middle}-bf16")
        one.go(bench.scale.alone)
    time.sleep(SETTLING)
    server, program = ours.place.server_processes(), psutil.Process(native.programs[0].pid)
    shares, _ = by_thread([server, [program]], lambda: time.sleep(bench.scale.idle))
    own = sum(share for name, share in shares[0].items() if not name.startswith(DRIVERS))
    clients = f"{bench.clients} idle clients"
    yield Row(f"server's own threads, {clients}", "% CPU", {OURS: [own]}, NONE)
    all_threads = {OURS: [sum(shares[0].values())], NATIVE: [sum(shares[1].values())]}
    yield Row("and the driver's; natively one idle program", "% CPU", all_threads, AS_NATIVE)
