"""Items that run cases of users' models natively and here, and compare what they give.

A module of cases runs in a program of its own, one case after the other; when a case ends the
program or leaves it unusable, another one goes on. Native outcomes come from the cache if they can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.checks.context import CLIENTS, Context
from benchmarks.checks.outcomes import Outcome, agree, conclude
from benchmarks.checks.programs import Program, ProgramFailed
from benchmarks.checks.results import Check, Verdict
from benchmarks.checks.server import Server

CASES = CLIENTS / "cases"
RUN, SHARED = CASES / "run.py", CASES / "case.py"
NATIVE_RUNS = 2
NATIVE_RUNS_THAT_DIFFER = 5  # among themselves
NATIVE_RUNS_BESIDE_OURS = 20  # which differs from those: how far they vary is a matter of chance
CLIENTS_AT_ONCE = 3  # a case may start another process
PATIENCE = 90.0  # seconds that a case may take
ON_CPU = 0.1  # relative, for a CPU's kernels: they round 16 bits elsewhere than a GPU's
PACKAGES = ("accelerate", "lightning", "peft", "torchvision", "transformers", "triton")

Said = Mapping[str, Any]


@dataclass(frozen=True)
class Suite:
    """A module of cases. ``variables``: of its program's environment."""

    module: Path
    errors_count: bool = False  # an error that is native's too is a pass, not a skip
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> list[Path]:
        return [RUN, SHARED, self.module]

    def arguments(self, context: Context) -> list[str]:
        return [str(self.module), *(["--tiny"] if context.scale.tiny_cases else [])]

    def known_by(self, context: Context) -> list[str]:
        """What native outcomes depend on beside machine and sources."""
        set_ = [f"{name}={value}" for name, value in self.variables.items()]
        sizes = ["tiny"] if context.scale.tiny_cases else []
        return [self.module.name, *sizes, *set_, *map(version, PACKAGES)]

    def start(self, context: Context, server: Server | None) -> Program:
        name = f"cases-{self.module.stem}"
        return context.program(server, RUN, *self.arguments(context), name=name, **self.variables)

    def named(self, case: str) -> str:
        return ", ".join([case, *(f"{name}={value}" for name, value in self.variables.items())])


def version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"no {package}"


def suite(module: str, errors_count: bool = False, **variables: str) -> Suite:
    return Suite(CASES / f"{module}.py", errors_count, variables)


VISION = (suite("vision"),)
RECURRENT = (suite("recurrent"),)
LANGUAGE = (suite("language"),)
ATTENTION = (suite("attention"),)
LOADERS = (suite("loaders"), suite("loaders", CUDA_LAUNCH_BLOCKING="1"))
FALLBACKS = (suite("fallbacks", errors_count=True),)
PROGRAMS = (suite("programs"), suite("transforms"), suite("linear_algebra"))


def run(suites: Sequence[Suite], context: Context) -> Iterator[Check]:
    """Native runs come first, so that nothing else is on the GPU while either side is timed."""
    for one in suites:
        yield from compare(context, Natives(context, one))


def compare(context: Context, natives: Natives) -> Iterator[Check]:
    """What differs is looked at again beside more native runs, which may differ as well."""
    suite, differing = natives.suite, []
    with context.server("--clients", str(CLIENTS_AT_ONCE)) as server:
        for said in outcomes(context, suite, server, natives.names):
            found = look(context, natives, said)
            if found.verdict is Verdict.FAIL and "results" in said:
                differing.append(said)
            else:
                yield found
    natives.extend([said["case"] for said in differing], NATIVE_RUNS_BESIDE_OURS)
    for said in differing:
        yield look(context, natives, said)


def look(context: Context, natives: Natives, said: Said) -> Check:
    suite, name = natives.suite, said["case"]
    known = natives.outcomes(name)
    tolerance = 0.0 if context.on_gpu else ON_CPU
    return conclude(suite.named(name), Outcome.of(said), known, tolerance, suite.errors_count)


class Natives:
    """Outcomes of native runs of a suite: two of every case, more where they are asked for."""

    def __init__(self, context: Context, suite: Suite) -> None:
        self.suite = suite
        self._context = context
        self._runs: list[dict[str, Said]] = self._load() or self._run_all()

    @property
    def names(self) -> list[str]:
        return list(self._runs[0])

    def outcomes(self, name: str) -> list[Outcome]:
        return [Outcome.of(run[name]) for run in self._runs if name in run]

    def extend(self, names: Sequence[str], runs: int) -> None:
        """Run these again, in one more program, until each has been run so often."""
        more = [name for name in names for _ in range(runs - len(self.outcomes(name)))]
        if not more:
            return
        found = outcomes(self._context, self.suite, None, more)
        self._runs += [{said["case"]: said} for said in found]
        self._context.cache.store(self.suite.sources, self._known_by, self._runs)

    def _run_all(self) -> list[dict[str, Said]]:
        self._runs = [self._run() for _ in range(NATIVE_RUNS)]
        self._context.cache.store(self.suite.sources, self._known_by, self._runs)
        differing = [name for name in self.names if not agree(self.outcomes(name))]
        self.extend(differing, NATIVE_RUNS_THAT_DIFFER)
        return self._runs

    def _run(self) -> dict[str, Said]:
        found = outcomes(self._context, self.suite, None, None)
        return {said["case"]: said for said in found}

    def _load(self) -> list[dict[str, Said]] | None:
        kept: list[dict[str, Said]] | None
        kept = self._context.cache.load(self.suite.sources, self._known_by)
        return kept

    @property
    def _known_by(self) -> list[str]:
        return self.suite.known_by(self._context)


def outcomes(
    context: Context, suite: Suite, server: Server | None, names: Sequence[str] | None
) -> Iterator[Said]:
    """What the program says of these cases; of all for None."""
    left = None if names is None else list(names)
    while left != []:
        with suite.start(context, server) as program:
            left = list(program.ask("names", "names")["names"]) if left is None else left
            broken = False
            while left and not broken:
                said = ask(program, left.pop(0))
                broken = said.get("broken", False)
                yield said


def ask(program: Program, name: str) -> Said:
    try:
        return program.ask(f"run {name}", "case", PATIENCE)
    except ProgramFailed as failure:
        return {"case": name, "error": str(failure), "broken": True}
