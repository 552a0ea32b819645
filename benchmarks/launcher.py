"""Starts servers, and programs as their clients or natively, each with a log of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.checks.programs import Program, environment
from benchmarks.checks.server import Server, serving


@dataclass(frozen=True)
class Launcher:
    """``device``: the server's, "cuda" or "cpu"; native programs run on the same."""

    device: str
    logs: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def server(self, *options: str, prefix: Sequence[str] = ()) -> AbstractContextManager[Server]:
        log = self._log("server")
        return serving(self.device, log, options, prefix, environment(LD_PRELOAD=None))

    def program(
        self, server: Server | None, arguments: Sequence[str], name: str, **changes: str
    ) -> Program:
        """A Python program whose CUDA calls go to the server; without one, natively."""
        variables = self._native_environment if server is None else server.environment()
        device = self.device if server is None else "cuda"
        command = [sys.executable, *arguments, "--device", device]
        return Program(name, command, environment(**{**variables, **changes}), self._log(name))

    @property
    def _native_environment(self) -> dict[str, str | None]:
        """On the CPU one thread each: threads of several programs would wait for each other."""
        plain: dict[str, str | None] = {"LD_PRELOAD": None}
        return plain if self.device == "cuda" else {**plain, "OMP_NUM_THREADS": "1"}

    def _log(self, name: str) -> Path:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{next(self.numbers):03}-{name}.log"
