"""Training programs give the losses that PyTorch gives on the CPU: see models.py.

How far two right answers may lie apart is measured: two runs on the CPU that differ in nothing but
the number of threads, and so in the order of sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import accumulate

import models
import pytest
import torch
from conftest import Nursery, Server

FIRST = 10
RUNS = (("cpu", 1), ("cpu", 4), ("cuda", 1))  # device and threads

Losses = dict[str, list[float]]


@pytest.fixture(scope="module")
def runs(server: Server, nursery: Nursery) -> Callable[[str], list[Losses]]:
    """By precision: on the CPU with one thread, with four, and on the device."""

    @cache
    def run(precision: str) -> list[Losses]:
        codes = [f"import models; models.main({d!r}, {n}, {precision!r})" for d, n in RUNS]
        return [json.loads(nursery.output(server, code)) for code in codes]

    return run


def spread(one: list[float], other: list[float]) -> list[float]:
    """By step: the largest difference of two runs until then.

    At least 16 roundings of a float: a loss is the mean of up to 384 terms, whose sum may differ by
    the square root of their number when its order does; thread counts need not change that order.
    """
    rounding = torch.finfo(torch.float32).eps
    so_far = accumulate((abs(a - b) for a, b in zip(one, other, strict=True)), max)
    return [max(s, 16 * rounding * abs(a)) for s, a in zip(so_far, one, strict=True)]


def _too_far(got: list[float], wanted: list[float], allowed: list[float]) -> list[str]:
    rows = enumerate(zip(got, wanted, allowed, strict=True))
    return [f"step {n}: {a} for {b} (within {c:.1e})" for n, (a, b, c) in rows if abs(a - b) > c]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", models.PROGRAMS)
def test_losses_are_those_of_the_cpu(runs, name: str) -> None:
    one, other, device = (losses[name] for losses in runs("fp32"))
    allowed = [3 * s for s in spread(one, other)]
    assert not _too_far(device[:FIRST], one[:FIRST], [2e-3] * FIRST)
    assert not _too_far(device[FIRST:], one[FIRST:], allowed[FIRST:])
    assert min(device[-4:]) < device[0] - 0.05  # it has learned something


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", models.PROGRAMS)
def test_losses_under_autocast_are_those_of_the_cpu_under_autocast(runs, name: str) -> None:
    """Logits are rounded to bfloat16 on both sides, but not always the same way: by one unit in the
    last place of 8 bits, which is what the loss may then differ by."""
    one, other, device = (losses[name] for losses in runs("bf16"))
    unit = torch.finfo(torch.bfloat16).eps
    allowed = [max(3 * s, unit * a) for s, a in zip(spread(one, other), one, strict=True)]
    assert not _too_far(device, one, allowed)
    assert min(device[-4:]) < device[0] - 0.05


def test_autocast_computes_in_bfloat16(runs) -> None:
    """Else the test above would compare the losses of float32 with themselves."""
    fp32, bf16 = runs("fp32")[2], runs("bf16")[2]
    assert all(fp32[name] != bf16[name] for name in models.PROGRAMS)
