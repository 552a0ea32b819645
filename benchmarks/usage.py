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
    seen = list(processes)
    before, start = cpu_seconds(seen), time.monotonic()
    result = work()
    return 100 * (cpu_seconds(seen) - before) / (time.monotonic() - start), result


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Of all their threads that still live; a process that has ended counts as nothing."""
    return sum(sum(by_thread(process).values()) for process in processes)


def by_thread(process: psutil.Process) -> Counter[str]:
    """Seconds on a CPU, by the names of threads: the first word of their schedstat, in ns."""
    used: Counter[str] = Counter()
    for task in Path(f"/proc/{process.pid}/task").glob("*"):
        with suppress(OSError):
            name = (task / "comm").read_text().strip()
            used[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def resident(process: psutil.Process) -> tuple[float, float]:
    """Bytes in memory: shared pages in part (PSS), and all pages (RSS)."""
    found = process.memory_full_info()
    return float(found.pss), float(found.rss)
