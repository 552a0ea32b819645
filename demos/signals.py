"""Ends asynchronous work in order when a signal comes, with the status a shell would report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Do the work; a signal cancels it, and once all is tidied up we exit as a shell would."""
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def stop(number: int) -> None:
        if not received:  # a second signal must not cut the tidying short
            task.cancel()
        received.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        return 128 + received[0]
