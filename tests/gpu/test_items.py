"""Every item of ``scripts/gpu-check`` holds on the GPU of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.checks.cache import NativeCache, default_folder
from benchmarks.checks.context import Context
from benchmarks.checks.items import ITEMS
from benchmarks.checks.machine import Machine, this_machine
from benchmarks.checks.results import Verdict
from benchmarks.checks.runner import Item, run_item
from benchmarks.checks.scale import NORMAL
from mnemosyne.server import gpu

pytestmark = pytest.mark.skipif(not gpu.answers(dict(os.environ)), reason="no GPU answers here")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return this_machine()


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(item, id=item.name, marks=pytest.mark.timeout(item.seconds + 60))
        for item in ITEMS
    ],
)
def test_the_item_holds(item: Item, machine: Machine, tmp_path: Path) -> None:
    cache = NativeCache(default_folder(), machine.words("cuda"), fresh=False)
    result = run_item(item, Context("cuda", NORMAL, machine, cache, tmp_path), item.seconds)
    failed = [check for check in result.checks if check.verdict is Verdict.FAIL]
    assert not failed
