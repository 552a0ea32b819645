"""Clients and workers that are killed or stopped in the middle of a step: nobody else notices.

Losses are compared exactly: the CPU device fixes its number of threads, so a training that was
disturbed by nothing but time gives the same bits.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest
from conftest import Nursery, Server, wait_until
from trained_clients import MARKS, RECORD

PIPE = 4096  # bytes; the smallest there is
AHEAD = PIPE // RECORD + 1  # records that a program can be ahead of its reader
CLIENT = "from trained_clients import PROGRAMS; PROGRAMS[{!r}](*{})"


class Program:
    """A client; its output is read unbuffered, so that it stays as little ahead as it can."""

    def __init__(self, nursery: Nursery, server: Server, program: str, *arguments: object) -> None:
        self._nursery = nursery
        self._code: int | None = None
        (input_end, self._input), (self._output, output_end) = os.pipe(), os.pipe()
        fcntl.fcntl(output_end, fcntl.F_SETPIPE_SZ, PIPE)
        self._errors = os.memfd_create("errors")
        files = [input_end, output_end, self._errors]
        self.pid = nursery.fork(files, server, CLIENT.format(program, arguments))
        os.close(input_end)
        os.close(output_end)
        self.process = psutil.Process(self.pid)

    def say(self, line: str) -> str:
        """The line that answers it."""
        os.write(self._input, line.encode() + b"\n")
        return self.line()

    def line(self) -> str:
        data = b""
        while not data.endswith(b"\n") and (byte := os.read(self._output, 1)):
            data += byte
        return data.decode().strip()

    def records(self) -> Iterator[str]:
        while data := os.read(self._output, RECORD):
            yield data.decode().strip()

    def wait(self) -> int:
        """The exit code."""
        if self._code is None:
            os.close(self._input)
            self._code = self._nursery.wait(self.pid)
        return self._code

    def errors(self) -> str:
        return os.pread(self._errors, 1 << 20, 0).decode()

    def finish(self) -> list[str]:
        """The rest of the output of a program that ends well, by lines."""
        lines = list(iter(self.line, ""))
        assert (self.wait(), self.errors()) == (0, "")
        return lines

    def end(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self._output)
        os.close(self._errors)


Starter = Callable[..., Program]


@pytest.fixture
def start(nursery: Nursery) -> Iterator[Starter]:
    started: list[Program] = []

    def begin(server: Server, program: str, *arguments: object) -> Program:
        started.append(Program(nursery, server, program, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def undisturbed(start: Starter, server: Server, steps: int, *seeds: int) -> list[list[str]]:
    """The losses of trainings that have the server for themselves, one after the other."""
    return [line.split() for line in start(server, "losses", steps, *seeds).finish()]


KILLS = 20


def test_clients_killed_inside_a_step_twenty_times_leave_the_losses_of_two_others_as_they_are(
    server: Server, start: Starter
) -> None:
    trainers = [start(server, "until-told", seed) for seed in (1, 2)]
    assert [trainer.line() for trainer in trainers] == ["training"] * 2
    for number in range(KILLS):
        step, within = number % 3, 1 + 7 * number % (MARKS - AHEAD - 2)
        victim = start(server, "marks", 4, number)
        records = victim.records()
        while next(records) != f"step {step}":
            pass
        for _ in range(within):
            next(records)
        os.kill(victim.pid, signal.SIGKILL)
        last_words = list(records)
        assert victim.wait() == -signal.SIGKILL
        assert not any(mark.startswith("loss") for mark in last_words), "killed between steps"
    assert wait_until(lambda: len(server.sessions()) == 2)
    for trainer in trainers:
        os.kill(trainer.pid, signal.SIGUSR1)
    seen = [losses.split() for trainer in trainers for losses in trainer.finish()]
    expected = undisturbed(start, server, max(map(len, seen)), 1, 2)
    assert min(map(len, seen)) > KILLS
    for losses, truth in zip(seen, expected, strict=True):
        assert losses == truth[: len(losses)]


def test_a_client_stopped_inside_a_step_stops_nobody_and_goes_on_exactly(
    server: Server, start: Starter
) -> None:
    steps = 20
    sleeper = start(server, "marks", steps, 3)
    records, seen = sleeper.records(), [""]
    while seen[-1] != "forward 7" or "step 5" not in seen:
        seen.append(next(records))
    sleeper.process.suspend()
    assert wait_until(lambda: sleeper.process.status() == psutil.STATUS_STOPPED)
    trainers = [start(server, "losses", steps, seed) for seed in (1, 2)]
    losses = [line.split() for trainer in trainers for line in trainer.finish()]
    assert sleeper.process.status() == psutil.STATUS_STOPPED
    assert wait_until(lambda: len(server.sessions()) == 1)
    sleeper.process.resume()
    seen += records
    assert sleeper.wait() == 0
    losses.append([record.split()[1] for record in seen if record.startswith("loss")])
    assert losses == undisturbed(start, server, steps, 1, 2, 3)


def test_a_killed_worker_is_replaced_with_the_memory_of_idle_sessions_as_it_was(
    own_server: Callable[..., Server], start: Starter
) -> None:
    """The session that had work in flight gets one clear error."""
    server = own_server("--clients", "3")
    (worker,) = psutil.Process(server.process.pid).children()
    idle = start(server, "paced", 1)
    losses = [idle.say("step") for _ in range(3)]
    state = idle.say("sum")
    busy = start(server, "busy")  # once it is ready, the worker has long been done with the other
    assert busy.line() == "ready"
    worker.suspend()  # what is posted now is in flight when the worker dies
    assert busy.say("go") == "posted"
    worker.kill()
    assert busy.wait() == 1
    assert busy.errors().count("the server's worker died while it executed this program's") == 1
    assert "mnemosyne: the server's worker died" in busy.errors()
    assert idle.say("sum") == state
    losses += [idle.say("step") for _ in range(5)]
    assert idle.wait() == 0
    assert idle.errors() == ""
    assert losses == undisturbed(start, server, 8, 1)[0]
