"""Child processes that never outlive their parent.

Every child leads a process group of its own, so that Ctrl-C reaches only the parent, which ends
the groups in order; if the parent is killed outright, the kernel ends the children. This file must
never know what the children do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

GRACE_SECONDS = 5.0
TAIL_LINES = 25
LINE_BYTES = 1 << 20
PR_SET_PDEATHSIG = 1

TakeLine = Callable[["Child", str], bool]  # True: understood, not for the tail


class Child:
    """A running process, its exit status to come and the last lines of its output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, take_line: TakeLine) -> None:
        self.name = name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = process
        self._take_line = take_line
        self.exit = asyncio.create_task(process.wait())
        self.output = asyncio.create_task(self._read())

    async def finish(self) -> int:
        """Wait for its exit and the rest of its output; returns the exit status."""
        status = await asyncio.shield(self.exit)
        await asyncio.wait([self.output], timeout=GRACE_SECONDS)
        if self.output.done():
            self.output.result()
        return status

    async def end(self) -> None:
        """Ask its group to stop, insist after a while, and leave nothing of it behind."""
        if not self.exit.done():
            self._signal(signal.SIGTERM)
            await asyncio.wait([self.exit], timeout=GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        await self.exit
        await asyncio.wait([self.output], timeout=GRACE_SECONDS)
        self.output.cancel()

    def has_loaded(self, library: Path) -> bool:
        """Whether the library is mapped into the process."""
        with contextlib.suppress(OSError):
            return str(library.resolve()) in Path(f"/proc/{self._process.pid}/maps").read_text()
        return False

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if not self._take_line(self, line):
                self.tail.append(line)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextlib.asynccontextmanager
async def running(
    name: str,
    command: Sequence[str],
    take_line: TakeLine = lambda child, line: False,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Child]:
    """Start a process with ``environment`` added to ours; it is over when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=LINE_BYTES,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    child = Child(name, process, take_line)
    try:
        yield child
    finally:
        await child.end()


LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Runs in the child, before its program."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
