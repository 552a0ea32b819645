"""Item kills: clients killed with kernels in flight leave no memory and disturb nobody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from benchmarks.checks.context import CLIENTS, Context
from benchmarks.checks.losses import judge
from benchmarks.checks.programs import Program, ProgramFailed, losses_of
from benchmarks.checks.results import Check, judged
from benchmarks.checks.server import POLL_SECONDS, Server
from benchmarks.checks.trainings import Training, training

BACK_SECONDS = 2.0  # from the end of the work in flight until the memory is back
PATIENCE = 20.0
AHEAD = 4  # victims that load PyTorch while another one is killed
STRETCH = 5  # steps of a neighbour between two looks at whether to go on


@dataclass(frozen=True)
class Death:
    in_flight: bool  # whether it was killed before its kernels can have ended
    back: float  # seconds from their end until its memory was back


class Neighbour:
    """A training that goes on until it is told to stop."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.failure: ProgramFailed | None = None
        self._stop = Event()
        self._thread = Thread(target=self._train, daemon=True)
        self._thread.start()

    def stop(self) -> list[float]:
        """Its losses so far."""
        self._stop.set()
        self._thread.join()
        if self.failure:
            raise self.failure
        return losses_of(self.program)

    def _train(self) -> None:
        try:
            while not self._stop.is_set():
                self.program.ask(f"steps {STRETCH}", "steps")
        except ProgramFailed as failure:
            self.failure = failure


def run(context: Context) -> Iterator[Check]:
    """Two neighbours train all the while; afterwards each trains as long alone."""
    two = [
        training(context, "encoder", "tiny", False, STRETCH, seed=1),
        training(context, "decoder", "tiny", context.on_gpu, STRETCH, seed=2),
    ]
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", "4"))
        programs = [stack.enter_context(one.start(context, server)) for one in two]
        for program in programs:
            program.ask(f"steps {STRETCH}", "steps")
        before = used_on_gpu(context)
        neighbours = [Neighbour(program) for program in programs]
        deaths = list(kill_all(context, server))
        grown = used_on_gpu(context) - before
        yield check_deaths(deaths, grown, context.scale.victim_bytes)
        losses = [neighbour.stop() for neighbour in neighbours]
    for one, found in zip(two, losses, strict=True):
        yield check_neighbour(context, one, found)


def kill_all(context: Context, server: Server) -> Iterator[Death]:
    with victims(context, server) as ready:
        for victim in ready:
            victim.answer("ready")
            yield kill(context, server, victim)


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
    with context.server("--clients", "1") as server, one.start(context, server) as program:
        for _ in range(len(losses) // STRETCH):
            program.ask(f"steps {STRETCH}", "steps")
        alone = losses_of(program)
    found = judge(losses, [alone])
    return judged(f"{one.name} beside kills", found.holds, found.figure)


def used_on_gpu(context: Context) -> int:
    gpu = context.machine.gpu
    return gpu.used() if context.on_gpu and gpu else 0
