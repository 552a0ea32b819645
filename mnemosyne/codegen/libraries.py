"""Client stubs of the calls that a common message carries; see csrc/client_hook/library.h."""

from __future__ import annotations

from mnemosyne.api import Call, Field, Kind, Mode, Spec
from mnemosyne.api.spec import Way
from mnemosyne.codegen.stubs import CODES, prototype
from mnemosyne.codegen.text import HEADER

_SEND = {Mode.ASYNC: "post", Mode.ONCE: "once", Mode.SYNC: "call"}

#: How a parameter is wrapped, by its kind and way; {0} is its name, {1} its size, {2} its C type.
_WRAPPED = {
    (Kind.HANDLE, Way.IN): "Object<{2}>{{{0}}}",
    (Kind.HANDLE, Way.NEW): "New<{2}>{{{0}}}",
    (Kind.HANDLE, Way.GONE): "Gone<{2}>{{{0}}}",
    (Kind.INT, Way.OUT): "Out<{2}>{{{0}}}",
    (Kind.INT, Way.INOUT): "InOut<{2}>{{{0}}}",
    (Kind.SCALAR, Way.IN): "Scalar{{{0}, {1}}}",
    (Kind.RESULT, Way.IN): "Result{{{0}, {1}}}",
    (Kind.BYTES, Way.IN): "HostBytes{{{0}, size_t({1})}}",
    (Kind.BYTES, Way.OUT): "HostRoom{{{0}, size_t({1})}}",
    (Kind.SCRATCH, Way.IN): "Scratch{{{0}}}",
}
_OR_NULL = "ObjectOrNull<{2}>{{{0}}}"


def render(spec: Spec) -> str:
    """libraries.cpp."""
    stubs = [_stub(call) for calls in spec.carried.values() for call in calls.values()]
    body = "\n\n".join(stubs)
    return f"""{HEADER}
#include "../client_hook/library.h"

using namespace mnemosyne;

{body}
"""


def _stub(call: Call) -> str:
    made = call.params[0].way is Way.NEW or (call.journal and call.mode is Mode.SYNC)
    makes = ", true" if made else ""
    function = f'{{Number::{call.via}, Codes::{CODES[call.result]}, "{call.name}"{makes}}}'
    arguments = ", ".join([function, _owner(call), *map(_argument, call.params)])
    send = _SEND[call.mode]
    return f"MNEMOSYNE_API {prototype(call)} {{\n  return mnemosyne::{send}({arguments});\n}}"


def _owner(call: Call) -> str:
    """The library handle that the call runs with, whose stream and pointer mode it has."""
    first = call.params[0]
    runs = first.way is Way.IN and "Handle" in first.of
    return first.name if runs else "static_cast<void*>(nullptr)"


def _argument(p: Field) -> str:
    wrapped = _WRAPPED.get((p.kind, p.way), "{0}") if not p.may_be_null else _OR_NULL
    ctype = p.ctype.removesuffix("*") if p.kind in (Kind.HANDLE, Kind.INT) and _is_place(p) else ""
    return wrapped.format(p.name, p.size, ctype or p.ctype)


def _is_place(p: Field) -> bool:
    return p.way in (Way.OUT, Way.INOUT, Way.NEW)
