"""Item speed: times here beside native ones, in turns. They are figures; none of them fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product

from benchmarks.checks import mps
from benchmarks.checks.context import CLIENTS, NO_GPU, Context, attempt, attempts
from benchmarks.checks.programs import Program
from benchmarks.checks.ratios import Ratio, bandwidths, rates, times
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.scale import Scale
from benchmarks.checks.server import Server
from benchmarks.checks.trainings import Training, training
from benchmarks.checks.turns import compare, in_turns, timed

SMALL = {"issue": "x.add_(1), issue", "item": "x.sum().item()", "sync": "sync of an idle stream"}
COPIES = ("h2d_pinned", "d2h_pinned", "h2d_pageable", "d2h_pageable")
KIND = "decoder"
CLIENTS_AT_ONCE = 4
FIRST = "first kernel of a process, after import"
STARTS = 3  # of such processes on each side


def run(context: Context) -> Iterator[Check]:
    yield from attempts("steps alone", lambda: steps_alone(context))
    yield from attempts("small operations", lambda: small_operations(context))
    yield attempt(FIRST, lambda: judged(FIRST, True, times(first_kernels(context))))
    for size in context.scale.shared_sizes:
        yield from attempts(f"four at once, {size}", partial(four_at_once, context, size))


def steps_alone(context: Context) -> Iterator[Check]:
    """All programs of both sides start together and stay; one at a time trains."""
    window = context.scale.window
    works = [
        training(context, KIND, size, amp, window)
        for size, amp in product(context.scale.timed_sizes, (False, True))
    ]
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", str(len(works))))
        pairs = [
            [stack.enter_context(one.start(context, side)) for side in (None, server)]
            for one in works
        ]
        for one, (native, ours) in zip(works, pairs, strict=True):
            name = f"step of {one.name}"
            yield attempt(name, partial(step_of, name, context.scale, native, ours))


def step_of(name: str, scale: Scale, native: Program, ours: Program) -> Check:
    window = scale.window
    ratio = in_turns(scale.rounds, step(native, window), step(ours, window))
    native.finish()
    ours.finish()
    return judged(name, True, times(ratio))


def step(program: Program, window: int) -> Callable[[], float]:
    """Seconds of one step, from a window of them."""
    return lambda: float(program.ask(f"steps {window}", "steps")["seconds"]) / window


def small_operations(context: Context) -> Iterator[Check]:
    scale = context.scale
    with context.server("--clients", "2") as server, ExitStack() as stack:
        native, ours = (stack.enter_context(timing(context, side)) for side in (None, server))
        for request, name in SMALL.items():
            ratio = compare(scale.rounds, native, ours, request, scale.repeats)
            yield judged(name, True, times(ratio))
        for way in COPIES:
            if context.on_gpu:
                ratio = compare(scale.rounds, native, ours, way, scale.bandwidth_bytes)
                yield judged(way, True, bandwidths(ratio, scale.bandwidth_bytes))
            else:
                yield skipped(way, NO_GPU)


def first_kernels(context: Context) -> Ratio:
    """Each by a process of its own; they import PyTorch side by side and wait."""
    rounds = min(STARTS, context.scale.rounds)
    with context.server("--clients", "2") as server, ExitStack() as stack:
        native, ours = (
            [stack.enter_context(timing(context, side)) for _ in range(rounds + 1)]
            for side in (None, server)
        )
        for program in (*native, *ours):
            program.answer("ready")
        return in_turns(rounds, partial(first_kernel, native), partial(first_kernel, ours))


def first_kernel(waiting: list[Program]) -> float:
    """Seconds of one of them, which then ends."""
    program = waiting.pop()
    seconds = timed(program, "first", 64)()
    program.finish()
    return seconds


def timing(context: Context, server: Server | None) -> Program:
    return context.program(server, CLIENTS / "timing.py")


def four_at_once(context: Context, size: str) -> Iterator[Check]:
    """Steps of four programs in sum: our clients, native ones in time slices, and under MPS."""
    one = training(context, KIND, size, True, context.scale.steps)
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", str(CLIENTS_AT_ONCE)))
        ours = start_four(context, stack, one, server)
        slices = start_four(context, stack, one, None)
        yield compared(context, f"four {one.name}, against time slices", slices, ours)
        name = f"four {one.name}, against MPS"
        if context.on_gpu and mps.available():
            folders = stack.enter_context(mps.running())
            yield compared(context, name, start_four(context, stack, one, None, **folders), ours)
        else:
            yield skipped(name, f"no {mps.CONTROL}" if context.on_gpu else NO_GPU)


def start_four(
    context: Context, stack: ExitStack, one: Training, server: Server | None, **changes: str
) -> list[Program]:
    return [
        stack.enter_context(one.start(context, server, **changes)) for _ in range(CLIENTS_AT_ONCE)
    ]


def compared(
    context: Context, name: str, natives: Sequence[Program], ours: Sequence[Program]
) -> Check:
    ratio = in_turns(context.scale.rounds, all_train(context, natives), all_train(context, ours))
    return judged(name, True, rates(ratio))


def all_train(context: Context, programs: Sequence[Program]) -> Callable[[], float]:
    """Seconds of a step when the steps of all count."""

    def train() -> float:
        for program in programs:
            program.request(f"seconds {context.scale.shared_seconds}")
        answers = [program.answer("steps") for program in programs]
        return 1 / sum(float(answer["steps_per_second"]) for answer in answers)

    return train
