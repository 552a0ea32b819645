"""How frames are executed: in order, in slices, with failures that stay where they belong."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import msgpack
import pytest

from mnemosyne.api import SPEC
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.frames import encode
from mnemosyne.server.errors import CallError
from mnemosyne.server.runner import Runner
from mnemosyne.server.session import (
    HANDLERS,
    Deferred,
    DeviceLost,
    Effects,
    Handlers,
    Layout,
    Session,
)

MESSAGES = {message.name: message for message in SPEC.messages.values()}
MIB = 1 << 20
PLACE = Layout(1 << 45, 1 << 40, 3 << 44, 128 * MIB, 64 * MIB, 64 * MIB)


class FakeLane:
    """Hands out the frames it was given and notes, in ``seen``, all that is done to it."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.frames: list[tuple[int, bytes]] = []
        self.seen: list[tuple[Any, ...]] = []

    def add(self, name: str, *values: Any, slot: int = -1) -> None:
        self.frames.append((slot, encode(MESSAGES[name], *values)))

    def take(self, limit: int) -> list[tuple[int, bytes]]:
        taken, self.frames = self.frames[:limit], self.frames[limit:]
        return taken

    def done(self, count: int) -> None:
        self.seen.append(("done", count))

    def reply(self, slot: int, data: bytes) -> None:
        self.seen.append(("reply", slot, msgpack.unpackb(data)))

    def fail(self, code: int, text: str) -> None:
        self.seen.append(("fail", code, text))

    def close(self, reason: str) -> None:
        self.seen.append(("close", reason))


class NoChunks:
    def make(self, offset: int, size: int) -> None: ...
    def drop(self, offset: int, size: int) -> None: ...
    def adopt(self, offset: int, size: int, source: int) -> None: ...

    def is_short(self) -> bool:
        return False


