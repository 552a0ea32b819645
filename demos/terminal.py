"""What the demos and ``together`` share towards the terminal: options, bars.

This file must never import torch: ``together`` only starts programs that do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

Report = Callable[[int, float], None]  # step, loss


def bar_columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn, ...]:
    """Name, bar, steps and loss; a task needs the field ``loss``."""
    loss = TextColumn("loss {task.fields[loss]}")
    return TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), loss


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)
