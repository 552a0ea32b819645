"""Frames: one msgpack array ``[number, *fields]`` per call, checked against the specification.

Checks here are of form: the number exists, the fields are as many as declared and of their kind.
Whether a stream, pointer or kernel id is the sender's own is for the session to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from mnemosyne.api import SPEC, Field, Kind, Message
from mnemosyne.protocol.errors import ProtocolError

_MAX_UNSIGNED = 2**64
_MIN_SIGNED = -(2**63)
#: Longest list. Space is made for what a list claims before its elements are read, at each depth.
_MAX_LIST = 1024
_LIMITS = {"max_array_len": _MAX_LIST, "max_map_len": 0, "max_ext_len": 0}


def decode(frame: bytes) -> tuple[Message, list[Any]]:
    """The message and its field values. Raises ProtocolError for what the spec does not allow."""
    try:
        values = msgpack.unpackb(frame, **_LIMITS)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise ProtocolError(f"a frame is not msgpack: {error or type(error).__name__}") from None
    if type(values) is not list or not values or type(values[0]) is not int:
        raise ProtocolError("a frame is not an array that starts with a message number")
    message = SPEC.messages.get(values[0])
    if message is None:
        raise ProtocolError(f"no message has number {values[0]}")
    del values[0]
    _check(message, values)
    return message, values


def encode(message: Message, *values: Any) -> bytes:
    """The frame of a message; the counterpart of ``decode`` (clients encode in C++)."""
    packed: bytes = msgpack.packb([_NUMBERS[message.name], *values])
    return packed


def encode_reply(status: int, *outputs: Any) -> bytes:
    """A reply: ``[status, *outputs]``.

    When the status is not zero the outputs are left out; one text may stand there, which says why.
    An empty one and another: the program may ask for that one, and goes on in its own way.
    """
    packed: bytes = msgpack.packb([status, *outputs])
    return packed


def _check(message: Message, values: list[Any]) -> None:
    checks = _CHECKS[message.name]
    if len(values) != len(checks):
        raise ProtocolError(f"{message.name}: {len(values)} fields, expected {len(checks)}")
    for field, check, value in zip(message.fields, checks, values, strict=True):
        if not check(value):
            raise ProtocolError(f"{message.name}: {field.name} is no {field.kind.value}")


def _is_unsigned(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_UNSIGNED


def _is_integer(value: Any) -> bool:
    return type(value) is int and _MIN_SIGNED <= value < _MAX_UNSIGNED


def _is_real(value: Any) -> bool:
    return type(value) is float


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_list(value: Any) -> bool:
    return type(value) is list


def _is_scalar(value: Any) -> bool:
    return type(value) is bytes or _is_unsigned(value)


_CHECK_OF_KIND: dict[Kind, Callable[[Any], bool]] = {
    Kind.INT: _is_integer,
    Kind.REAL: _is_real,
    Kind.PTR: _is_unsigned,
    Kind.STREAM: _is_unsigned,
    Kind.EVENT: _is_unsigned,
    Kind.BLAS: _is_unsigned,
    Kind.CUDNN: _is_unsigned,
    Kind.FUNCTION: _is_unsigned,
    Kind.SCALAR: _is_scalar,
    Kind.BYTES: _is_bytes,
    Kind.TEXT: _is_text,
    Kind.LIST: _is_list,
}


def _checks(fields: tuple[Field, ...]) -> tuple[Callable[[Any], bool], ...]:
    return tuple(_CHECK_OF_KIND[field.kind] for field in fields)


_CHECKS = {message.name: _checks(message.fields) for message in SPEC.messages.values()}
_NUMBERS = {message.name: number for number, message in SPEC.messages.items()}
