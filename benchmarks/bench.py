"""What a part of the benchmark works with, and the programs of a side, which start together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import SubprocessError
from typing import Any

import psutil

from benchmarks.checks import mps
from benchmarks.checks.machine import Machine
from benchmarks.checks.programs import ROOT, Program, ProgramFailed
from benchmarks.checks.server import Server, ServerFailed
from benchmarks.launcher import Launcher
from benchmarks.rows import MPS, OURS, SLICES, Row, failed
from benchmarks.scale import Scale

NO_GPU = "no GPU"
PATIENCE = 180.0  # seconds that a model and its first steps may take
AHEAD = 0.05  # seconds between a request and the beginning of its window
FIRST_KERNEL = (str(ROOT / "benchmarks/first_kernel.py"),)
WORKLOADS = ("-m", "benchmarks.workloads")
Answer = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    scale: Scale
    windows: int
    clients: int  # of ours at once, and of native programs beside them
    machine: Machine
    launcher: Launcher
    has_mps: bool

    @property
    def on_gpu(self) -> bool:
        return self.launcher.device == "cuda"

    @property
    def middle(self) -> str:
        """The size of models where one size is enough."""
        return self.scale.sizes[min(1, len(self.scale.sizes) - 1)]


@dataclass(frozen=True)
class Place:
    """Where programs of a side run; ``server`` is None where they run natively."""

    launcher: Launcher
    side: str
    server: Server | None
    variables: Mapping[str, str]

    def start(self, program: Sequence[str]) -> Program:
        name = f"{self.side}-{program[-1].removesuffix('.py').replace('/', '.').rpartition('.')[2]}"
        return self.launcher.program(self.server, program, name, **self.variables)

    def server_processes(self) -> list[psutil.Process]:
        return self.server.processes() if self.server else []


class Team:
    """Programs of one side that do the same."""

    def __init__(self, where: Place, program: Sequence[str], count: int, stack: ExitStack) -> None:
        self.place, self._program, self._stack = where, program, stack
        self.programs = [stack.enter_context(where.start(program)) for _ in range(count)]

    def ask(self, request: str, key: str, count: int | None = None) -> list[Answer]:
        """The answers of all, or of the first ``count``, who are asked at one moment."""
        asked = self.programs[:count]
        for program in asked:
            program.request(request)
        return [program.answer(key, PATIENCE) for program in asked]

    def go(self, seconds: float, tail: float = 0.0, count: int | None = None) -> list[Answer]:
        """What each did in a window of so long."""
        return self.ask(f"go {time.monotonic() + AHEAD} {seconds} {tail}", "seconds", count)

    def rate(self, seconds: float, tail: float = 0.0, count: int | None = None) -> float:
        """Steps per second of all in sum."""
        return sum(map(rate_of, self.go(seconds, tail, count)))

    def trace(self, seconds: float) -> list[Answer]:
        """When each had done each of its steps."""
        return self.ask(f"trace {time.monotonic() + AHEAD} {seconds}", "ends")

    def renew(self) -> None:
        """End all and start them anew: answers that nobody took any more are lost with them."""
        for program in self.programs:
            program.__exit__(None, None, None)
        starts = (self.place.start(self._program) for _ in self.programs)
        self.programs = [self._stack.enter_context(program) for program in starts]


def load(scale: Scale, programs: Iterable[Program], name: str) -> None:
    """All at once; what was loaded before is dropped first."""
    asked = list(programs)
    for program in asked:
        program.request(f"load {name} {str(scale.small).lower()}")
    for program in asked:
        program.answer("loaded", PATIENCE)


def everybody(sides: Mapping[str, Team]) -> list[Program]:
    return [program for one in sides.values() for program in one.programs]


def rate_of(answer: Answer) -> float:
    return float(answer["steps"]) / float(answer["seconds"])


@contextmanager
def teams(
    bench: Bench, sides: Sequence[str], count: int, program: Sequence[str] = WORKLOADS
) -> Iterator[dict[str, Team]]:
    """So many programs on each side, which import PyTorch side by side."""
    with ExitStack() as stack:
        places = {side: stack.enter_context(place(bench, side, count)) for side in sides}
        yield {side: Team(one, program, count, stack) for side, one in places.items()}


@contextmanager
def place(bench: Bench, side: str, count: int) -> Iterator[Place]:
    """Where so many programs of a side can run: a server, MPS, or just the device."""
    with ExitStack() as stack:
        server, variables = None, dict[str, str]()
        if side == OURS:
            # one more: the session of a program that failed may outlast it a little
            server = stack.enter_context(bench.launcher.server("--clients", str(count + 1)))
        if side == MPS:
            variables = stack.enter_context(mps.running())
        yield Place(bench.launcher, side, server, variables)


def fault_of_mps(launcher: Launcher) -> str:
    """Why no program can share the GPU through MPS here; nothing if one can."""
    if not mps.available():
        return f"there is no {mps.CONTROL}"
    try:
        with (
            mps.running() as folders,
            launcher.program(None, FIRST_KERNEL, "mps-first_kernel", **folders) as program,
        ):
            program.answer("done")
    except (OSError, SubprocessError, ProgramFailed) as error:
        return str(error)
    return ""


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
