"""From the server's command line to a running supervisor and back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import Annotated, Any

import typer
import uvloop

from mnemosyne.interrupt import INTERRUPTED
from mnemosyne.server import gpu
from mnemosyne.server.listener import Listener, SocketInUse, bind
from mnemosyne.server.options import Options, check
from mnemosyne.server.paths import WHERE
from mnemosyne.server.process import allow_many_files, log_to_stderr
from mnemosyne.server.slots import MAX_SLOTS
from mnemosyne.server.supervisor import Supervisor
from mnemosyne.server.workerprocess import Plan

log = logging.getLogger("mnemosyne")

#: click's UsageError, which typer brings along under another name from version to version.
_BAD_USAGE: Any = typer.BadParameter.__mro__[1]
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    clients: Annotated[
        int, typer.Option(help=f"How many programs may run at once, 1 to {MAX_SLOTS}.")
    ] = 4,
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU if one answers, else cpu), cuda, cpu, or null, which executes "
            "nothing: for measuring the calls themselves."
        ),
    ] = "auto",
    gpu: Annotated[
        str, typer.Option(help="Index or UUID of the GPU that clients see.", show_default="first")
    ] = "",
    socket: Annotated[str, typer.Option(help="Path of the socket.", show_default=WHERE)] = "",
    memory_per_client: Annotated[
        str, typer.Option(help="Device memory, such as 4GiB.", show_default="an equal share")
    ] = "",
    cpu_threads: Annotated[
        int,
        typer.Option(help="Threads of the CPU device.", show_default="half of the CPUs, 8 at most"),
    ] = 0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Lets several PyTorch programs share one device."""
    options = check(
        clients, device.lower(), gpu, socket, memory_per_client, cpu_threads, log_level.lower()
    )
    log_to_stderr("mnemosyne", options.log_level)
    chosen = _choose_device(options)
    allow_many_files()
    try:
        listening = bind(options.socket)
    except SocketInUse as error:
        raise _stop(str(error), 1) from None
    raise typer.Exit(uvloop.run(_serve(options, chosen, listening)))


def _choose_device(options: Options) -> str:
    if options.device != "auto":
        return options.device
    if gpu.answers(dict(os.environ)):
        return "cuda"
    _say("no GPU answers; using the CPU device")
    return "cpu"


async def _serve(options: Options, device: str, listening: socket.socket) -> int:
    """Runs until a signal or until the supervisor gives up; the exit code."""
    plan = Plan(
        options.clients, device, options.gpu, options.threads, options.quota, options.log_level
    )
    supervisor = Supervisor(plan)
    listener = Listener(listening, supervisor.greeted)
    _on_signals(supervisor, listener)
    try:
        if await supervisor.serves():
            _say(f"ready: {supervisor.device} for {options.clients} clients on {options.socket}")
        return await supervisor.finished
    finally:
        listener.close()


def _on_signals(supervisor: Supervisor, listener: Listener) -> None:
    """The first signal stops in order, the second one at once."""
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    def stop(name: str) -> None:
        listener.close()
        if stopping:
            supervisor.kill_worker()
            os._exit(1)
        stopping.append(loop.create_task(supervisor.stop(f"the server got {name}")))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)


def _stop(text: str, code: int) -> typer.Exit:
    _say(text)
    return typer.Exit(code)


def _say(text: str) -> None:
    print(f"mnemosyne: {text}", file=sys.stderr, flush=True)


def run() -> int:
    """The exit code; what is wrong with the command line is one line and 2."""
    try:
        return int(app(prog_name="python -m mnemosyne.server", standalone_mode=False) or 0)
    except _BAD_USAGE as error:
        _say(error.format_message())
        return 2
    except typer.Abort:
        return INTERRUPTED
