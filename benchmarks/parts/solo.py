"""Part solo: one program at a time, natively and as the only client, on the same workloads."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from itertools import product

from benchmarks.bench import Bench, Team, attempted, everybody, load, rate_of, teams
from benchmarks.rows import NATIVE, OURS, AtLeast, Row, skipped
from benchmarks.turns import in_turns

GOAL = (AtLeast(NATIVE, 1.0),)
SIDES = (NATIVE, OURS)
NEEDS = {"resnet50": "torchvision"}


def run(bench: Bench) -> Iterator[Row]:
    """One program a side does everything, so PyTorch is imported once and contexts are alike."""
    with teams(bench, SIDES, 1) as both:
        for name in workloads(bench):
            unit = "tokens/s" if name == "gpt2" else "steps/s"
            if (module := NEEDS.get(name)) and not importlib.util.find_spec(module):
                yield skipped(title(name), unit, f"{module} is not installed")
                continue
            look = partial(compare, bench, both, name, unit)
            yield from attempted(title(name), unit, look, *both.values())


def workloads(bench: Bench) -> list[str]:
    scale = bench.scale
    precisions = ("fp32", "bf16")
    transformers = product(scale.sizes, scale.kinds, precisions)
    names = [f"{kind}-{size}-{precision}" for size, kind, precision in transformers]
    return [*names, *(f"demo-{kind}" for kind in scale.kinds), "resnet50", "gpt2"]


def compare(bench: Bench, both: dict[str, Team], name: str, unit: str) -> Iterator[Row]:
    load(bench.scale, everybody(both), name)
    windows = in_turns(
        bench.windows, {side: partial(one.go, bench.scale.alone) for side, one in both.items()}
    )
    answers = {side: [window[0] for window in found] for side, found in windows.items()}
    rates = {side: list(map(rate_of, found)) for side, found in answers.items()}
    yield Row(title(name), unit, rates, GOAL)
    if name == "gpt2":
        for which, key in (("median", "median_s"), ("p99", "p99_s")):
            latencies = {side: [1e3 * a[key] for a in found] for side, found in answers.items()}
            yield Row(f"gpt2 token, {which}", "ms", latencies)


def title(name: str) -> str:
    return name.replace("-", " ")
