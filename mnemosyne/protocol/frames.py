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

Check = Callable[[Any], bool]

#: Longest list, and how deep lists nest; csrc/common/msgpack.h has the same. A list is given the
#: room that it claims before its elements are read, at each depth.
_MAX_LIST = 1024
_MAX_DEPTH = 64
_MAX_SCALAR = 40  # bytes, likewise
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


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


is_unsigned = _integer(0, 2**64 - 1)
_is_signed = _integer(-(2**63), 2**63 - 1)


def _is_real(value: Any) -> bool:
    return type(value) is float


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_text(value: Any) -> bool:
    return type(value) is str


def is_scalar(value: Any) -> bool:
    return 0 < len(value) <= _MAX_SCALAR if type(value) is bytes else is_unsigned(value)


def _list_of(*kinds: type) -> Check:
    """Lists of such values and of further lists."""

    def is_plain(value: Any, depth: int) -> bool:
        if type(value) is list:
            return depth > 0 and all(is_plain(element, depth - 1) for element in value)
        return type(value) in kinds

    return lambda value: type(value) is list and is_plain(value, _MAX_DEPTH)


#: By C type: what an integer can be.
INTEGERS = {
    "signed char": _integer(-(2**7), 2**7 - 1),
    "int": _integer(-(2**31), 2**31 - 1),
    "unsigned int": _integer(0, 2**32 - 1),
    "long long": _is_signed,
    "size_t": is_unsigned,
}
_CHECK_OF_KIND: dict[Kind, Check] = {
    Kind.REAL: _is_real,
    Kind.SCALAR: is_scalar,
    Kind.BYTES: _is_bytes,
    Kind.TEXT: _is_text,
    Kind.LIST: _list_of(int, bytes, str),
}
_is_lanes_list = _list_of(int, bytes)


def _check_of(message: Message, field: Field) -> Check:
    """As strict as csrc/lane/fields.h, which reads a lane's messages in C++."""
    if field.kind is Kind.INT:
        return INTEGERS[field.ctype]
    if field.kind is Kind.LIST and message.lane:
        return _is_lanes_list
    return _CHECK_OF_KIND.get(field.kind, is_unsigned)  # pointers, handles


_CHECKS = {
    message.name: tuple(_check_of(message, field) for field in message.fields)
    for message in SPEC.messages.values()
}
_NUMBERS = {message.name: number for number, message in SPEC.messages.items()}
