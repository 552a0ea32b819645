"""``python -m mnemosyne.server``: see main.py."""

from __future__ import annotations

import sys

from mnemosyne import interrupt

if __name__ == "__main__":
    interrupt.quiet()
    from mnemosyne.server.main import run

    sys.exit(run())
