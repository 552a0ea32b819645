"""Item footprint: only the worker is on the GPU, and it needs little beside the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.checks.context import CLIENTS, NO_GPU, Context
from benchmarks.checks.nvml import Gpu
from benchmarks.checks.programs import Program
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.server import Server
from benchmarks.checks.trainings import training

BEYOND_TENSORS = 1.1e9  # bytes, for four clients in all
KINDS = ("encoder", "decoder", "encdec", "decoder")
STEPS = 10


def run(context: Context) -> Iterator[Check]:
    """Four clients train, then all stay while the driver is asked."""
    gpu = context.machine.gpu if context.on_gpu else None
    idle = gpu.used() if gpu else 0
    strangers = gpu.compute_pids() if gpu else set()
    size = context.scale.sizes[-1]
    with ExitStack() as stack:
        server = stack.enter_context(context.server("--clients", "4"))
        four = [training(context, kind, size, True, STEPS) for kind in KINDS]
        programs = [stack.enter_context(one.start(context, server)) for one in four]
        for program in programs:
            program.request(f"steps {min(STEPS, context.scale.steps)}")
        reserved = [int(program.ask("memory", "reserved")["reserved"]) for program in programs]
        yield check_status(server, programs, reserved)
        if gpu is None:
            yield skipped("processes on the GPU", NO_GPU)
            yield skipped("memory beyond tensors", NO_GPU)
            return
        yield check_memory(gpu.used() - idle, sum(reserved))
        found = gpu.compute_pids() - strangers
        clients = {program.pid for program in programs}
        if found:
            yield check_processes(found, server.worker_pids(), clients)
        else:
            yield blind(context, gpu)


def check_status(server: Server, programs: list[Program], reserved: list[int]) -> Check:
    """The server knows of all that PyTorch's allocators hold."""
    used = server.used_bytes()
    missing = [p.name for p, r in zip(programs, reserved, strict=True) if used.get(p.pid, -1) < r]
    figure = f"{sum(used.values()) / 1e6:.0f} MB used, {sum(reserved) / 1e6:.0f} MB reserved"
    return judged(
        "server's account", not missing, figure + "".join(f"; less for {m}" for m in missing)
    )


def check_memory(grown: int, reserved: int) -> Check:
    beyond = grown - reserved
    figure = f"{beyond / 1e6:.0f} MB ({BEYOND_TENSORS / 1e6:.0f} allowed)"
    figure += f", {reserved / 1e6:.0f} MB in tensors"
    return judged("memory beyond tensors", beyond <= BEYOND_TENSORS, figure)


def check_processes(found: set[int], workers: set[int], clients: set[int]) -> Check:
    """In a container the driver may number processes as its host does; then they are counted."""
    name = "processes on the GPU"
    if found & (workers | clients):
        others = found - workers
        return judged(name, not others, f"the worker, others: {sorted(others) or 'none'}")
    return judged(name, len(found) == 1, f"{len(found)}, numbered as outside this container")


def blind(context: Context, gpu: Gpu) -> Check:
    """Whether the driver lists processes here at all: a native one must appear."""
    before = gpu.compute_pids()
    with context.program(None, CLIENTS / "neighbour.py") as native:
        native.ask("first", "first")
        sees = gpu.compute_pids() != before
    name = "processes on the GPU"
    if sees:
        return judged(name, False, "not even the worker is listed, though a native process is")
    return skipped(name, "the driver lists no processes here")
