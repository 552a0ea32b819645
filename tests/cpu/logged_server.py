"""A server whose log a test can read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from conftest import ROOT, wait_until
from ring import RingClient


@dataclass
class LoggedServer:
    """A running server of the CPU device for four clients."""

    process: subprocess.Popen[bytes]
    socket: Path
    log: Path

    def client(self) -> RingClient:
        return RingClient(self.socket)

    def worker(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def kill_worker(self) -> None:
        """Returns when the supervisor has decided which sessions go on."""
        before = self.log.read_text().count("starting another worker")
        self.worker().kill()
        assert wait_until(lambda: self.log.read_text().count("starting another worker") > before)


@contextmanager
def logged_server(folder: Path) -> Iterator[LoggedServer]:
    """Runs one; at its end it must stop as asked and have met no bug of its own."""
    path, log = folder / "s.sock", folder / "log"
    command = [sys.executable, "-m", "mnemosyne.server", "--clients", "4", "--device", "cpu"]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--socket", str(path)], cwd=ROOT, stderr=out)
    running = LoggedServer(process, path, log)
    try:
        assert wait_until(lambda: running.says("mnemosyne: ready"), 60), log.read_text()
        yield running
    finally:
        process.terminate()
        code = process.wait(5)
    assert code == 0
    assert not running.says("bug:"), log.read_text()
