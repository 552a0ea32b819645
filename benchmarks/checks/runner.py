"""Runs items, each in a process of its own, so that one that hangs or dies loses no other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.apart import TimeLimit, run_apart
from benchmarks.checks.context import Context
from benchmarks.checks.programs import ProgramFailed
from benchmarks.checks.results import Check, ItemResult, Verdict
from benchmarks.checks.server import ServerFailed


@dataclass(frozen=True)
class Item:
    """``seconds``: its limit. ``run`` yields a check as soon as it is done."""

    number: int
    name: str
    what: str
    seconds: float
    run: Callable[[Context], Iterator[Check]]


def run_item(item: Item, context: Context, seconds: float) -> ItemResult:
    """All checks that the item made within its time limit."""
    start = time.monotonic()
    context = replace(context, logs=context.logs / item.name)
    context.logs.mkdir(parents=True, exist_ok=True)
    checks = list(_timed_checks(item, context, seconds))
    if not checks:
        checks = [Check(item.name, Verdict.FAIL, f"ended early; see {context.logs}")]
    return ItemResult(item.number, item.name, checks, time.monotonic() - start)


def _timed_checks(item: Item, context: Context, seconds: float) -> Iterator[Check]:
    """Checks as they come, each with the time since the one before."""
    start = time.monotonic()
    try:
        for check in run_apart(partial(_checks, item, context), context.logs / "item.log", seconds):
            now = time.monotonic()
            yield replace(check, seconds=now - start)
            start = now
    except TimeLimit:
        text = "stopped at its time limit"
        yield Check("time limit", Verdict.FAIL, text, time.monotonic() - start)


def _checks(item: Item, context: Context) -> Iterator[Check]:
    try:
        yield from item.run(context)
    except (ProgramFailed, ServerFailed) as failure:
        yield Check(item.name, Verdict.FAIL, str(failure))
    except Exception as error:
        traceback.print_exc()
        yield Check(item.name, Verdict.FAIL, f"the check itself failed: {error!r}")
