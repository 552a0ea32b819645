"""Item kills: clients killed with kernels in flight leave no memory and disturb nobody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.checks.context import CLIENTS, Context
from benchmarks.checks.losses import judge
from benchmarks.checks.programs import Program, ProgramFailed, losses_of
from benchmarks.checks.results import Check, judged
from benchmarks.checks.server import POLL_SECONDS, Server
from benchmarks.checks.trainings import Training, training

BACK_SECONDS = 2.0  # from the end of the work in flight until the memory is back
PATIENCE = 20.0
AHEAD = 4  # victims that load PyTorch while another one is killed
STEPS = 10  # of a neighbour before the first kill


@dataclass(frozen=True)
class Death:
    in_flight: bool  # whether it was killed before its kernels can have ended
    back: float  # seconds from their end until its memory was back


def run(context: Context) -> Iterator[Check]:
    """Two neighbours train through every kill; afterwards each trains as long alone."""
    two = [
        training(context, "encoder", "tiny", False, STEPS, seed=1),
        training(context, "decoder", "tiny", True, STEPS, seed=2),
    ]
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", "4"))
        neighbours = [stack.enter_context(one.start(context, server)) for one in two]
        for neighbour in neighbours:
            neighbour.ask(f"steps {STEPS}", "steps")
        before = used_on_gpu(context)
        deaths = list(kill_all(context, server, neighbours))
        grown = used_on_gpu(context) - before
        yield check_deaths(deaths, grown, context.scale.victim_bytes)
        losses = [losses_of(neighbour) for neighbour in neighbours]
    with ThreadPoolExecutor(context.at_once) as pool:
        yield from pool.map(partial(check_neighbour, context), two, losses)


def kill_all(context: Context, server: Server, neighbours: Sequence[Program]) -> Iterator[Death]:
    with victims(context, server) as ready:
        for victim in ready:
            victim.answer("ready")
            for neighbour in neighbours:
                neighbour.request(f"seconds {context.scale.chain_seconds}")
            yield kill(context, server, victim)
            for neighbour in neighbours:
                neighbour.answer("steps")


def kill(context: Context, server: Server, victim: Program) -> Death:
    """Kill the victim as soon as its work is in flight; wait for its memory."""
    scale = context.scale
    work = f"launch {scale.victim_bytes} {round(scale.chain_seconds * 1e3)}"
    ends = float(victim.ask(work, "launched")["ends"])
    if victim.pid not in server.used_bytes():
        raise ProgramFailed(f"{victim.name} has launched, but the server does not list it")
    victim.kill()
    killed = time.monotonic()
    while victim.pid in server.used_bytes() and time.monotonic() < ends + PATIENCE:
        time.sleep(POLL_SECONDS)
    return Death(killed < ends, max(0.0, time.monotonic() - max(killed, ends)))


@contextmanager
def victims(context: Context, server: Server) -> Iterator[Iterator[Program]]:
    """As many as are to be killed, a few of them started ahead."""
    with ExitStack() as stack:

        def supply() -> Iterator[Program]:
            waiting: deque[Program] = deque()
            for _ in range(context.scale.kills):
                program = context.program(server, CLIENTS / "victim.py")
                waiting.append(stack.enter_context(program))
                if len(waiting) >= min(AHEAD, context.at_once):
                    yield waiting.popleft()
            yield from waiting

        yield supply()


def check_deaths(deaths: Sequence[Death], grown: int, victim_bytes: int) -> Check:
    worst = max(death.back for death in deaths)
    flying = sum(death.in_flight for death in deaths)
    figure = f"{len(deaths)} kills, {flying} in mid-kernel; memory back {worst:.2f} s at most"
    figure += f" after the work's end ({BACK_SECONDS:g} allowed), GPU memory {grown / 1e6:+.0f} MB"
    holds = worst <= BACK_SECONDS and flying == len(deaths) and grown < victim_bytes
    return judged("memory of the killed", holds, figure)


def check_neighbour(context: Context, one: Training, losses: list[float]) -> Check:
    with context.server("--clients", "1") as server:
        alone = replace(one, steps=len(losses)).losses(context, server)
    found = judge(losses, [alone])
    return judged(f"{one.name} beside kills", found.holds, found.figure)


def used_on_gpu(context: Context) -> int:
    gpu = context.machine.gpu
    return gpu.used() if context.on_gpu and gpu else 0
