"""What a worker is asked to open, and the limit of the files for it; no process, no GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mnemosyne.protocol.control import MAX_CONTROL, Journal, encode
from mnemosyne.server.chunks import Budget
from mnemosyne.server.client import State
from mnemosyne.server.errors import OUT_OF_MEMORY, CallError
from mnemosyne.server.journal import KeptJournal
from mnemosyne.server.opening import Opening


def client(number: int, error: OSError | None = None) -> Any:
    def messages() -> list[Any]:
        if error:
            raise error
        return [(f"open {number}", ())]

    return SimpleNamespace(number=number, state=State.RUNNING, strikes=0, messages=messages)


class Desk:
    """A queue, what it has sent, and whom it has abandoned."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.abandoned: list[tuple[int, str]] = []
        self.opening = Opening(lambda message, fds: self.sent.append(message), self.abandon)

    def abandon(self, one: Any, reason: str) -> None:
        one.state = State.ENDED
        self.abandoned.append((one.number, reason))


def test_sessions_are_opened_one_after_the_other() -> None:
    desk = Desk()
    for number in (1, 2, 3):
        desk.opening.add(client(number))
    assert desk.sent == ["open 1"]
    desk.opening.opened(2)  # not what was asked
    assert desk.sent == ["open 1"]
    desk.opening.opened(1)
    desk.opening.opened(2)
    assert desk.sent == ["open 1", "open 2", "open 3"]


def test_a_session_that_ends_while_it_waits_is_not_opened() -> None:
    desk = Desk()
    clients = [client(number) for number in (1, 2, 3)]
    for one in clients:
        desk.opening.add(one)
    clients[1].state = State.CLOSING
    desk.opening.opened(1)
    assert desk.sent == ["open 1", "open 3"]


def test_a_session_whose_files_cannot_be_passed_on_is_lost_alone() -> None:
    desk = Desk()
    desk.opening.add(client(1))
    desk.opening.add(client(2, OSError(24, "Too many open files")))
    desk.opening.add(client(3))
    desk.opening.opened(1)
    assert desk.sent == ["open 1", "open 3"]
    ((number, reason),) = desk.abandoned
    assert (number, "Too many open files" in reason) == (2, True)


def test_the_session_that_two_workers_die_of_is_lost() -> None:
    desk = Desk()
    clients = [client(number) for number in (1, 2)]
    for culprit in (True, False, True):  # the second one lost the device
        for one in clients:
            desk.opening.add(one)
        assert desk.abandoned == []
        desk.opening.stop(culprit)
    assert [number for number, _ in desk.abandoned] == [1]
    assert (clients[0].state, clients[1].state) == (State.ENDED, State.RUNNING)


def test_a_long_journal_travels_in_parts_that_fit_and_keep_its_order() -> None:
    kept = KeptJournal()
    entries = [[f"graph_{n}/1", bytes(16 << 20 if n % 3 else 100)] for n in range(10)]
    kept.apply(entries)
    parts = list(kept.parts())
    assert len(parts) > 1
    assert all(len(encode(Journal(1, part))) < MAX_CONTROL for part in parts)
    assert [entry for part in parts for entry in part] == entries
    assert list(KeptJournal().parts()) == []


def test_chunks_end_before_the_files_do() -> None:
    budget = Budget(files=512 + 400)
    for _ in range(100):
        budget.take(1)
    with pytest.raises(
        CallError, match=r"100 of them this client's.*912, allows no more"
    ) as refused:
        budget.take(1)
    assert refused.value.code == OUT_OF_MEMORY
    for session in (2, 3):
        budget.take(session, 100)
    with pytest.raises(CallError, match="in 300 pieces, 0 of them this client's"):
        budget.take(4)  # the rest is for a session that moves to another worker
    budget.give_back(1)
    budget.take(4)
    budget.forget(2)
    budget.take(4, 99)


def test_a_session_with_many_chunks_is_short_of_them() -> None:
    budget = Budget(files=512 + 400)
    budget.take(1, 50)
    assert not budget.is_short(1)
    budget.take(1)
    assert budget.is_short(1)
    assert not budget.is_short(2)
