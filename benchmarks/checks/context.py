"""What an item works with: how much to do, servers, and programs beside or under them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.checks.cache import NativeCache
from benchmarks.checks.machine import Machine
from benchmarks.checks.programs import ROOT, Program, ProgramFailed, environment
from benchmarks.checks.results import Check, Verdict
from benchmarks.checks.scale import Scale
from benchmarks.checks.server import Server, ServerFailed, serving

CLIENTS = ROOT / "benchmarks/checks/clients"
TRAIN = ROOT / "benchmarks/train.py"
NO_GPU = "no GPU"


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
    def _native_environment(self) -> dict[str, str | None]:
        """On the CPU one thread each: threads of several programs would wait for each other."""
        plain: dict[str, str | None] = {"LD_PRELOAD": None}
        return plain if self.on_gpu else {**plain, "OMP_NUM_THREADS": "1"}

    def server(self, *options: str, prefix: Sequence[str] = ()) -> AbstractContextManager[Server]:
        log = self._log("server")
        return serving(self.device, log, options, prefix, environment(LD_PRELOAD=None))

    def program(
        self, server: Server | None, script: Path, *arguments: str, name: str = "", **changes: str
    ) -> Program:
        """A program whose CUDA calls go to the server; without one, on the same device natively."""
        variables = self._native_environment if server is None else server.environment()
        device = self.device if server is None else "cuda"
        name = f"{name or script.stem}{'-native' if server is None else ''}"
        command = [sys.executable, str(script), *arguments, "--device", device]
        return Program(name, command, environment(**{**variables, **changes}), self._log(name))

    def _log(self, name: str) -> Path:
        return self.logs / f"{next(self._numbers):03}-{name}.log"


def attempt(name: str, look: Callable[[], Check]) -> Check:
    """A check that fails, and does not end its item, when a program does."""
    return next(attempts(name, lambda: iter([look()])))


def attempts(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The same for several, of which the last fails."""
    try:
        yield from look()
    except (ProgramFailed, ServerFailed) as failure:
        yield Check(name, Verdict.FAIL, str(failure))
