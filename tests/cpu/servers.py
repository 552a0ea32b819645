"""A running server of the CPU device, and its clients."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recorded import preload

ROOT = Path(__file__).parents[2]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Polls; False when the condition did not hold in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@dataclass
class Server:
    """A running server of the CPU device."""

    process: subprocess.Popen[str]
    socket: Path

    def environment(self) -> dict[str, str]:
        """Of a client of this server."""
        return {
            **os.environ,
            "LD_PRELOAD": preload(),
            "MNEMOSYNE_SOCKET": str(self.socket),
            "CUDA_VISIBLE_DEVICES": "0",  # whichever the tests were given
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A client that runs beside the test."""
        return subprocess.Popen(
            command, env=self.environment(), cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def python(self, code: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", code)

    def run(self, code: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """A Python client, to its end."""
        return subprocess.run(
            [sys.executable, "-c", code], env=self.environment(), cwd=ROOT, text=True,
            capture_output=True, timeout=timeout,
        )  # fmt: skip

    def output(self, code: str, timeout: float = 120) -> str:
        """What a Python client prints; the test fails if it does."""
        done = self.run(code, timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sessions(self) -> list[list[object]]:
        from mnemosyne.server.admin import ask_status

        return ask_status(str(self.socket)).sessions

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


def start_server(folder: Path, *options: str, files: int | str = "hard") -> Server:
    """A server that accepts clients. ``files``: how many it may open."""
    path = folder / "mnemosyne.sock"
    command = [sys.executable, "-m", "mnemosyne.server", "--device", "cpu", "--socket", str(path)]
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command, *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    lines = []
    assert process.stderr is not None
    while select.select([process.stderr], [], [], 60)[0] and (line := process.stderr.readline()):
        lines.append(line)
        if "mnemosyne: ready" in line:
            _drain(process)
            return Server(process, path)
    process.kill()
    raise AssertionError(f"the server did not start: {''.join(lines)}")


def _drain(process: subprocess.Popen[str]) -> None:
    """Keeps the server's log from filling its pipe."""
    import threading

    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()


class Nursery:
    """Forks clients: see nursery.py. It imports PyTorch once for all of them."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("nursery.py")
        environment = Server(None, Path()).environment()  # type: ignore[arg-type]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(theirs.fileno())], env=environment, cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def fork(self, files: list[int], server: Server, code: str) -> int:
        """The new process's number."""
        message = json.dumps([str(server.socket), code])
        socket.send_fds(self._socket, [message.encode()], files)
        return int(self._socket.recv(64))

    def wait(self, pid: int) -> int:
        self._socket.send(json.dumps([pid]).encode())
        return int(self._socket.recv(64))

    def start(self, server: Server, code: str) -> Fork:
        """A client that has nothing to read."""
        output, errors = os.memfd_create("output"), os.memfd_create("errors")
        with open(os.devnull) as nothing:
            pid = self.fork([nothing.fileno(), output, errors], server, code)
        return Fork(self, pid, output, errors)

    def output(self, server: Server, code: str) -> str:
        return self.start(server, code).finish()

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


@dataclass(frozen=True)
class Fork:
    """A client that a nursery has forked; its output and errors are files."""

    nursery: Nursery
    pid: int
    output: int
    errors: int

    def finish(self) -> str:
        """What it prints until it ends; the test fails if it does."""
        with open(self.output) as output, open(self.errors) as errors:
            try:
                status = self.nursery.wait(self.pid)
            except BaseException:  # the test's time is up
                os.kill(self.pid, signal.SIGKILL)
                raise
            output.seek(0)
            errors.seek(0)
            assert status == 0, errors.read()
            return output.read().strip()
