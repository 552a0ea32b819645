"""Item faults: a client's fault is told to it; others keep their memory and go on at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from benchmarks.checks.context import CLIENTS, Context, attempts
from benchmarks.checks.programs import Program
from benchmarks.checks.results import Check, judged
from benchmarks.checks.server import Server

FAULTS = {"assert": "device-side assert triggered", "illegal": "illegal memory access"}
SERVICE_SECONDS = 1.0  # from the fault until the others are served again
IN_A_ROW = 2  # so that the second meets what the first left behind
EXPECTED = 128.0  # what a first operation computes


def run(context: Context) -> Iterator[Check]:
    for fault, told in FAULTS.items():
        yield from attempts(fault, partial(in_a_row, context, fault, told))


def in_a_row(context: Context, fault: str, told: str) -> Iterator[Check]:
    """One neighbour lives through several; each has a culprit and a newcomer of its own."""
    with (
        context.server("--clients", "4") as server,
        context.program(server, CLIENTS / "neighbour.py", name="holder") as holder,
    ):
        held = int(holder.ask(f"hold {context.scale.held_bytes}", "held")["held"])
        for number in range(1, IN_A_ROW + 1):
            for check in look(context, server, holder, held, fault, told):
                yield replace(check, name=f"{fault} {number}: {check.name}")


def look(
    context: Context, server: Server, holder: Program, held: int, fault: str, told: str
) -> Iterator[Check]:
    with ExitStack() as stack:
        culprit, newcomer = (
            stack.enter_context(context.program(server, CLIENTS / f"{name}.py"))
            for name in ("culprit", "neighbour")
        )
        for program in (culprit, newcomer):
            program.answer("ready")
        answer = culprit.ask(fault, "told")
        others = {"neighbour": holder, "new client": newcomer}
        for program in others.values():
            program.request("first")
        yield judged("culprit", told in answer["told"], answer["told"])
        for name, program in others.items():
            yield check_service(name, program, float(answer["launched"]))
    wrong = int(holder.ask("verify", "wrong")["wrong"])
    figure = f"{wrong} words of {held / 1e9:.3g} GB are wrong"
    yield judged("memory", wrong == 0, figure)


def check_service(name: str, program: Program, launched: float) -> Check:
    answer = program.answer("first")
    seconds = float(answer["first"]) - launched
    holds = seconds <= SERVICE_SECONDS and answer["value"] == EXPECTED
    figure = f"first operation {seconds:.2f} s after the fault, {SERVICE_SECONDS:g} allowed"
    return judged(name, holds, figure)
