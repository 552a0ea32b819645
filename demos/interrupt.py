"""Makes Ctrl-C end a demo without a traceback, also while torch is still loading.

Importing this file is enough, so it is imported before torch. It must never import anything slow.
"""

from __future__ import annotations

import sys
from types import TracebackType

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def excepthook(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    sys.__excepthook__(kind, value, trace)


sys.excepthook = excepthook
