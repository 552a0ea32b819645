"""``python -m benchmarks.workloads``: does a workload for a while, whenever a line on stdin asks.

Requests: ``load NAME``, ``go START SECONDS TAIL``, ``trace START SECONDS``, ``memory``, ``drop``.
START is a moment of the machine's monotonic clock, so that several programs begin together.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence

import torch

from benchmarks.checks.clients import talk
from benchmarks.workloads.models import Workload, make

device = talk.device()
loaded: list[Workload] = []


def load(name: str, small: bool) -> talk.Answer:
    """Make the model and let it take its first steps, in which kernels are loaded."""
    drop()
    loaded.append(make(name, torch.device(device), small))
    loaded[0].run(loaded[0].batch)
    return {"loaded": name}


def drop() -> talk.Answer:
    loaded.clear()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return {"dropped": True}


def go(start: float, seconds: float, tail: float) -> talk.Answer:
    """Count steps for so long; the tail, which keeps the device busy for others, does not count."""
    workload = loaded[0]
    steps, latencies = 0, list[float]()
    begun = wait_until(start)
    while time.monotonic() - begun < seconds:
        latencies += workload.run(workload.batch)
        steps += workload.batch
    ended = time.monotonic()
    while time.monotonic() - ended < tail:
        workload.run(workload.batch)
    return {"steps": steps, "seconds": ended - begun, **quantiles(latencies)}


def trace(start: float, seconds: float) -> talk.Answer:
    """When each step was done: those between two waits count as equally long."""
    workload, ends = loaded[0], [wait_until(start)]
    while len(ends) == 1 or ends[-1] - ends[0] < seconds:
        begun = ends[-1]
        workload.run(workload.batch)
        each = (time.monotonic() - begun) / workload.batch
        ends += [begun + each * step for step in range(1, workload.batch + 1)]
    return {"ends": ends[1:]}


def wait_until(moment: float) -> float:
    time.sleep(max(0.0, moment - time.monotonic()))
    return time.monotonic()


def quantiles(latencies: Sequence[float]) -> talk.Answer:
    """Median and 99th percentile, in seconds; nothing for workloads that do not time each step."""
    if not latencies:
        return {}
    ordered = sorted(latencies)
    return {
        "median_s": statistics.median(ordered),
        "p99_s": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
    }


def memory() -> talk.Answer:
    """Bytes that PyTorch's allocator holds on the device."""
    return {"reserved": torch.cuda.memory_reserved() if device == "cuda" else 0}


talk.serve({"load": load, "go": go, "trace": trace, "memory": memory, "drop": drop})
