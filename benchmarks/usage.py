"""What processes use: processor time, to the nanosecond where Linux tells it, and memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def watched(processes: Iterable[psutil.Process], work: Callable[[], T]) -> tuple[float, T]:
    """Per cent of one CPU that the processes use while the work is done, and its result."""
    (used,), result = by_thread([processes], work)
    return sum(used.values()), result


def by_thread(
    groups: Iterable[Iterable[psutil.Process]], work: Callable[[], T]
) -> tuple[list[Counter[str]], T]:
    """The same for several groups of processes, and by the names of their threads."""
    seen = [list(processes) for processes in groups]
    before, start = [cpu_seconds(group) for group in seen], time.monotonic()
    result = work()
    after, seconds = [cpu_seconds(group) for group in seen], time.monotonic() - start
    used = [now - then for now, then in zip(after, before, strict=True)]
    return [Counter({name: 100 * s / seconds for name, s in one.items()}) for one in used], result


def cpu_seconds(processes: Iterable[psutil.Process]) -> Counter[str]:
    """Of all their threads that still live, by name: the first word of schedstat, in nanoseconds.

    A process that has ended counts as nothing.
    """
    used: Counter[str] = Counter()
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").glob("*"):
            with suppress(OSError):
                name = (task / "comm").read_text().strip()
                used[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def resident(process: psutil.Process) -> tuple[float, float]:
    """Bytes in memory: shared pages in part (PSS), and all pages (RSS)."""
    found = process.memory_full_info()
    return float(found.pss), float(found.rss)
