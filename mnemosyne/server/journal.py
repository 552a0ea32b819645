"""The journal of a session: its live objects by key, enough to rebuild it in a new worker.

A key is ``<kind>/<number>``. Changes are collected and taken once per frame, so that the supervisor
has them before the client can know that the frame took effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

_PART_BYTES = 8 << 20  # of a message, and one entry more

Entries = list[list[Any]]


class Journal:
    """The worker's end: collects changes."""

    def __init__(self) -> None:
        self._changes: dict[str, Any] = {}

    def put(self, kind: str, number: int, value: Any) -> None:
        self._changes[f"{kind}/{number}"] = value

    def drop(self, kind: str, number: int) -> None:
        self._changes[f"{kind}/{number}"] = None

    def take(self) -> Entries:
        """The changes since the last call, as [[key, value], ...]; a nil value removes the key."""
        if not self._changes:
            return []
        changes, self._changes = self._changes, {}
        return [[key, value] for key, value in changes.items()]


class KeptJournal:
    """The supervisor's end: what the changes have come to, in the order first written."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def apply(self, entries: Entries) -> None:
        for key, value in entries:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def entries(self) -> Entries:
        return [[key, value] for key, value in self._values.items()]

    def parts(self) -> Iterator[Entries]:
        """The same, in lists that fit into a control message each."""
        part: Entries = []
        size = 0
        for entry in self.entries():
            part.append(entry)
            size += len(msgpack.packb(entry))
            if size > _PART_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part

    def values(self, kind: str) -> list[Any]:
        """All values of one kind, for example the bytes of each allocation."""
        prefix = f"{kind}/"
        return [value for key, value in self._values.items() if key.startswith(prefix)]


def of_kind(entries: Entries, kind: str) -> Iterator[tuple[int, Any]]:
    """(number, value) of the entries of one kind, in order."""
    for key, value in entries:
        found, _, number = key.partition("/")
        if found == kind:
            yield int(number), value
