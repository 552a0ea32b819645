"""``python -m mnemosyne``: the command ``mnemosyne``."""

from __future__ import annotations

from mnemosyne import interrupt

if __name__ == "__main__":
    interrupt.quiet()
    from mnemosyne.cli import main

    main()
