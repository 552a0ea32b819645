"""What sessions of one worker show each other: objects by the tokens in cudaIpc handles."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from mnemosyne.server.arena import Arena
from mnemosyne.server.errors import INVALID_VALUE, CallError

TOKEN_BYTES = 16


class Owner(Protocol):
    """A session, as far as others reach into it."""

    number: int
    arena: Arena


@dataclass(slots=True)
class Import:
    """Another session's memory at an address here. ``chunk``: where its mapping starts."""

    token: bytes
    chunk: int
    size: int
    opened: int = 1  # times


@dataclass(frozen=True, slots=True)
class Export:
    """Memory of ``owner``, at its address there."""

    owner: Owner
    pointer: int


@dataclass
class Event:
    """The same object in all sessions that share it; ``token`` names it to them. ``handle`` is the
    driver's, where there is one, for as long as sessions have ``users`` numbers for it."""

    flags: int
    recorded: float | None = None
    token: bytes = b""
    handle: int = 0
    users: int = 0


@dataclass(slots=True)
class Exports:
    """Tokens cannot be guessed: only who was given one can name another session's object."""

    _memory: dict[bytes, Export] = field(default_factory=dict)
    _tokens: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by owner and address
    _events: WeakValueDictionary[bytes, Event] = field(default_factory=WeakValueDictionary)

    def add(self, export: Export, token: bytes = b"") -> bytes:
        """The memory's token, the same one every time; ``token`` is that of an earlier worker."""
        key = (export.owner.number, export.pointer)
        token = self._tokens.setdefault(key, token or secrets.token_bytes(TOKEN_BYTES))
        self._memory[token] = export
        return token

    def find(self, token: bytes) -> Export:
        """Raises CallError when no living session has exported this."""
        found = self._memory.get(token)
        if found is None:
            raise _unknown("memory")
        return found

    def remove(self, owner: Owner, pointer: int) -> bool:
        """The memory is gone; False when it was not exported."""
        token = self._tokens.pop((owner.number, pointer), None)
        return token is not None and self._memory.pop(token, None) is not None

    def remove_all(self, owner: Owner) -> None:
        for number, pointer in [key for key in self._tokens if key[0] == owner.number]:
            del self._memory[self._tokens.pop((number, pointer))]

    def add_event(self, event: Event) -> bytes:
        """The event's token, the same one every time."""
        event.token = event.token or secrets.token_bytes(TOKEN_BYTES)
        self._events[event.token] = event
        return event.token

    def find_event(self, token: bytes) -> Event:
        """Raises CallError when no session has an event of this name."""
        found = self._events.get(token)
        if found is None:
            raise _unknown("event")
        return found

    def restore_event(self, flags: int, token: bytes) -> Event:
        """An event of an earlier worker. Of those that shared it, the first to ask makes it."""
        found = self._events.get(token) or Event(flags, token=token)
        if token:
            self._events[token] = found
        return found


def _unknown(kind: str) -> CallError:
    return CallError(INVALID_VALUE, f"the handle names no {kind} of a client of this server")
