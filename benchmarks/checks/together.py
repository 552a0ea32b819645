"""Item together: four clients that train at once each compute what they compute alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks.checks.context import Context
from benchmarks.checks.losses import agree, judge
from benchmarks.checks.programs import losses_of
from benchmarks.checks.results import Check, judged
from benchmarks.checks.trainings import Training, native_losses, training

CLIENTS = (  # kind, size if it is among those to compare, and whether in bfloat16
    ("encoder", "tiny", False),
    ("decoder", "base", True),
    ("encdec", "tiny", True),
    ("decoder", "tiny", False),
)


def run(context: Context) -> Iterator[Check]:
    """All begin their steps at one moment, once each is ready."""
    steps = context.scale.steps
    four = [
        training(context, kind, size_in(context, size), amp, steps, seed)
        for seed, (kind, size, amp) in enumerate(CLIENTS)
    ]
    with ThreadPoolExecutor(context.at_once) as pool:
        alone = list(pool.map(lambda one: references(context, one), four))
    together = train_together(context, four)
    for one, runs, losses in zip(four, alone, together, strict=True):
        found = judge(losses, runs)
        yield judged(f"{one.name} among four", found.holds, found.figure)


def size_in(context: Context, size: str) -> str:
    return size if size in context.scale.sizes else context.scale.sizes[0]


def references(context: Context, one: Training) -> Sequence[list[float]]:
    """Its solo run; with the native ones where those differ among themselves."""
    with context.server("--clients", "1") as server:
        alone = one.losses(context, server)
    natives = native_losses(context, one) if context.on_gpu else []
    return [alone] if agree(natives) else [alone, *natives]


def train_together(context: Context, four: Sequence[Training]) -> list[list[float]]:
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", "4"))
        programs = [stack.enter_context(one.start(context, server)) for one in four]
        for program in programs:
            program.ask("steps 0", "steps")
        for program, one in zip(programs, four, strict=True):
            program.request(f"steps {one.steps}")
        for program in programs:
            program.answer("steps")
        return [losses_of(program) for program in programs]
