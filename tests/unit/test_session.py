"""A session's handlers, without a device: handles, events, memory and the journal."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Any

import pytest

from mnemosyne.server import ipc
from mnemosyne.server.errors import INVALID_RESOURCE_HANDLE, INVALID_VALUE, CallError, blas_status
from mnemosyne.server.exports import Event, Exports
from mnemosyne.server.journal import KeptJournal
from mnemosyne.server.session import HANDLERS, Effects, Layout, Session

MIB = 1 << 20
PLACE = Layout(0x200000000000, 1 << 40, 0x300000000000, 128 * MIB, 64 * MIB, 64 * MIB)


class NoChunks:
    def make(self, offset: int, size: int) -> None: ...
    def drop(self, offset: int, size: int) -> None: ...
    def adopt(self, offset: int, size: int, source: int) -> None: ...

    def is_short(self) -> bool:
        return False


def new_session(exports: Exports | None = None) -> Session:
    ticks = count()
    effects = Effects(
        NoChunks(), lambda offset, size: None, lambda: next(ticks) / 1000, exports or Exports()
    )
    return Session(1, PLACE, effects)


def call(session: Session, name: str, *values: Any) -> Any:
    return {**HANDLERS, **ipc.HANDLERS}[name](session, *values)


def refused(session: Session, name: str, *values: Any) -> int:
    with pytest.raises(CallError) as error:
        call(session, name, *values)
    return error.value.code


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cudaStreamSynchronize", (7,)),
        ("cudaStreamDestroy", (7,)),
        ("cudaStreamDestroy", (0,)),
        ("cudaStreamWaitEvent", (0, 7, 0)),
        ("cudaStreamWaitEvent", (7, 16, 0)),
        ("event_record", (7, 0, 0)),
        ("event_record", (16, 7, 0)),
        ("cudaEventSynchronize", (7,)),
        ("cudaEventDestroy", (7,)),
        ("cudaEventElapsedTime", (16, 7)),
        ("cublasDestroy_v2", (7,)),
        ("blas_configure", (7, 0, 0, 0, 0, 0, 0)),
        ("blas_configure", (32, 7, 0, 0, 0, 0, 0)),
    ],
)
def test_an_unknown_handle_is_an_invalid_resource_handle(name: str, values: tuple[int]) -> None:
    session = new_session()
    call(session, "cudaEventCreateWithFlags", 16, 0)
    call(session, "cublasCreate_v2", 32)
    assert refused(session, name, *values) == INVALID_RESOURCE_HANDLE


def test_handles_live_from_creation_to_destruction() -> None:
    session = new_session()
    call(session, "cudaStreamCreateWithPriority", 5, 1, -2)
    call(session, "cudaStreamSynchronize", 5)
    assert refused(session, "cudaStreamCreateWithPriority", 5, 1, 0) == INVALID_VALUE
    call(session, "cudaStreamDestroy", 5)
    assert refused(session, "cudaStreamSynchronize", 5) == INVALID_RESOURCE_HANDLE
    call(session, "cudaStreamSynchronize", 0)


def test_elapsed_time_is_between_two_recorded_events() -> None:
    session = new_session()
    for event, flags in ((1, 0), (2, 0), (3, 2)):
        call(session, "cudaEventCreateWithFlags", event, flags)
    call(session, "event_record", 1, 0, 0)
    assert refused(session, "cudaEventElapsedTime", 1, 2) == INVALID_RESOURCE_HANDLE
    call(session, "event_record", 2, 0, 0)
    assert call(session, "cudaEventElapsedTime", 1, 2) == (pytest.approx(1.0),)
    assert refused(session, "cudaEventElapsedTime", 0, 2) == INVALID_RESOURCE_HANDLE  # blank
    call(session, "event_record", 3, 0, 0)
    assert refused(session, "cudaEventElapsedTime", 1, 3) == INVALID_RESOURCE_HANDLE


def test_memory_info_counts_what_is_allocated() -> None:
    session = new_session()
    assert call(session, "cudaMemGetInfo") == (64 * MIB, 64 * MIB)
    (pointer,) = call(session, "malloc", 3 * MIB)
    assert call(session, "cudaMemGetInfo") == (61 * MIB, 64 * MIB)
    call(session, "free", pointer)
    assert call(session, "cudaMemGetInfo") == (64 * MIB, 64 * MIB)
    assert refused(session, "free", pointer) == INVALID_VALUE
    assert refused(session, "malloc", 0) == INVALID_VALUE
    assert refused(session, "malloc", -1) == INVALID_VALUE
    assert refused(session, "host_alloc", -1) == INVALID_VALUE
    assert refused(session, "host_free", 0) == INVALID_VALUE


def test_a_session_is_rebuilt_from_its_journal() -> None:
    session, kept = new_session(), KeptJournal()
    (pointer,) = call(session, "malloc", 1000)
    (gone,) = call(session, "malloc", 2000)
    call(session, "host_alloc", 5000)
    call(session, "cudaStreamCreateWithPriority", 5, 1, -2)
    call(session, "cudaEventCreateWithFlags", 6, 2)
    call(session, "cublasCreate_v2", 7)
    kept.apply(session.journal.take())
    call(session, "free", gone)
    call(session, "blas_configure", 7, 5, 1, 1, 0, 0, 0)
    kept.apply(session.journal.take())
    assert session.journal.take() == []

    other = new_session()
    other.restore([[0, 2 * MIB]], kept.entries())
    assert other.arena.used == session.arena.used
    assert other.arena.owns(pointer, 1000)
    assert not other.arena.owns(gone, 1)
    assert (other.streams, other.events, other.blas) == (
        session.streams, session.events, session.blas,
    )  # fmt: skip
    assert call(other, "host_alloc", 1) == call(session, "host_alloc", 1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_sessions_that_shared_an_event_share_it_in_another_worker(order: tuple[int, ...]) -> None:
    """One that was shared on by who had opened it, too; others are each session's own."""
    exports = Exports()
    sessions = [new_session(exports) for _ in range(3)]
    call(sessions[0], "cudaEventCreateWithFlags", 5, 6)
    for giver, taker in pairwise(sessions):
        call(taker, "ipc_open_event", 5, *call(giver, "ipc_export_event", 5))
    for session in sessions:
        call(session, "cudaEventCreateWithFlags", 6, 4)
    events = restored_events(sessions, order)
    assert events[0][5] is events[1][5] is events[2][5]
    assert events[0][5].flags == 6
    assert len({id(own[6]) for own in events}) == 3


