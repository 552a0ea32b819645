"""The specification: complete, consistent, and what is generated from it is current."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mnemosyne.api import SPEC, Mode
from mnemosyne.api.table import IMPORTED
from mnemosyne.codegen.__main__ import FILES

ROOT = Path(__file__).parents[2]


def test_every_symbol_torch_imports_has_one_entry() -> None:
    counts = Counter(call.name for call in SPEC.calls)
    assert set(IMPORTED) <= set(counts)
    assert max(counts.values()) == 1


def test_every_call_that_is_not_regular_says_why() -> None:
    silent = [c.name for c in SPEC.calls if c.message is None and not c.via and not c.reason]
    assert silent == []


def test_regular_calls_exist_in_each_mode() -> None:
    modes = {c.mode for c in SPEC.calls if c.message is not None}
    assert modes == {Mode.ASYNC, Mode.SYNC, Mode.ONCE}


@pytest.mark.parametrize("name", FILES)
def test_generated_files_are_current(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name](SPEC)


def test_every_exported_name_is_in_the_coverage_table() -> None:
    table = (ROOT / "docs/coverage.md").read_text()
    assert [c.name for c in SPEC.calls if f"`{c.name}`" not in table] == []
