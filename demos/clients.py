"""Runs the three demos: at once as clients of a Mnemosyne server, or alone in plain PyTorch.

What goes wrong is a ``Failed`` with the processes whose output may tell why. This file must never
print and never judge a result.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare import Run
from processes import Child, running
from terminal import Report

HERE = Path(__file__).resolve().parent
CLIENTS = 4
READY_SECONDS = 60.0
READY_LINE = "mnemosyne: ready"


class Failed(Exception):
    """The demonstration cannot go on; ``children`` have output that may tell why."""

    def __init__(self, message: str, *children: Child) -> None:
        super().__init__(message)
        self.children = children


@dataclass(frozen=True)
class Server:
    """A server that accepts clients; ``child`` is None if somebody else started it."""

    socket: Path
    child: Child | None


async def run_clients(
    server: Server, library: Path, reports: Mapping[str, Report], steps: int, folder: Path,
    seconds: float,
) -> list[Run]:  # fmt: skip
    """All demos at once through the server, in the order of ``reports``."""
    environment = {
        "LD_PRELOAD": str(library),
        "MNEMOSYNE_SOCKET": str(server.socket),
        "CUDA_VISIBLE_DEVICES": "0",  # ours may have chosen the server's GPU
    }
    demos = [
        run_demo(name, "cuda", steps, folder, report, environment)
        for name, report in reports.items()
    ]
    work = asyncio.create_task(all_of(demos))
    return await wait_with_server(work, server.child, seconds, "the clients to finish")


async def run_demo(
    name: str, device: str, steps: int, folder: Path, report: Report,
    environment: Mapping[str, str],
) -> Run:  # fmt: skip
    """One demo from start to end, with ``environment`` added to ours."""
    result = folder / f"{name}-{device}.json"
    command = [sys.executable, str(HERE / f"{name}.py"), "--device", device]
    command += ["--steps", str(steps), "--json", str(result), "--progress-json"]
    library = environment.get("LD_PRELOAD")
    loaded = []

    def take_line(child: Child, line: str) -> bool:
        if (progress := parse_progress(line)) is None:
            return False
        if library and not loaded:
            loaded.append(child.has_loaded(Path(library)))
        report(*progress)
        return True

    async with running(name, command, take_line, environment) as child:
        if status := await child.finish():
            raise Failed(f"{name} ended with {describe(status)}", child)
    if library and loaded != [True]:
        raise Failed(f"{name} ran without the client library {library}", child)
    return Run(**json.loads(result.read_text()))


def parse_progress(line: str) -> tuple[int, float] | None:
    """Step and loss, if the line is a demo's progress."""
    if not line.startswith('{"step": '):
        return None
    progress = json.loads(line)
    return progress["step"], progress["loss"]


async def client_library() -> Path:
    """Where the library is that makes a program a client."""
    command = [sys.executable, "-m", "mnemosyne.cli", "client-path"]
    async with running("mnemosyne.cli client-path", command) as child:
        status = await child.finish()
    library = Path(child.tail[-1] if child.tail else "")
    if status or not library.is_file():
        raise Failed("there is no client library; is Mnemosyne installed?", child)
    return library


@asynccontextmanager
async def serving(socket: Path) -> AsyncIterator[Server]:
    """A server of our own, ready, and gone when the block is left."""
    ready = asyncio.get_running_loop().create_future()

    def take_line(child: Child, line: str) -> bool:
        if line.startswith(READY_LINE) and not ready.done():
            ready.set_result(None)
        return False

    command = [sys.executable, "-m", "mnemosyne.server", "--clients", str(CLIENTS)]
    async with running("server", [*command, "--socket", str(socket)], take_line) as child:
        await wait_with_server(ready, child, READY_SECONDS, f"a line '{READY_LINE}'")
        if not socket.is_socket():
            raise Failed(f"the server says it is ready, but {socket} is no socket", child)
        yield Server(socket, child)


async def wait_with_server(
    work: asyncio.Future[Any], server: Child | None, seconds: float, what: str
) -> Any:
    """The result of ``work``, for which we wait neither beyond ``seconds`` nor the server's end."""
    servers = [server] if server else []
    exits = [child.exit for child in servers]
    try:
        await asyncio.wait([work, *exits], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if server and server.exit.done():
            raise Failed(f"the server ended with {describe(await server.finish())}")
        if not work.done():
            raise Failed(f"waited {seconds:g} s in vain for {what}")
        return work.result()
    except Failed as failure:
        failure.children += tuple(servers)
        raise
    finally:
        work.cancel()
        await asyncio.wait([work])


async def all_of(jobs: Iterable[Coroutine[Any, Any, Run]]) -> list[Run]:
    """The results of all jobs at once; the first to fail ends the others."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def describe(status: int) -> str:
    """An exit status in words."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
