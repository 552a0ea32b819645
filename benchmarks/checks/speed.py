"""Item speed: times here beside native ones, in turns. They are figures; none of them fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product

from benchmarks.checks import mps
from benchmarks.checks.context import CLIENTS, NO_GPU, Context
from benchmarks.checks.programs import Program
from benchmarks.checks.ratios import Ratio, bandwidths, rates, times
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.server import Server
from benchmarks.checks.trainings import Training, training
from benchmarks.checks.turns import compare, in_turns

SMALL = {"issue": "x.add_(1), issue", "item": "x.sum().item()", "sync": "sync of an idle stream"}
COPIES = ("h2d_pinned", "d2h_pinned", "h2d_pageable", "d2h_pageable")
KIND = "decoder"
CLIENTS_AT_ONCE = 4
STARTS = 3  # of a process, which takes seconds


def run(context: Context) -> Iterator[Check]:
    yield from steps_alone(context)
    yield from small_operations(context)
    for size in context.scale.shared_sizes:
        yield from four_at_once(context, size)


def steps_alone(context: Context) -> Iterator[Check]:
    """All programs of both sides start together and stay; one at a time trains."""
    window = context.scale.window
    works = [
        training(context, KIND, size, amp, window)
        for size, amp in product(context.scale.timed_sizes, (False, True))
        if context.on_gpu or not amp
    ]
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", str(len(works))))
        pairs = [
            [stack.enter_context(one.start(context, side)) for side in (None, server)]
            for one in works
        ]
        for one, (native, ours) in zip(works, pairs, strict=True):
            ratio = in_turns(context.scale.rounds, step(native, window), step(ours, window))
            yield judged(f"step of {one.name}", True, times(ratio))
            native.finish(), ours.finish()


def step(program: Program, window: int) -> Callable[[], float]:
    """Seconds of one step, from a window of them."""
    return lambda: float(program.ask(f"steps {window}", "steps")["seconds"]) / window


def small_operations(context: Context) -> Iterator[Check]:
    scale = context.scale
    with context.server("--clients", "2") as server, ExitStack() as stack:
        native, ours = (
            stack.enter_context(context.program(side, CLIENTS / "timing.py"))
            for side in (None, server)
        )
        for request, name in SMALL.items():
            ratio = compare(scale.rounds, native, ours, request, scale.repeats)
            yield judged(name, True, times(ratio))
        for way in COPIES:
            if context.on_gpu:
                ratio = compare(scale.rounds, native, ours, way, scale.bandwidth_bytes)
                yield judged(way, True, bandwidths(ratio, scale.bandwidth_bytes))
            else:
                yield skipped(way, NO_GPU)
        yield judged("start to first kernel, without import", True, times(starts(context, server)))


def starts(context: Context, server: Server) -> Ratio:
    return in_turns(
        min(STARTS, context.scale.rounds),
        lambda: start_once(context, None),
        lambda: start_once(context, server),
    )


def start_once(context: Context, server: Server | None) -> float:
    """Seconds from the start of a process to the end of its first kernel, without the import."""
    with context.program(server, CLIENTS / "first_kernel.py") as program:
        answer = program.answer("first")
        program.finish()
    return float(answer["first"]) - program.started - float(answer["import_seconds"])


def four_at_once(context: Context, size: str) -> Iterator[Check]:
    """Steps of four programs in sum: our clients, native ones in time slices, and under MPS."""
    one = training(context, KIND, size, context.on_gpu, context.scale.steps)
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
