"""Makes Ctrl-C end a program without a traceback, also while it still imports.

It must never import anything slow, and is called before anything is that is.
"""

from __future__ import annotations

import sys
from types import TracebackType

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def quiet() -> None:
    """From here on."""
    sys.excepthook = _excepthook


def _excepthook(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    sys.__excepthook__(kind, value, trace)
