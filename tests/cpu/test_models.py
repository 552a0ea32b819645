"""Training programs give the losses that PyTorch gives on the CPU: see models.py.

How far two right answers may lie apart is measured: two runs on the CPU that differ in nothing but
the number of threads, and so in the order of sums.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import models
import pytest
import torch
from conftest import ROOT, Server

SCRIPT = str(Path(__file__).with_name("models.py"))
FIRST = 10

Losses = dict[str, list[float]]


def _run_on_cpu(precision: str, threads: int) -> Losses:
    command = [sys.executable, SCRIPT, "cpu", precision, str(threads)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _run_on_device(server: Server, precision: str) -> Losses:
    client = server.start(sys.executable, SCRIPT, "cuda", precision, "1")
    output, errors = client.communicate(timeout=300)
    assert client.returncode == 0, errors
    return json.loads(output)


@pytest.fixture(scope="module")
def runs(server: Server) -> Callable[[str], tuple[Losses, Losses, Losses]]:
    """By precision: on the CPU with one thread, with four, and on the device."""
    known: dict[str, tuple[Losses, Losses, Losses]] = {}

    def run(precision: str) -> tuple[Losses, Losses, Losses]:
        if precision not in known:
            cpu = [_run_on_cpu(precision, threads) for threads in (1, 4)]
            known[precision] = cpu[0], cpu[1], _run_on_device(server, precision)
        return known[precision]

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
