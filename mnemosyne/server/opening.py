"""The sessions that a worker is yet to open: one after the other, in the order they came.

One at a time, because their files would be twice as many if those of all were on their way; and
because it shows which session a worker dies of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mnemosyne.protocol.control import Control
from mnemosyne.server.client import Client, State

_STRIKES = 2  # of a session; the first worker may have died of something else

Send = Callable[[Control, tuple[int, ...]], None]
Abandon = Callable[[Client, str], None]


class Opening:
    """``send``: to the worker; OSError means that no file can be passed on."""

    def __init__(self, send: Send, abandon: Abandon) -> None:
        self._send = send
        self._abandon = abandon
        self._waiting: deque[Client] = deque()  # the worker has been asked to open the first

    def add(self, client: Client) -> None:
        self._waiting.append(client)
        if len(self._waiting) == 1:
            self._ask()

    def opened(self, session: int) -> None:
        """The worker has said so."""
        if self._waiting and self._waiting[0].number == session:
            self._waiting.popleft()
            self._ask()

    def stop(self, culprit: bool) -> None:
        """There is no worker any more; ``culprit``: it may have died of what it was opening."""
        first = self._waiting[0] if self._waiting else None
        self._waiting.clear()
        if first and culprit and first.state is not State.ENDED:
            first.strikes += 1
            if first.strikes == _STRIKES:
                self._abandon(first, "the server's workers died while they opened this session")

    def _ask(self) -> None:
        while self._waiting:
            client = self._waiting[0]
            if client.state in (State.OPENING, State.RUNNING) and self._asked(client):
                return
            self._waiting.popleft()

    def _asked(self, client: Client) -> bool:
        try:
            for message, fds in client.messages():
                self._send(message, fds)
        except OSError as error:
            self._abandon(client, f"its memory cannot be passed on to a worker: {error.strerror}")
            return False
        return True
