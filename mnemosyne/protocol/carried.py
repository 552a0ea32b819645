"""Calls that a common message carries: a function, by name or number, and its arguments.

Checks are of form, as those of a frame: the message carries the call, the arguments are as many as
its parameters say and of their kinds, and host memory is as long as its parameters say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import Any

from mnemosyne.api import SPEC, Call, Field, Kind
from mnemosyne.api.spec import Way
from mnemosyne.protocol.errors import ProtocolError
from mnemosyne.protocol.frames import INTEGERS, is_scalar, is_unsigned

_DOUBLE = struct.Struct("<d")

#: Calls as the messages name them: those that run by number.
NUMBER_OF = {call.name: number for number, call in enumerate(SPEC.library_calls)}
_NAMED: dict[str | int, Call] = {
    NUMBER_OF[call.name] if call.via.endswith("_run") else call.name: call
    for call in SPEC.library_calls
}


def read(message: str, function: str | int, arguments: list[Any]) -> tuple[Call, dict[str, Any]]:
    """The call and, by parameter, what goes in. Raises ProtocolError."""
    call = _NAMED.get(function)
    if call is None or call.via != message:
        raise ProtocolError(f"{message}: it carries no call {str(function)[:80]!r}")
    fields = list(_sent(call))
    if len(arguments) != len(fields):
        raise ProtocolError(f"{call.name}: {len(arguments)} arguments, expected {len(fields)}")
    values = {}
    for field, value in zip(fields, arguments, strict=True):
        if not _is_formed(field, value):
            raise ProtocolError(f"{call.name}: {field.name} is no {field.kind.value}")
        values[field.name] = _DOUBLE.unpack(value)[0] if field.kind is Kind.REAL else value
    _check_lengths(call, values)
    _check_places(call, values)
    return call, values


def room(field: Field, values: dict[str, Any]) -> int:
    """Bytes of host memory that a parameter names, by the values of the others; 0 if below."""
    terms = field.size.split(" * ")
    return max(0, prod(int(t) if t.isdigit() else values[t] for t in terms))


def _sent(call: Call) -> Iterator[Field]:
    return (p for p in call.params if p.way is not Way.OUT and p.kind is not Kind.SCRATCH)


def _is_formed(field: Field, value: Any) -> bool:
    if field.kind is Kind.INT:
        return INTEGERS[field.ctype.removesuffix("*")](value)
    if field.kind is Kind.SCALAR:
        return is_scalar(value)
    if field.kind is Kind.REAL:
        return type(value) is bytes and len(value) == _DOUBLE.size
    if field.kind is Kind.BYTES:
        return type(value) is bytes
    return is_unsigned(value)


def _check_lengths(call: Call, values: dict[str, Any]) -> None:
    for p in call.params:
        if p.kind is not Kind.BYTES or p.way is not Way.IN:
            continue
        length = len(values[p.name])
        if length != room(p, values) and (length or not p.may_be_null):
            raise ProtocolError(f"{call.name}: {p.name} has {length} bytes")


def _check_places(call: Call, values: dict[str, Any]) -> None:
    """A handle has one pointer mode for all scalars of a call."""
    scalars = [values[p.name] for p in call.params if p.kind is Kind.SCALAR]
    results = [values[p.name] for p in call.params if p.kind is Kind.RESULT]
    if len({*(type(v) is int for v in scalars), *(v != 0 for v in results)}) > 1:
        raise ProtocolError(f"{call.name}: scalars in two memories")
