"""Cases of users' models, run natively and under a server of the CPU device, and compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks.checks import cases
from benchmarks.checks.cache import NativeCache
from benchmarks.checks.cases import Suite, outcomes
from benchmarks.checks.context import Context
from benchmarks.checks.machine import this_machine
from benchmarks.checks.results import Check, Verdict
from benchmarks.checks.scale import QUICK

MODULE = """
import os

import torch
from case import Setting, case, cases, need, randn, training

HERE = Setting.device == "cuda"


@case("whole numbers")
def whole():
    return [torch.arange(1000).to(Setting.device).cumsum(0)]


@case("refused")
def refused():
    if HERE:
        raise RuntimeError("mnemosyne: no such thing")
    return [randn(3)]


@case("refused by PyTorch")
def refused_everywhere():
    return [randn(3) @ randn(4)]


@case("ends the program")
def ends():
    if HERE:
        os._exit(3)
    return [randn(3)]


@case("of a package")
def of_a_package():
    return [need("no_such_package.part").function()]


@case("other values")
def other():
    return [torch.tensor([1.0 + HERE])]


@case("a training")
def trained():
    x = randn(8, 4)
    model = torch.nn.Linear(4, 2).to(Setting.device)
    return training(model, lambda model: model(x).square().mean())


@case("random numbers of the CPU")
def drawn():
    return [torch.rand(5)]
"""

#: The first runs are close to each other, ours is the sixth, and later native ones lie around it.
CHANCE = """
import pathlib

import torch
from case import case


@case("chance")
def chance():
    count = pathlib.Path({count!r})
    run = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(run))
    return [torch.tensor(1.0 + run / 1e6 + (run > 5) * (2.0 + run % 2))]
"""

ONE = """
import torch
from case import case


@case("one")
def one():
    return [torch.tensor({value})]
"""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    cache = NativeCache(tmp_path / "cache", "here", fresh=False)
    logs = tmp_path / "logs"
    logs.mkdir()
    return Context("cpu", QUICK, this_machine(), cache, logs)


def found(context: Context, suite: Suite) -> dict[str, Check]:
    return {check.name: check for check in cases.run([suite], context)}


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    return Suite(module)


def test_every_case_is_compared_whatever_another_one_does(context: Context, suite: Suite) -> None:
    checks = found(context, suite)
    verdicts = {name: check.verdict.value for name, check in checks.items()}
    assert verdicts == {
        "whole numbers": "PASS", "refused": "FAIL", "refused by PyTorch": "SKIP",
        "ends the program": "FAIL", "of a package": "SKIP", "other values": "FAIL",
        "a training": "PASS", "random numbers of the CPU": "PASS",
    }  # fmt: skip
    assert checks["whole numbers"].cells[:2] == ("1 results", "bit-identical")
    assert checks["refused"].cells[1] == "refused: RuntimeError: mnemosyne: no such thing"
    assert "exit status 3" in checks["ends the program"].figure
    assert checks["of a package"].figure == "skipped: no_such_package is not installed"
    assert "1 from the nearest of 20 native runs" in checks["other values"].figure
    assert checks["a training"].cells[0] == "3 results"
    assert "x (" in checks["a training"].cells[2]


def test_what_chance_decides_is_looked_at_in_more_native_runs(
    context: Context, tmp_path: Path
) -> None:
    """Each run gives another result; the two runs that come first say too little of how far."""
    module = tmp_path / "chance.py"
    module.write_text(CHANCE.format(count=str(tmp_path / "count")))
    (check,) = cases.run([Suite(module)], context)
    assert (check.verdict, check.cells[0]) == (Verdict.PASS, "1 results, 20 runs differ")


def test_native_runs_are_kept_until_the_cases_change(context: Context, tmp_path: Path) -> None:
    def native_programs() -> int:
        return len(list(context.logs.glob("*-native.log")))

    suite = Suite(tmp_path / "module.py")
    suite.module.write_text(ONE.format(value=3))
    first = found(context, suite)
    assert native_programs() == 2
    assert found(context, suite).keys() == first.keys()
    assert native_programs() == 2
    suite.module.write_text(ONE.format(value=4))
    assert found(context, suite)["one"].verdict is Verdict.PASS
    assert native_programs() == 4


def test_errors_pass_where_they_are_the_case(context: Context, tmp_path: Path) -> None:
    suite = Suite(tmp_path / "module.py", errors_count=True)
    suite.module.write_text(ONE.format(value="[][1]"))
    (check,) = found(context, suite).values()
    assert (check.verdict, check.cells[1]) == (Verdict.PASS, "the same error")


#: What PyTorch says where it has no such kernel for a CPU.
NOT_ON_CPU = ("not implemented for", "could not create a primitive descriptor")


MODULES = sorted({*cases.CASES.glob("*.py")} - {cases.RUN, cases.SHARED})


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_the_cases_themselves_run_on_a_cpu_at_tiny_sizes(context: Context, module: Path) -> None:
    said = list(outcomes(context, Suite(module), None, None))
    wrong = {
        one["case"]: one["error"]
        for one in said
        if "error" in one and not any(words in one["error"] for words in NOT_ON_CPU)
    }
    assert not wrong
    assert any("results" in one for one in said)
