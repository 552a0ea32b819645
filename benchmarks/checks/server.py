"""A server of our own: started with its log in a file, and gone when the block is left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.checks.programs import ROOT, telling_line
from mnemosyne.cli import client_library
from mnemosyne.server.admin import ask_status

READY = "mnemosyne: ready"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01
PID, USED = 1, 3  # columns of a session in the server's status


class ServerFailed(Exception):
    """The server did not start or does not answer; one line that says why."""


@dataclass(frozen=True)
class Server:
    """A server that accepts clients. ``launcher``: what was started, itself or a tool around it."""

    launcher: psutil.Process
    socket: Path
    log: Path

    def environment(self) -> dict[str, str]:
        """What a client of this server needs."""
        return {
            "LD_PRELOAD": str(client_library()),
            "MNEMOSYNE_SOCKET": str(self.socket),
            "CUDA_VISIBLE_DEVICES": "0",  # ours may have chosen the server's GPU
        }

    def used_bytes(self) -> dict[int, int]:
        """Device memory of every client, by its process id."""
        try:
            sessions = ask_status(str(self.socket)).sessions
        except OSError as error:
            last = telling_line(self.log.read_text(errors="replace"))
            raise ServerFailed(f"the server does not answer ({error}): {last}") from None
        return {int(session[PID]): int(session[USED]) for session in sessions}

    def worker_pids(self) -> set[int]:
        return {p.pid for p in self.processes() if _runs(p, "mnemosyne.server.worker")}

    def processes(self) -> list[psutil.Process]:
        return [self.launcher, *self.launcher.children(recursive=True)]


@contextmanager
def serving(
    device: str, log: Path, options: Sequence[str], prefix: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[Server]:  # fmt: skip
    """A ready server; ``prefix`` is a tool that runs it. Raises ServerFailed."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder, log.open("w") as file:
        socket = Path(folder) / "socket"
        command = [*prefix, sys.executable, "-m", "mnemosyne.server", "--device", device]
        process = subprocess.Popen(
            [*command, "--socket", str(socket), *options], env=environment, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
        server = Server(psutil.Process(process.pid), socket, log)
        try:
            wait_until_ready(process, log)
            yield server
        finally:
            stop(process, server)


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while READY not in (output := log.read_text(errors="replace")):
        if process.poll() is not None:
            raise ServerFailed(f"the server did not start: {telling_line(output)}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"the server was not ready after {START_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def stop(process: subprocess.Popen[bytes], server: Server) -> None:
    """In order if possible; whatever is left after a while is killed."""
    everything = [] if process.poll() is not None else server.processes()
    for one in everything:
        if _runs(one, "mnemosyne.server"):
            one.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return module in command and "python" in os.path.basename(command[0])
