"""What a part of the benchmark works with, and the programs of a side, which start together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.checks import mps
from benchmarks.checks.machine import Machine
from benchmarks.checks.programs import Program, ProgramFailed
from benchmarks.checks.server import Server, ServerFailed
from benchmarks.launcher import Launcher
from benchmarks.rows import MPS, OURS, SLICES, Row, failed
from benchmarks.scale import Scale

PATIENCE = 180.0  # seconds that a model and its first steps may take
AHEAD = 0.05  # seconds between a request and the beginning of its window
WORKLOADS = ("-m", "benchmarks.workloads")
Start = Callable[[], Program]


@dataclass(frozen=True)
class Bench:
    scale: Scale
    windows: int
    clients: int  # of ours at once, and of native programs beside them
    machine: Machine
    launcher: Launcher

    @property
    def on_gpu(self) -> bool:
        return self.launcher.device == "cuda"

    @property
    def has_mps(self) -> bool:
        return self.on_gpu and mps.available()


class Team:
    """Programs of one side that do the same."""

    def __init__(self, start: Start, count: int, stack: ExitStack) -> None:
        self._start, self._stack = start, stack
        self.programs = [stack.enter_context(start()) for _ in range(count)]

    def ask(self, request: str, key: str, count: int | None = None) -> list[dict[str, Any]]:
        """The answers of all, or of the first ``count``, who are asked at one moment."""
        asked = self.programs[:count]
        for program in asked:
            program.request(request)
        return [program.answer(key, PATIENCE) for program in asked]

    def go(
        self, seconds: float, tail: float = 0.0, count: int | None = None
    ) -> list[dict[str, Any]]:
        """What each did in a window of so long."""
        return self.ask(f"go {time.monotonic() + AHEAD} {seconds} {tail}", "seconds", count)

    def rate(self, seconds: float, tail: float = 0.0, count: int | None = None) -> float:
        """Steps per second of all in sum."""
        return sum(map(rate_of, self.go(seconds, tail, count)))

    def renew(self) -> None:
        """End all and start them anew: answers that nobody took any more are lost with them."""
        for program in self.programs:
            program.__exit__(None, None, None)
        self.programs = [self._stack.enter_context(self._start()) for _ in self.programs]


def rate_of(answer: dict[str, Any]) -> float:
    return float(answer["steps"]) / float(answer["seconds"])


@contextmanager
def team(
    bench: Bench, side: str, count: int, program: Sequence[str] = WORKLOADS
) -> Iterator[tuple[Team, Server | None]]:
    """So many programs on one side, and the server they are clients of, if any."""
    with ExitStack() as stack:
        server = None
        folders: dict[str, str] = {}
        if side == OURS:
            # one more: the session of a program that failed may outlast it a little
            server = stack.enter_context(bench.launcher.server("--clients", str(count + 1)))
        if side == MPS:
            folders = stack.enter_context(mps.running())
        name = f"{side}-{program[-1].rpartition('.')[2]}"
        start = partial(bench.launcher.program, server, list(program), name, **folders)
        yield Team(start, count, stack), server


@contextmanager
def teams(
    bench: Bench, sides: Sequence[str], count: int, program: Sequence[str] = WORKLOADS
) -> Iterator[dict[str, Team]]:
    """The same for several sides, whose programs import PyTorch side by side."""
    with ExitStack() as stack:
        yield {side: stack.enter_context(team(bench, side, count, program))[0] for side in sides}


def sharing(bench: Bench) -> list[str]:
    """The ways in which several programs can share the device here."""
    return [SLICES, *([MPS] if bench.has_mps else []), OURS]


def attempted(
    name: str, unit: str, look: Callable[[], Iterator[Row]], *used: Team
) -> Iterator[Row]:
    """Rows; a program that fails costs one line, and all used ones start anew."""
    try:
        yield from look()
    except (ProgramFailed, ServerFailed) as failure:
        yield failed(name, unit, str(failure))
        for one in used:
            one.renew()
