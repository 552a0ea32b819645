"""The words the specification is written in.

How this works: a *call* is an exported C function. A regular call (ASYNC, SYNC, ONCE) is its own
*message*: its stub is generated and its parameters are the frame's fields. One with a ``via`` is
carried by that message instead, as its name or number and the list of its arguments; both sides
know from its parameters what the list holds. A CUSTOM call has a hand-written stub, which sends
messages declared on their own. Meaning sits in the parameter's kind: a stream is checked and
numbered as a stream wherever it occurs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property


class Mode(Enum):
    """How a call is answered."""

    ASYNC = "async"  # sent, never answered; errors surface at a later call
    SYNC = "sync"  # sent, the caller waits for the reply
    ONCE = "once"  # SYNC until this content has succeeded, ASYNC from then on
    LOCAL = "local"  # answered in the client, by hand-written code
    CUSTOM = "custom"  # hand-written on the client, sends messages of its own
    NATIVE = "native"  # not interposed: the library's own answer needs no device
    FORWARD = "forward"  # exported, calls the library's own: a handle of dlopen leads to it
    REFUSED = "refused"  # exported, returns "not supported" and says its name


class Kind(Enum):
    """What a field means; decides its C type, its wire form and how it is checked."""

    INT = "int"  # any integer or enum
    REAL = "real"  # float or double, passed by value
    PTR = "ptr"  # device pointer
    STREAM = "stream"
    EVENT = "event"
    BLAS = "blas"  # cuBLAS or cublasLt handle
    CUDNN = "cudnn"  # cuDNN handle
    HANDLE = "handle"  # any other library's handle or descriptor; its type is in ``of``
    SCRATCH = "scratch"  # host memory that only the library uses: nothing of it travels
    FUNCTION = "function"  # kernel id given out by the server
    SCALAR = "scalar"  # host or device scalar: bytes when on the host, else a device pointer
    RESULT = "result"  # where a scalar goes: a device pointer, or 0 for into the reply as bytes
    BYTES = "bytes"
    TEXT = "text"
    LIST = "list"  # nested array, checked by its handler


class Way(Enum):
    """Which direction a parameter goes, and what it does to a handle."""

    IN = "in"
    OUT = "out"  # comes back in the reply
    NEW = "new"  # the client invents the handle and sends its number
    GONE = "gone"  # the handle is dead after the call
    # INT: changed in place; SCALAR: likewise; when on the host, the reply brings the new bytes
    INOUT = "inout"


@dataclass(frozen=True)
class Field:
    """One parameter of a call, or one element of a frame."""

    name: str
    kind: Kind
    ctype: str  # C type as the prototype spells it
    way: Way = Way.IN
    size: str = ""  # BYTES, SCALAR, RESULT, SCRATCH: C expression of the length in bytes
    of: str = ""  # HANDLE: the library's name of its type
    may_be_null: bool = False  # HANDLE, BYTES

    @property
    def out(self) -> Field:
        return replace(self, way=Way.OUT, ctype=self.ctype + "*")

    @property
    def new(self) -> Field:
        return replace(self, way=Way.NEW, ctype=self.ctype + "*")

    @property
    def or_null(self) -> Field:
        return replace(self, may_be_null=True)

    @property
    def gone(self) -> Field:
        return replace(self, way=Way.GONE)

    @property
    def inout(self) -> Field:
        ctype = self.ctype + "*" if self.kind is Kind.INT else self.ctype
        return replace(self, way=Way.INOUT, ctype=ctype)


@dataclass(frozen=True)
class Message:
    """A frame ``[number, *fields]``; the reply, if one is asked for, is ``[status, *outputs]``."""

    name: str
    fields: tuple[Field, ...]
    outputs: tuple[Field, ...] = ()
    journal: bool = False  # creates, sets or destroys state a new worker must have
    lane: bool = False  # where the device has an executor, the lane runs it without Python


@dataclass(frozen=True)
class Call:
    """An exported function. ``reason`` says why it is CUSTOM, LOCAL or REFUSED."""

    name: str
    library: str
    mode: Mode
    params: tuple[Field, ...] = ()
    result: str = "int"
    reason: str = ""
    journal: bool = False
    lane: bool = False
    via: str = ""  # the message that carries the call
    lossy: bool = False  # leaves in its last handle what the journal cannot make again
    decided: bool = False  # the arguments alone decide what comes back
    described: bool = False  # makes, sets or ends what is only settings; see descriptions.h

    @property
    def message(self) -> Message | None:
        """The message a regular call is; None where another carries it, or nothing is sent."""
        if self.via or self.mode not in (Mode.ASYNC, Mode.SYNC, Mode.ONCE):
            return None
        sent = tuple(p for p in self.params if p.way is not Way.OUT)
        outputs = tuple(p for p in self.params if p.way is Way.OUT)
        if outputs and self.mode is Mode.ONCE:  # what the library says of the arguments
            outputs += (Field("status", Kind.INT, "int", Way.OUT),)
        return Message(self.name, sent, outputs, self.journal, self.lane)


@dataclass(frozen=True)
class Spec:
    """All calls, all messages, and the append-only list of message numbers."""

    calls: tuple[Call, ...]
    extra: tuple[Message, ...]
    numbered: tuple[str, ...]
    _by_name: dict[str, Message] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regular = [m for c in self.calls if (m := c.message)]
        by_name = {m.name: m for m in [*self.extra, *regular]}
        if len(by_name) != len(self.extra) + len(regular):
            raise ValueError("a message is declared twice")
        missing = sorted(set(by_name) - set(self.numbered))
        if missing:
            raise ValueError(f"append to mnemosyne/api/numbers.py: {', '.join(missing)}")
        object.__setattr__(self, "_by_name", by_name)

    @cached_property
    def messages(self) -> dict[int, Message]:
        """Messages by number. A number whose message is gone stays unused."""
        return {n: m for n, name in enumerate(self.numbered, 1) if (m := self._by_name.get(name))}

    @cached_property
    def carried(self) -> dict[str, dict[str, Call]]:
        """By message: the calls that it carries, by name."""
        carriers = sorted({c.via for c in self.calls if c.via})
        return {via: {c.name: c for c in self.calls if c.via == via} for via in carriers}

    @cached_property
    def library_calls(self) -> tuple[Call, ...]:
        """The calls that other messages carry, by number."""
        return tuple(c for c in self.calls if c.via)

    @cached_property
    def digest(self) -> str:
        """Changes whenever the meaning of a frame changes; client and server must agree."""
        text = repr((sorted(self.messages.items(), key=lambda item: item[0]), self.carried))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
