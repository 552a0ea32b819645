"""What sessions of one worker show each other: objects by the tokens in cudaIpc handles."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

from mnemosyne.server.arena import Arena
from mnemosyne.server.errors import INVALID_VALUE, CallError

TOKEN_BYTES = 16
MEMORY, EVENT = "memory", "event"  # kinds


class Owner(Protocol):
    """A session, as far as others reach into it."""

    number: int
    arena: Arena

    def event(self, event: int) -> Any: ...


@dataclass(slots=True)
class Import:
    """Another session's memory at an address here. ``chunk``: where its mapping starts."""

    token: bytes
    chunk: int
    size: int
    opened: int = 1  # times


@dataclass(frozen=True, slots=True)
class Export:
    """An object of ``owner``; ``number`` is its address or number there."""

    owner: Owner
    kind: str
    number: int
    handle: Any = None  # the device's own, where it has one


@dataclass(slots=True)
class Exports:
    """Tokens cannot be guessed: only who was given one can name another session's object."""

    _by_token: dict[bytes, Export] = field(default_factory=dict)
    _tokens: dict[tuple[int, str, int], bytes] = field(default_factory=dict)

    def add(self, export: Export, token: bytes = b"") -> bytes:
        """The object's token, the same one every time; ``token`` is that of an earlier worker."""
        key = (export.owner.number, export.kind, export.number)
        token = self._tokens.setdefault(key, token or secrets.token_bytes(TOKEN_BYTES))
        self._by_token[token] = export
        return token

    def find(self, kind: str, token: bytes) -> Export:
        """Raises CallError when no living session has exported this."""
        found = self._by_token.get(token)
        if found is None or found.kind != kind:
            raise CallError(INVALID_VALUE, f"the handle names no {kind} of a client of this server")
        return found

    def remove(self, owner: Owner, kind: str, number: int) -> bool:
        """The object is gone; False when it was not exported."""
        token = self._tokens.pop((owner.number, kind, number), None)
        return token is not None and self._by_token.pop(token, None) is not None

    def remove_all(self, owner: Owner) -> None:
        for number, kind, at in [key for key in self._tokens if key[0] == owner.number]:
            del self._by_token[self._tokens.pop((number, kind, at))]
