"""How calls of cuFFT, cuSOLVER and cuSPARSE travel."""

from __future__ import annotations

from typing import Any

from mnemosyne.protocol.carried import NUMBER_OF, SPEC

_CARRIER = {call.name: call.via for call in SPEC.library_calls}


def carried(function: str, *arguments: Any, stream: int = 0, area: int = 0) -> tuple[Any, ...]:
    """The message that carries the call, and its fields."""
    message = _CARRIER[function]
    if message.endswith("_run"):
        return message, NUMBER_OF[function], stream, area, list(arguments)
    return message, function, stream, list(arguments)
