"""Programs that the checks start, talk to and end. This file must never judge what they say.

A program answers requests, lines on its stdin, with lines of JSON on its stdout; whatever else it
prints goes to its log.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0  # seconds that an answer may take
GRACE = 10.0  # seconds that a program may take to end
LONGEST = 200  # characters of a line that is quoted
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b")


class ProgramFailed(Exception):
    """A program ended or hung when it should have answered; one line that says why."""


class Program:
    """A running program. Leaving its block ends it."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.said: list[dict[str, Any]] = []  # all answers so far
        self.failed = False
        self._log = log.open("w")
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, env=environment, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail("does not listen any more")

    def answer(self, key: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The next answer that has this key; those before it are in ``said`` as well."""
        deadline = time.monotonic() + patience
        while True:
            try:
                found = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._fail(f"gave no answer {key!r} within {patience:g} s")
            if found is None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(GRACE)  # its exit status says more
                self._fail(f"ended before its answer {key!r}")
            self.said.append(found)
            if key in found:
                return found

    def ask(self, line: str, key: str, patience: float = PATIENCE) -> dict[str, Any]:
        self.request(line)
        return self.answer(key, patience)

    def finish(self, patience: float = PATIENCE) -> None:
        """Ask for nothing more, and wait until it has ended by itself, in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._fail(f"did not end within {patience:g} s")
        while (found := self._answers.get(timeout=GRACE)) is not None:
            self.said.append(found)
        if status != 0:
            self._fail("failed")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._answers.put(json.loads(line))
            else:
                self._log.write(line)
                self._log.flush()
        self._answers.put(None)

    def _fail(self, what: str) -> NoReturn:
        self.failed = True
        self._answers.put(None)  # whoever asks again hears that it is over
        output = Path(self._log.name).read_text(errors="replace")
        status = self._process.poll()
        ended = "" if status is None else f" (exit status {status})"
        raise ProgramFailed(f"{self.name} {what}{ended}: {telling_line(output)}")


def telling_line(output: str) -> str:
    """The last line that names an error, else the last one."""
    lines = [line.strip()[:LONGEST] for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["it printed nothing"])[-1]


def losses_of(program: Program) -> list[float]:
    """What a training program said of its steps."""
    return [said["loss"] for said in program.said if "loss" in said]


def environment(**changes: str | None) -> dict[str, str]:
    """Ours with changes; None takes a variable away."""
    changed = {**os.environ, **changes}
    return {name: value for name, value in changed.items() if value is not None}
