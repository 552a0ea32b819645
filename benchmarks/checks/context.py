"""What an item works with: how much to do, servers, and programs beside or under them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.checks import mps
from benchmarks.checks.cache import NativeCache
from benchmarks.checks.machine import Machine
from benchmarks.checks.programs import ROOT, Program, ProgramFailed
from benchmarks.checks.results import Check, Verdict
from benchmarks.checks.scale import Scale
from benchmarks.checks.server import Server, ServerFailed
from benchmarks.launcher import Launcher

CLIENTS = ROOT / "benchmarks/checks/clients"
TRAIN = ROOT / "benchmarks/train.py"
NO_GPU = "no GPU"
SHARING = 4  # programs at once


@dataclass(frozen=True)
class Context:
    """``device``: the server's, "cuda" or "cpu"; native programs run on the same."""

    device: str
    scale: Scale
    machine: Machine
    cache: NativeCache
    logs: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def at_once(self) -> int:
        """Programs that may run side by side where nothing is timed."""
        return max(1, min(6, self.machine.cores // 2))

    @property
    def tolerance(self) -> float:
        """Relative, between ours and native: the CPU device sums in another order than a GPU."""
        return 0.0 if self.on_gpu else 2e-3

    @property
    def bench(self) -> Bench:
        """For figures beside native ones."""
        scale, has_mps = self.scale, self.on_gpu and mps.available()
        return Bench(scale.timed, scale.rounds, SHARING, self.machine, self._launcher, has_mps)

    @property
    def _launcher(self) -> Launcher:
        return Launcher(self.device, self.logs, self._numbers)

    def server(self, *options: str, prefix: Sequence[str] = ()) -> AbstractContextManager[Server]:
        return self._launcher.server(*options, prefix=prefix)

    def program(
        self, server: Server | None, script: Path, *arguments: str, name: str = "", **changes: str
    ) -> Program:
        """A program whose CUDA calls go to the server; without one, on the same device natively."""
        name = f"{name or script.stem}{'-native' if server is None else ''}"
        return self._launcher.program(server, [str(script), *arguments], name, **changes)


def attempt(name: str, look: Callable[[], Check]) -> Check:
    """A check that fails, and does not end its item, when a program does."""
    return next(attempts(name, lambda: iter([look()])))


def attempts(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The same for several, of which the last fails."""
    try:
        yield from look()
    except (ProgramFailed, ServerFailed) as failure:
        yield Check(name, Verdict.FAIL, str(failure))
