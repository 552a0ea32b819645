"""What bad bytes raise."""

from __future__ import annotations


class CubinError(Exception):
    """Bytes that are no fatbin or cubin we can use: one line, what is wrong and where."""


class ArchError(CubinError):
    """Sound bytes, but none of the code in them runs on the device: the message says what is."""
