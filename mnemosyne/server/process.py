"""What both server processes do to themselves when they start."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def log_to_stderr(who: str, level: str) -> None:
    """One line per event, starting with the time and ``who``."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format=f"%(asctime)s {who} %(levelname)s: %(message)s",
    )


def allow_many_files() -> None:
    """Raises the limit of open files to what the system allows: each chunk of memory is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_files() -> int:
    """How many this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def die_with_parent(parent: int) -> None:
    """Makes the kernel end this process with its parent, at once if that is gone already."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(1)
