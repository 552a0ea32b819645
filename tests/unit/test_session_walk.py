"""Random walks through a session's objects, beside a model of them.

After every step a second session is made from the journal alone: it must have the same objects. Now
and then the walk goes on in that one, as it does in another worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mnemosyne.server.errors import (
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    CallError,
)
from mnemosyne.server.journal import KeptJournal
from mnemosyne.server.session import HANDLERS, BlasHandle, Effects, Layout, Session

MIB = 1 << 20
PLACE = Layout(0x200000000000, 1 << 40, 0x300000000000, 96 * MIB, 64 * MIB, 64 * MIB)
BLANK = 0  # the event that nobody records
TIMING_DISABLED = 2

NUMBERS = st.integers(0, 6)  # of handles: few, so that they meet again
FLAGS = st.sampled_from([0, 1, TIMING_DISABLED])
SIZES = st.sampled_from(
    [-1, 0, 1, 512, 513, 4096, MIB, 2 * MIB - 1, 3 * MIB, 16 * MIB, 17 * MIB, 40 * MIB, 65 * MIB]
)
PLACES = st.integers(0, 9)  # which of the live allocations; more than there are: none of them


@dataclass
class Chunks:
    """The memory behind a session, as its worker and the supervisor have it."""

    sizes: dict[int, int]

    def make(self, offset: int, size: int) -> None:
        assert offset >= 0
        assert offset + size <= PLACE.device_bytes
        assert all(offset + size <= o or o + s <= offset for o, s in self.sizes.items())
        self.sizes[offset] = size

    def is_short(self) -> bool:
        return False

    def drop(self, offset: int, size: int) -> None:
        assert self.sizes.pop(offset) == size


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ticks = 0
        self.chunks = Chunks({})
        self.released: list[tuple[int, int]] = []
        self.kept = KeptJournal()
        self.session = self._new_session(self.chunks)
        self.streams = {0: (0, 0)}
        self.events: dict[int, int] = {}
        self.recorded: dict[int, int] = {}
        self.blas: dict[int, tuple[int, int, int]] = {}
        self.cudnn: set[int] = set()
        self.modules: dict[int, int] = {}  # bytes that are kept, by number
        self.memory: dict[int, int] = {}
        self.pinned: dict[int, int] = {}

    def _new_session(self, chunks: Chunks) -> Session:
        def release(offset: int, size: int) -> None:
            self.released.append((offset, size))

        return Session(1, PLACE, Effects(chunks, release, lambda: self.ticks / 1000))

    def call(self, name: str, *values: Any) -> Any:
        """The outputs, or the error's code."""
        self.ticks += 1
        try:
            return HANDLERS[name](self.session, *values)
        except CallError as error:
            return error.code
        finally:
            self.kept.apply(self.session.journal.take())

    # Streams, events and library handles

    @rule(number=NUMBERS, flags=FLAGS, priority=st.integers(-5, 0))
    def create_stream(self, number: int, flags: int, priority: int) -> None:
        taken = number in self.streams
        got = self.call("cudaStreamCreateWithPriority", number, flags, priority)
        assert got == (INVALID_VALUE if taken else None)
        self.streams.setdefault(number, (flags, priority))

    @rule(number=NUMBERS)
    def destroy_stream(self, number: int) -> None:
        known = number in self.streams and number != 0
        assert self.call("cudaStreamDestroy", number) == (
            None if known else INVALID_RESOURCE_HANDLE
        )
        if known:
            del self.streams[number]

    @rule(number=NUMBERS)
    def wait_stream(self, number: int) -> None:
        wanted = None if number in self.streams else INVALID_RESOURCE_HANDLE
        assert self.call("cudaStreamSynchronize", number) == wanted

    @rule(number=NUMBERS, flags=FLAGS)
    def create_event(self, number: int, flags: int) -> None:
        refused = number == 0 or number in self.events
        got = self.call("cudaEventCreateWithFlags", number, flags)
        assert got == (INVALID_VALUE if refused else None)
        if not refused:
            self.events[number] = flags

    @rule(number=NUMBERS)
    def destroy_event(self, number: int) -> None:
        wanted = None if number in self.events else INVALID_RESOURCE_HANDLE
        assert self.call("cudaEventDestroy", number) == wanted
        self.events.pop(number, None)
        self.recorded.pop(number, None)

    @rule(event=NUMBERS, stream=NUMBERS)
    def record(self, event: int, stream: int) -> None:
        known = event in self.events and stream in self.streams
        got = self.call("event_record", event, stream, 0)
        assert got == (None if known else INVALID_RESOURCE_HANDLE)
        if known:
            self.recorded[event] = self.ticks

    @rule(event=NUMBERS, stream=NUMBERS)
    def wait_for_event(self, event: int, stream: int) -> None:
        known = event in self.events or event == BLANK
        wanted = None if known else INVALID_RESOURCE_HANDLE
        assert self.call("cudaEventSynchronize", event) == wanted
        both = known and stream in self.streams
        got = self.call("cudaStreamWaitEvent", stream, event, 0)
        assert got == (None if both else INVALID_RESOURCE_HANDLE)

    @rule(first=NUMBERS, last=NUMBERS)
    def elapsed(self, first: int, last: int) -> None:
        timed = all(self.events.get(e, TIMING_DISABLED) != TIMING_DISABLED for e in (first, last))
        got = self.call("cudaEventElapsedTime", first, last)
        if timed and first in self.recorded and last in self.recorded:
            assert round(got[0], 6) == self.recorded[last] - self.recorded[first]
        else:
            assert got == INVALID_RESOURCE_HANDLE

    @rule(number=NUMBERS)
    def create_blas(self, number: int) -> None:
        refused = number == 0 or number in self.blas
        assert self.call("cublasCreate_v2", number) == (INVALID_VALUE if refused else None)
        if not refused:
            self.blas[number] = (0, 0, 0)

    @rule(number=NUMBERS)
    def destroy_blas(self, number: int) -> None:
        wanted = None if number in self.blas else INVALID_RESOURCE_HANDLE
        assert self.call("cublasDestroy_v2", number) == wanted
        self.blas.pop(number, None)

    @rule(number=NUMBERS, stream=NUMBERS, math=FLAGS, pointer=st.integers(0, 1))
    def configure_blas(self, number: int, stream: int, math: int, pointer: int) -> None:
        known = number in self.blas and stream in self.streams
        got = self.call("blas_configure", number, stream, math, pointer, 0, 0, 0)
        assert got == (None if known else INVALID_RESOURCE_HANDLE)
        if known:
            self.blas[number] = (stream, math, pointer)

    @rule(number=NUMBERS)
    def create_cudnn(self, number: int) -> None:
        refused = number == 0 or number in self.cudnn
        assert self.call("cudnnCreate", number) == (INVALID_VALUE if refused else None)
        if not refused:
            self.cudnn.add(number)

    @rule(number=NUMBERS)
    def destroy_cudnn(self, number: int) -> None:
        wanted = None if number in self.cudnn else INVALID_RESOURCE_HANDLE
        assert self.call("cudnnDestroy", number) == wanted
        self.cudnn.discard(number)

    # Memory

    @rule(size=SIZES)
    def malloc(self, size: int) -> None:
        rounded, used = -(-size // 512) * 512, sum(self.memory.values())
        got = self.call("malloc", size)
        if size <= 0:
            assert got == INVALID_VALUE
        elif used + rounded > PLACE.quota:
            assert got == OUT_OF_MEMORY
        else:
            (pointer,) = got
            assert pointer % 512 == 0
            assert self._apart(self.memory, pointer, rounded)
            assert any(
                o <= pointer - PLACE.device_base and pointer - PLACE.device_base + rounded <= o + s
                for o, s in self.chunks.sizes.items()
            )
            self.memory[pointer] = rounded

    @rule(place=PLACES, inside=st.booleans())
    def free(self, place: int, inside: bool) -> None:
        pointer = self._chosen(self.memory, place) + 512 * inside
        wanted = None if pointer in self.memory else INVALID_VALUE
        assert self.call("free", pointer) == wanted
        self.memory.pop(pointer, None)

    @rule(size=SIZES)
    def host_alloc(self, size: int) -> None:
        rounded = -(-size // 4096) * 4096
        got = self.call("host_alloc", size)
        if size <= 0:
            assert got == INVALID_VALUE
        elif got == OUT_OF_MEMORY:
            assert rounded > self._longest_gap()
        else:
            (offset,) = got
            assert offset % 4096 == 0
            assert PLACE.staging_bytes <= offset <= PLACE.host_bytes - rounded
            assert self._apart(self.pinned, offset, rounded)
            self.pinned[offset] = rounded

    @rule(place=PLACES, inside=st.booleans())
    def host_free(self, place: int, inside: bool) -> None:
        offset = self._chosen(self.pinned, place) + 4096 * inside
        size = self.pinned.pop(offset, None)
        assert self.call("host_free", offset) == (INVALID_VALUE if size is None else None)
        assert self.released == ([] if size is None else [(offset, size)])
        self.released.clear()

    @staticmethod
    def _chosen(live: dict[int, int], place: int) -> int:
        return sorted(live)[place] if place < len(live) else 64

    @staticmethod
    def _apart(live: dict[int, int], start: int, size: int) -> bool:
        return all(start + size <= s or s + length <= start for s, length in live.items())

    def _longest_gap(self) -> int:
        edges = [PLACE.staging_bytes]
        for offset, size in sorted(self.pinned.items()):
            edges += [offset, offset + size]
        edges.append(PLACE.host_bytes)
        return max(end - start for start, end in zip(edges[::2], edges[1::2], strict=True))

    # Modules in memory

    @rule(number=NUMBERS, size=st.sampled_from([1, 5 << 20, 9 << 20]))
    def keep_module(self, number: int, size: int) -> None:
        """More than 16 MiB in all are not kept; a number that is taken stays taken."""
        if number in self.modules:
            return
        kept = sum(self.modules.values()) + size <= 16 * MIB
        self.session.keep_module(number, bytes(size))
        self.kept.apply(self.session.journal.take())
        self.modules[number] = size if kept else 0

    @rule(number=NUMBERS)
    def forget_module(self, number: int) -> None:
        self.session.forget_module(number)
        self.kept.apply(self.session.journal.take())
        self.modules.pop(number, None)

    # The journal

    @rule()
    def go_on_in_another_worker(self) -> None:
        """What is not in the journal is lost: when an event was recorded."""
        self.session = self._rebuilt(self.chunks)
        self.recorded.clear()

    @invariant()
    def the_session_is_as_the_model_says(self) -> None:
        self._compare(self.session)

    @invariant()
    def a_session_made_from_the_journal_is_the_same(self) -> None:
        self._compare(self._rebuilt(Chunks(dict(self.chunks.sizes))))

    def _rebuilt(self, chunks: Chunks) -> Session:
        session = self._new_session(chunks)
        session.restore([list(chunk) for chunk in chunks.sizes.items()], self.kept.entries())
        return session

    def _compare(self, session: Session) -> None:
        assert session.streams == self.streams
        assert {number: event.flags for number, event in session.events.items()} == self.events
        handles = {number: BlasHandle(*values) for number, values in self.blas.items()}
        assert session.blas == handles
        assert session.cudnn == self.cudnn
        assert session.kept_modules == self.modules
        assert session.arena.used == sum(self.memory.values())
        for pointer, size in self.memory.items():
            assert session.arena.size_of(pointer) == size
            assert session.arena.owns(pointer, size)
            assert not session.arena.owns(pointer, size + 1)
        assert {offset: session.host.size_of(offset) for offset in self.pinned} == self.pinned
        assert bool(self.memory) == bool(self.chunks.sizes)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
