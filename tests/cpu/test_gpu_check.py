"""The checker of GPU machines, on the CPU device: it runs, reports, and survives what it checks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, wait_until

sys.path.insert(0, str(ROOT))

from benchmarks.checks.cache import NativeCache
from benchmarks.checks.context import Context
from benchmarks.checks.machine import this_machine
from benchmarks.checks.results import Check, Verdict, judged
from benchmarks.checks.runner import Item, run_item
from benchmarks.checks.scale import QUICK

TRAIN = [sys.executable, "benchmarks/train.py", "encoder", "--device", "cpu", "--seed", "3"]


def gpu_check(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/gpu-check", *options]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=240)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    cache = NativeCache(tmp_path / "cache", "here", fresh=False)
    return Context("cpu", QUICK, this_machine(), cache, tmp_path)


def test_an_item_is_checked_reported_and_written_as_json(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    options = ("--device", "cpu", "--quick", "--only", "copies", "--log-dir", str(tmp_path))
    done = gpu_check(*options, "--json", str(result))
    assert done.returncode == 0, done.stdout + done.stderr
    (item,) = json.loads(result.read_text())["items"]
    verdicts = {check["name"]: check["verdict"] for check in item["checks"]}
    assert verdicts["2D copies"] == verdicts["memset"] == verdicts["1,048,576 bytes"] == "PASS"
    assert verdicts["h2d_pinned"] == "SKIP"
    assert "7 copies      PASS" in done.stdout


def test_what_is_wrong_with_the_command_line_is_one_line() -> None:
    done = gpu_check("--only", "1,fast", "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.startswith("gpu-check: no item 'fast'; there are 1, 2,")
    assert len(done.stderr.splitlines()) == 1


def test_an_item_past_its_limit_fails_and_keeps_what_it_found(context: Context) -> None:
    def hang(context: Context) -> Iterator[Check]:
        yield judged("first", True, "done")
        time.sleep(600)

    result = run_item(Item(1, "hang", "", 0, hang), context, seconds=1)
    assert [(check.name, check.verdict) for check in result.checks] == [
        ("first", Verdict.PASS), ("time limit", Verdict.FAIL),
    ]  # fmt: skip


def test_the_programs_of_an_item_end_with_it(context: Context) -> None:
    def leave(context: Context) -> Iterator[Check]:
        child = subprocess.Popen(["sleep", "600"])
        yield judged("child", True, str(child.pid))

    result = run_item(Item(1, "leave", "", 0, leave), context, seconds=60)
    pid = int(result.checks[0].figure)
    assert wait_until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_an_item_that_breaks_is_a_failed_check(context: Context) -> None:
    def broken(context: Context) -> Iterator[Check]:
        yield judged("first", True, "done")
        raise ValueError("no such figure")

    result = run_item(Item(1, "broken", "", 0, broken), context, seconds=60)
    assert result.verdict is Verdict.FAIL
    assert "no such figure" in result.checks[-1].figure


def test_a_training_says_the_same_exact_losses_at_once_and_on_request() -> None:
    at_once = subprocess.run(
        [*TRAIN, "--steps", "3"], cwd=ROOT, text=True, capture_output=True, check=True
    )
    on_request = subprocess.run(
        [*TRAIN, "--on-request"], cwd=ROOT, text=True, capture_output=True, check=True,
        input="steps 1\nsteps 2\n",
    )  # fmt: skip
    first, second = (losses(done.stdout) for done in (at_once, on_request))
    assert first == second
    assert [step for step, _ in first] == [1, 2, 3]


def losses(output: str) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in output.splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]
