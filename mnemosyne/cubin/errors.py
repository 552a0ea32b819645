"""The one exception that bad bytes raise."""

from __future__ import annotations


class CubinError(Exception):
    """Bytes that are no fatbin or cubin we can use: one line, what is wrong and where."""
