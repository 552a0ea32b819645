"""Runs items, each in a process of its own, so that one that hangs or dies loses no other.

The process leads a group that all its servers and programs belong to. At its time limit it is asked
to stop, which tidies up; then the group is killed. Its checks arrive one by one, so those that were
done count.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NoReturn

from benchmarks.checks.context import Context
from benchmarks.checks.programs import ProgramFailed
from benchmarks.checks.results import Check, ItemResult, Verdict
from benchmarks.checks.server import ServerFailed

GRACE_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_processes = multiprocessing.get_context("fork")


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
    receiver, sender = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_work, args=(item, context, sender))
    process.start()
    sender.close()
    try:
        checks = list(_receive(receiver, start, start + seconds))
    finally:
        _end(process)
    if not checks:
        checks = [Check(item.name, Verdict.FAIL, f"ended early; see {context.logs}")]
    return ItemResult(item.number, item.name, checks, time.monotonic() - start)


def _receive(receiver: Connection, start: float, deadline: float) -> Iterator[Check]:
    """Checks as they come, each with the time since the one before."""
    while receiver.poll(max(0.0, deadline - time.monotonic())):
        try:
            check: Check = receiver.recv()
        except EOFError:
            return
        now = time.monotonic()
        yield replace(check, seconds=now - start)
        start = now
    yield Check("time limit", Verdict.FAIL, "stopped at its time limit", time.monotonic() - start)


def _end(process: BaseProcess) -> None:
    process.join(0.5)
    if process.is_alive():
        process.terminate()
        process.join(GRACE_SECONDS)
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _work(item: Item, context: Context, sender: Connection) -> None:
    """In the process of the item."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with (context.logs / "item.log").open("w", buffering=1) as log:
        sys.stdout = sys.stderr = log
        for check in _checks(item, context):
            print(check)
            sender.send(check)
    sender.close()


def _checks(item: Item, context: Context) -> Iterator[Check]:
    try:
        yield from item.run(context)
    except (ProgramFailed, ServerFailed) as failure:
        yield Check(item.name, Verdict.FAIL, str(failure))
    except Exception as error:
        traceback.print_exc()
        yield Check(item.name, Verdict.FAIL, f"the check itself failed: {error!r}")


def _leave(number: int, frame: object) -> NoReturn:
    """Ends the process through its ``finally`` blocks."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)
