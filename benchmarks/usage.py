"""What processes use: processor time, to the nanosecond where Linux tells it, and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def watched(processes: Iterable[psutil.Process], work: Callable[[], T]) -> tuple[float, T]:
    """Per cent of one CPU that the processes use while the work is done, and its result."""
    seen = list(processes)
    before, start = cpu_seconds(seen), time.monotonic()
    result = work()
    return 100 * (cpu_seconds(seen) - before) / (time.monotonic() - start), result


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Of all their threads that still live; a process that has ended counts as nothing."""
    return sum(map(thread_seconds, processes))


def thread_seconds(process: psutil.Process) -> float:
    """The first word of a thread's schedstat is its time on a CPU in nanoseconds."""
    used = 0
    for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            used += int(path.read_text().split()[0])
    return used / 1e9


def resident(process: psutil.Process) -> tuple[float, float]:
    """Bytes in memory: shared pages in part (PSS), and all pages (RSS)."""
    found = process.memory_full_info()
    return float(found.pss), float(found.rss)