def restored_events(sessions: list[Session], order: tuple[int, ...]) -> list[dict[int, Event]]:
    """Those of each session in another worker, which opens them in this order."""
    exports, restored = Exports(), {}
    for at in order:
        restored[at] = new_session(exports)
        restored[at].restore([], sessions[at].journal.take())
    return [restored[at].events for at in range(len(sessions))]


def test_a_token_names_an_event_while_a_session_has_it() -> None:
    exports = Exports()
    session, other = new_session(exports), new_session(exports)
    call(session, "cudaEventCreateWithFlags", 5, 4)
    (token,) = call(session, "ipc_export_event", 5)
    call(other, "ipc_open_event", 7, token)
    call(session, "cudaEventDestroy", 5)
    call(session, "ipc_open_event", 5, token)
    assert session.events[5] is other.events[7]
    call(session, "cudaEventDestroy", 5)
    call(other, "cudaEventDestroy", 7)
    assert refused(session, "ipc_open_event", 5, token) == INVALID_VALUE


def test_the_kept_journal_forgets_removed_keys_and_sums_by_kind() -> None:
    kept = KeptJournal()
    kept.apply([["malloc/1", 10], ["malloc/2", 20], ["host/1", 5]])
    kept.apply([["malloc/1", None], ["malloc/3", 30]])
    assert kept.entries() == [["malloc/2", 20], ["host/1", 5], ["malloc/3", 30]]
    assert sum(kept.values("malloc")) == 50


def test_library_calls_return_the_librarys_own_codes() -> None:
    assert [blas_status(code) for code in (1, 2, 400, 700, 801, 999)] == [7, 3, 1, 13, 15, 14]