class Stage:
    """Runners on one loop and one executor."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)

    def runner(self, lane: FakeLane, handlers: Handlers) -> Runner:
        effects = Effects(NoChunks(), lambda offset, size: None, time.perf_counter)
        session = Session(1, PLACE, effects)

        def broken(text: str) -> None:
            lane.seen.append(("broken", text))
            runner.stop()
            runner.close(text)

        runner = Runner(
            session, {**HANDLERS, **handlers}, lane, lane.event, self.executor,  # type: ignore[arg-type]
            lambda entries: lane.seen.append(("publish", entries)), broken,
            lambda error: lane.seen.append(("lost", error.code)),
        )  # fmt: skip
        return runner


def play(fill: Callable[[FakeLane], None], until: int, **handlers: Any) -> list[tuple[Any, ...]]:
    """What one lane sees until it has seen ``until`` things."""

    async def run() -> list[tuple[Any, ...]]:
        lane = FakeLane()
        fill(lane)
        Stage().runner(lane, handlers)
        os.eventfd_write(lane.event, 1)
        while len(lane.seen) < until:
            await asyncio.sleep(0)
        return lane.seen

    return asyncio.run(asyncio.wait_for(run(), 10))


def test_the_journal_goes_before_the_reply_and_the_reply_before_done() -> None:
    seen = play(lambda lane: lane.add("malloc", 1000, slot=3), until=3)
    pointer = PLACE.device_base
    assert seen == [
        ("publish", [[f"malloc/{pointer}", 1024]]), ("reply", 3, [0, pointer]), ("done", 1),
    ]  # fmt: skip


def refuse(session: Session, *values: Any) -> None:
    raise CallError(700, "not yours")


def crash(session: Session, *values: Any) -> None:
    raise ZeroDivisionError("a bug")


def violate(session: Session, *values: Any) -> None:
    raise ProtocolError("nonsense")


def test_a_failed_call_is_answered_or_latched_and_the_session_goes_on() -> None:
    def fill(lane: FakeLane) -> None:
        lane.add("cudaStreamSynchronize", 0, slot=1)
        lane.add("cudaStreamSynchronize", 0)
        lane.add("cudaDeviceSynchronize", slot=2)

    text = "cudaStreamSynchronize: not yours"
    assert play(fill, until=6, cudaStreamSynchronize=refuse) == [
        ("reply", 1, [700, text]), ("done", 1), ("fail", 700, text), ("done", 1),
        ("reply", 2, [0]), ("done", 1),
    ]  # fmt: skip


def test_a_library_call_is_answered_in_the_librarys_codes() -> None:
    seen = play(lambda lane: lane.add("cublasDestroy_v2", 5, slot=1), 2, cublasDestroy_v2=refuse)
    assert seen[0] == ("reply", 1, [13, "cublasDestroy_v2: not yours"])


def test_a_bug_is_logged_with_its_trace_and_costs_that_call_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fill(lane: FakeLane) -> None:
        lane.add("cudaMemGetInfo", slot=1)
        lane.add("cudaDeviceSynchronize", slot=2)

    with caplog.at_level(logging.ERROR):
        seen = play(fill, until=4, cudaMemGetInfo=crash)
    assert seen[0][2][0] == 999
    assert "log" in seen[0][2][1]
    assert seen[2] == ("reply", 2, [0])
    assert "bug: session 1, frame 1: cudaMemGetInfo" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("late", [False, True])
def test_nothing_runs_after_a_broken_frame(late: bool) -> None:
    def fill(lane: FakeLane) -> None:
        lane.add("cudaMemGetInfo", slot=1) if late else lane.frames.append((-1, b"\xc1"))
        lane.add("cudaDeviceSynchronize", slot=2)

    seen = play(fill, until=2, cudaMemGetInfo=violate)
    assert seen[0][0] == "broken"
    assert seen[0][1].startswith("frame 1: ")
    assert seen[1][0] == "close"
    assert len(seen) == 2


@pytest.mark.parametrize("slow", [False, True])
def test_a_lost_device_is_told_and_the_frame_is_left_for_another_worker(slow: bool) -> None:
    def lose(session: Session) -> Deferred:
        raise DeviceLost(700, "illegal address")

    def fill(lane: FakeLane) -> None:
        lane.add("cudaMemGetInfo", slot=1)
        lane.add("cudaDeviceSynchronize", slot=2)

    handler = (lambda s: Deferred(lambda: lose(s), lambda _: None)) if slow else lose
    assert play(fill, until=1, cudaMemGetInfo=handler) == [("lost", 700)]


def test_later_frames_wait_for_a_slow_one_and_other_sessions_do_not() -> None:
    release = Event()

    def slow(session: Session) -> Deferred:
        return Deferred(lambda: release.wait(10), lambda result: (int(result), 7))

    async def run() -> None:
        stage, one, two = Stage(), FakeLane(), FakeLane()
        for lane in (one, two):
            stage.runner(lane, {"cudaMemGetInfo": slow})
        one.add("cudaMemGetInfo", slot=1)
        one.add("cudaDeviceSynchronize", slot=2)
        two.add("cudaDeviceSynchronize", slot=3)
        for lane in (one, two):
            os.eventfd_write(lane.event, 1)
        while len(two.seen) < 2:
            await asyncio.sleep(0)
        assert one.seen == []
        release.set()
        while len(one.seen) < 4:
            await asyncio.sleep(0)
        assert [s[1:] for s in one.seen if s[0] == "reply"] == [(1, [0, 1, 7]), (2, [0])]

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_busy_session_leaves_turns_to_others() -> None:
    def work(session: Session) -> None:
        end = time.perf_counter() + 0.0005
        while time.perf_counter() < end:
            pass

    async def run() -> None:
        stage, busy, other = Stage(), FakeLane(), FakeLane()
        for lane in (busy, other):
            stage.runner(lane, {"cudaDeviceSynchronize": work})
        for _ in range(200):
            busy.add("cudaDeviceSynchronize")
        other.add("cudaStreamSynchronize", 0, slot=1)
        os.eventfd_write(busy.event, 1)
        while not busy.seen:
            await asyncio.sleep(0)
        os.eventfd_write(other.event, 1)
        while not other.seen:
            await asyncio.sleep(0)
        assert len(busy.seen) < 100

    asyncio.run(asyncio.wait_for(run(), 10))
