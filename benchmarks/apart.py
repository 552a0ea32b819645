"""Runs work in a process of its own, so that work that hangs or dies takes nothing else with it.

The process leads a group that all its servers and programs belong to. At its time limit it is asked
to stop, which tidies up; then the group is killed. What it yields arrives piece by piece, so what
was done counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn, TypeVar

GRACE_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_processes = multiprocessing.get_context("fork")
T = TypeVar("T")


class TimeLimit(Exception):
    """The work was stopped because it took too long."""


def run_apart(work: Callable[[], Iterator[T]], log: Path, seconds: float) -> Iterator[T]:
    """What the work yields, whose output goes to ``log``; raises TimeLimit after ``seconds``."""
    receiver, sender = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_work, args=(work, log, sender))
    process.start()
    sender.close()
    try:
        yield from _receive(receiver, time.monotonic() + seconds)
    finally:
        _end(process)


def _receive(receiver: Connection, deadline: float) -> Iterator[T]:
    while receiver.poll(max(0.0, deadline - time.monotonic())):
        try:
            yield receiver.recv()
        except EOFError:
            return
    raise TimeLimit


def _end(process: BaseProcess) -> None:
    """Nothing of it is left afterwards; Ctrl-C must not cut that short."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.join(0.5)
    if process.is_alive():
        process.terminate()
        process.join(GRACE_SECONDS)
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    signal.signal(signal.SIGINT, handler)


def _work(work: Callable[[], Iterator[T]], log: Path, sender: Connection) -> None:
    """In the process of the work."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with log.open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        for value in work():
            print(value)
            sender.send(value)
    sender.close()


def _leave(number: int, frame: object) -> NoReturn:
    """Ends the process through its ``finally`` blocks."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)
