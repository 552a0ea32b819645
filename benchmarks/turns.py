"""Measures the same thing on several sides in turns, so that all meet the same machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turns(windows: int, sides: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """What each side gives in each window; another one, the first, is not counted.

    Whoever goes first in one window goes last in the next.
    """
    found: dict[str, list[T]] = {side: [] for side in sides}
    order = list(sides)
    for _ in range(windows + 1):
        for side in order:
            found[side].append(sides[side]())
        order.append(order.pop(0))
    return {side: values[1:] for side, values in found.items()}
