"""Trainings whose losses are compared: natively, alone as a client, or as one of several.

Native losses come from the cache if they can. Two native runs say what has to be met; if they
differ, more of them say how far native runs are apart.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checks.context import TRAIN, Context
from benchmarks.checks.losses import agree
from benchmarks.checks.programs import ROOT, Program, losses_of
from benchmarks.checks.server import Server

DEMOS = ROOT / "demos"
NATIVE_RUNS = 2
NATIVE_RUNS_THAT_DIFFER = 5


@dataclass(frozen=True)
class Demo:
    """One of the three demos."""

    kind: str
    steps: int

    name = property(lambda self: f"demo {self.kind}")
    sources = property(lambda self: sorted(DEMOS.glob("*.py")))
    arguments = property(lambda self: [self.kind, "--steps", str(self.steps)])

    def losses(self, context: Context, server: Server | None) -> list[float]:
        """Of all steps; natively without a server."""
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
            result = Path(folder) / "result.json"
            arguments = ["--steps", str(self.steps), "--json", str(result), "--progress-json"]
            script = DEMOS / f"{self.kind}.py"
            with context.program(server, script, *arguments, name=f"demo-{self.kind}") as program:
                program.finish()
            losses: list[float] = json.loads(result.read_text())["losses"]
        return losses


@dataclass(frozen=True)
class Training:
    """The training program with its arguments."""

    kind: str
    size: str
    amp: bool
    steps: int
    dropout: float
    seed: int = 0

    sources = property(lambda self: [TRAIN])

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size} {'amp' if self.amp else 'fp32'}"

    @property
    def arguments(self) -> list[str]:
        settings = {"size": self.size, "steps": self.steps, "dropout": self.dropout}
        pairs = [f"--{name}={value}" for name, value in {**settings, "seed": self.seed}.items()]
        return [self.kind, *pairs, *(["--amp"] if self.amp else [])]

    def start(self, context: Context, server: Server | None, **changes: str) -> Program:
        """The program, waiting for requests."""
        name = f"train-{self.name.replace(' ', '-')}"
        arguments = [*self.arguments, "--on-request"]
        return context.program(server, TRAIN, *arguments, name=name, **changes)

    def losses(self, context: Context, server: Server | None) -> list[float]:
        with self.start(context, server) as program:
            program.ask(f"steps {self.steps}", "steps")
            program.finish()
        return losses_of(program)


Work = Demo | Training


def training(
    context: Context, kind: str, size: str, amp: bool, steps: int, seed: int = 0
) -> Training:  # fmt: skip
    """With dropout where both sides draw the same numbers: a CPU draws others than a GPU."""
    return Training(kind, size, amp, steps, 0.1 if context.on_gpu else 0.0, seed)


def native_losses(context: Context, work: Work) -> Sequence[list[float]]:
    """Those of at least two native runs."""
    kept: list[list[float]] | None = context.cache.load(work.sources, work.arguments)
    if kept is not None:
        return kept
    runs = [work.losses(context, None) for _ in range(NATIVE_RUNS)]
    if not agree(runs):
        more = range(NATIVE_RUNS_THAT_DIFFER - NATIVE_RUNS)
        runs += [work.losses(context, None) for _ in more]
    context.cache.store(work.sources, work.arguments, runs)
    return runs
