"""Descriptors of cuDNN's backend API, as they come by content: raw attributes by name.

A frame that is no descriptor at all breaks the protocol. A descriptor that lacks something, or has
it in another type, is a program's mistake: the call fails with "invalid value".
Source: cudnn_graph.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError

_MAX_DEPTH = 16
_BOOLEAN, _INT64, _DESCRIPTOR = 2, 3, 15  # cudnnBackendAttributeType_t
_REALS = {4: "<f", 5: "<d"}


@dataclass(frozen=True, slots=True)
class Attribute:
    """The bytes of the elements, or the descriptors that they are."""

    kind: int  # cudnnBackendAttributeType_t
    value: bytes | tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Attributes by cudnnBackendAttributeName_t. Readers raise CallError for what is not there."""

    kind: int  # cudnnBackendDescriptorType_t
    attributes: Mapping[int, Attribute]

    def children(self, name: int) -> tuple[Descriptor, ...]:
        """The descriptors of an attribute; none if it is not set."""
        found = self.attributes.get(name)
        if found is None:
            return ()
        if not isinstance(found.value, tuple):
            raise self._wrong(name)
        return found.value

    def optional(self, name: int) -> Descriptor | None:
        """The single descriptor of an attribute, if it is set."""
        found = self.children(name)
        if len(found) > 1:
            raise self._wrong(name)
        return found[0] if found else None

    def child(self, name: int) -> Descriptor:
        """The single descriptor of an attribute."""
        found = self.optional(name)
        if found is None:
            raise self._wrong(name)
        return found

    def integers(self, name: int) -> tuple[int, ...]:
        """64-bit integers."""
        data = self._bytes(name, _INT64)
        return struct.unpack(f"<{len(data) // 8}q", data)

    def integer(self, name: int) -> int:
        """A single 64-bit integer."""
        found = self.integers(name)
        if len(found) != 1:
            raise self._wrong(name)
        return found[0]

    def enum(self, name: int) -> int:
        """A single value of one of cuDNN's enums."""
        found = self.attributes.get(name)
        if found is None or isinstance(found.value, tuple) or len(found.value) != 4:
            raise self._wrong(name)
        return int.from_bytes(found.value, "little", signed=True)

    def flag(self, name: int) -> bool:
        """A boolean; false if it is not set."""
        return name in self.attributes and any(self._bytes(name, _BOOLEAN))

    def real(self, name: int, default: float) -> float:
        """A float or a double."""
        found = self.attributes.get(name)
        if found is None:
            return default
        form = _REALS.get(found.kind)
        if form is None or isinstance(found.value, tuple):
            raise self._wrong(name)
        if len(found.value) != struct.calcsize(form):
            raise self._wrong(name)
        value: float = struct.unpack(form, found.value)[0]
        return value

    def only(self, names: set[int]) -> None:
        """Raises CallError when another attribute is set: it would change what is computed."""
        if other := sorted(set(self.attributes) - names):
            raise CallError(
                NOT_SUPPORTED, f"attribute {other[0]} of a cuDNN descriptor {self.kind}"
            )

    def _bytes(self, name: int, kind: int) -> bytes:
        found = self.attributes.get(name)
        if found is None or found.kind != kind or isinstance(found.value, tuple):
            raise self._wrong(name)
        return found.value

    def _wrong(self, name: int) -> CallError:
        text = f"attribute {name} of a cuDNN descriptor {self.kind} is missing or of another type"
        return CallError(INVALID_VALUE, text)


def parse(raw: Any, depth: int = 0) -> Descriptor:
    """From ``[type, [[name, type, value], ...]]``. Raises ProtocolError for anything else."""
    if depth > _MAX_DEPTH:
        raise ProtocolError(f"cuDNN descriptors nested more than {_MAX_DEPTH} deep")
    try:
        kind, attributes = raw
        read = {name: Attribute(form, _value(form, v, depth)) for name, form, v in attributes}
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a malformed cuDNN descriptor ({error})") from None
    if type(kind) is not int or any(type(name) is not int for name in read):
        raise ProtocolError("a cuDNN descriptor or attribute without a number")
    return Descriptor(kind, read)


def _value(kind: Any, value: Any, depth: int) -> bytes | tuple[Descriptor, ...]:
    if kind == _DESCRIPTOR and type(value) is list:
        return tuple(parse(one, depth + 1) for one in value)
    if type(kind) is not int or kind == _DESCRIPTOR or type(value) is not bytes:
        raise TypeError(f"an attribute of type {kind!r} that is {type(value).__name__}")
    return value
