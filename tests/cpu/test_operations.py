"""Operations on device tensors give what torch gives on the CPU: tables of cases in ops_*.py."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from conftest import Nursery, Server

HERE = Path(__file__).parent
TABLES = sorted(p.stem for p in HERE.glob("ops_*.py"))

# Runs in a client process: each case on both devices; prints what differs, as JSON.
RUN = """
import importlib, json, sys
import torch
sys.path.insert(0, {here!r})
table = importlib.import_module({table!r})
compare = getattr(table, "compare", None)
problems = {{}}

def close(got, wanted):
    torch.testing.assert_close(got, wanted, check_stride=False, equal_nan=True)

for name, case in table.CASES.items():
    try:
        expected = getattr(table, "EXPECTED", {{}}).get(name, case)
        wanted = expected(torch.device("cpu"))
        got = [t.cpu() for t in case(torch.device("cuda"))]
        assert len(got) == len(wanted), "another number of results"
        for a, b in zip(got, wanted, strict=True):
            (compare or close)(a, b)
    except Exception as error:
        problems[name] = str(error).strip().splitlines()[0][:300]
print(json.dumps(problems))
"""


def _case_names(table: str) -> list[str]:
    spec = importlib.util.spec_from_file_location(table, HERE / f"{table}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[table] = module
    spec.loader.exec_module(module)
    return list(module.CASES)


@pytest.fixture(scope="module")
def problems(server: Server, nursery: Nursery) -> Callable[[str], dict[str, str]]:
    """Of a table: what differs, by case. Each table runs in one client, once."""

    @cache
    def found(table: str) -> dict[str, str]:
        try:
            return json.loads(nursery.output(server, RUN.format(here=str(HERE), table=table)))
        except AssertionError as error:  # the client did not get to the end
            return dict.fromkeys(_case_names(table), str(error))

    return found


@pytest.mark.parametrize(
    ("table", "case"), [(table, case) for table in TABLES for case in _case_names(table)]
)
def test_operation(problems: Callable[[str], dict[str, str]], table: str, case: str) -> None:
    assert case not in problems(table), problems(table)[case]
