"""The calls that a common message carries: client stubs, and what a lane calls.

See csrc/client_hook/library.h and csrc/lane/cuda/carried.h.
"""

from __future__ import annotations

from math import prod

from mnemosyne.api import Call, Field, Kind, Mode, Spec
from mnemosyne.api.spec import Way
from mnemosyne.codegen.stubs import CODES, prototype
from mnemosyne.codegen.text import HEADER

_SEND = {Mode.ASYNC: "post", Mode.ONCE: "once", Mode.SYNC: "call"}

#: By a parameter's kind and way: how the client wraps it ({0} is its name, {1} its size, {2} its C
#: type), and what it is for the lane.
_FORMS = {
    (Kind.INT, Way.IN): ("{0}", "kNumber"),
    (Kind.INT, Way.OUT): ("Out<{2}>{{{0}}}", "kOut"),
    (Kind.INT, Way.INOUT): ("InOut<{2}>{{{0}}}", "kInOut"),
    (Kind.REAL, Way.IN): ("{0}", "kReal"),
    (Kind.PTR, Way.IN): ("{0}", "kPointer"),
    (Kind.HANDLE, Way.IN): ("Object<{2}>{{{0}}}", "kHandle"),
    (Kind.HANDLE, Way.NEW): ("New<{2}>{{{0}}}", "kNew"),
    (Kind.HANDLE, Way.GONE): ("Gone<{2}>{{{0}}}", "kGone"),
    (Kind.SCALAR, Way.IN): ("Scalar{{{0}, {1}}}", "kScalar"),
    (Kind.RESULT, Way.IN): ("Result{{{0}, {1}}}", "kResult"),
    (Kind.BYTES, Way.IN): ("HostBytes{{{0}, size_t({1})}}", "kBytes"),
    (Kind.BYTES, Way.OUT): ("HostRoom{{{0}, size_t({1})}}", "kRoom"),
    (Kind.SCRATCH, Way.IN): ("Scratch{{{0}}}", "kScratch"),
}
_NUMBER = {"signed char": "kChar", "int": "kInt", "long long": "kLong", "size_t": "kSize"}
_MOST_WORDS = 24  # csrc/lane/cuda/carried.h has the same
_DESCRIBED = "Described<{2}>{{{0}}}"
_OR_NULL = {
    Kind.HANDLE: "ObjectOrNull<{2}>{{{0}}}",
    Kind.BYTES: "HostBytes{{{0}, size_t({1}), true}}",
}


def render(spec: Spec) -> str:
    """libraries.cpp."""
    body = "\n\n".join(_stub(number, call) for number, call in enumerate(spec.library_calls))
    return f"""{HEADER}
#include "../client_hook/library.h"

using namespace mnemosyne;

{body}
"""


def _stub(number: int, call: Call) -> str:
    made = call.params[0].way is Way.NEW or (call.journal and call.mode is Mode.SYNC)
    makes = ", true" if made else ""
    named = f'"{call.name}"{makes}' if call.via.endswith("_call") else f"{number}u"
    function = f"Function{{Number::{call.via}, Codes::{CODES[call.result]}, {named}}}"
    arguments = ", ".join([function, _owner(call), *(_argument(call, p) for p in call.params)])
    send = "ask" if call.decided else _SEND[call.mode]
    if call.described:
        send = "retire" if call.params[0].way is Way.GONE else "describe"
    return f"MNEMOSYNE_API {prototype(call)} {{\n  return mnemosyne::{send}({arguments});\n}}"


def _owner(call: Call) -> str:
    """The library handle that the call runs with, whose stream and pointer mode it has."""
    first = call.params[0]
    runs = first.way is Way.IN and "Handle" in first.of
    return first.name if runs else "static_cast<void*>(nullptr)"


def _argument(call: Call, p: Field) -> str:
    wrapped = _OR_NULL[p.kind] if p.may_be_null else _FORMS[p.kind, p.way][0]
    if call.described and (p.kind, p.way) == (Kind.HANDLE, Way.IN):
        wrapped = _DESCRIBED
    ctype = p.ctype.removesuffix("*") if p.kind in (Kind.HANDLE, Kind.INT) and _is_place(p) else ""
    return wrapped.format(p.name, p.size, ctype or p.ctype)


def _is_place(p: Field) -> bool:
    return p.way in (Way.OUT, Way.INOUT, Way.NEW)


def render_functions(spec: Spec) -> str:
    """library_functions.h."""
    types = sorted({p.of for call in spec.library_calls for p in call.params if p.of})
    rows = "\n".join(_row(call, types) for call in spec.library_calls)
    return f"""{HEADER}
#pragma once

#include "../lane/cuda/carried.h"

namespace mnemosyne::cuda {{

using P = Parameter;

// By number.
inline constexpr LibraryFunction kLibraryFunctions[] = {{
{rows}
}};

}}  // namespace mnemosyne::cuda
"""


def _row(call: Call, types: list[str]) -> str:
    _check_passing(call)
    runs = str(call.via.endswith("_run")).lower()
    works = str(not call.journal and "Handle" in call.params[0].of).lower()
    parameters = ", ".join(_parameter(call, p, types) for p in call.params)
    head = f'"{call.name}", k{call.library.capitalize()}, {runs}, {works}, {len(call.params)}'
    return f"    {{{head}, {{{parameters}}}}},"


def _check_passing(call: Call) -> None:
    """The lane passes words of 64 bits, and one double behind them. Raises ValueError."""
    words = call.params[:-1] if call.params[-1].kind is Kind.REAL else call.params
    if len(words) > _MOST_WORDS or any(p.kind is Kind.REAL for p in words):
        raise ValueError(f"{call.name}: the lane cannot pass its arguments")


def _parameter(call: Call, p: Field, types: list[str]) -> str:
    kind = f"P::{_FORMS[p.kind, p.way][1]}{'OrNull' if p.may_be_null else ''}"
    if p.kind is Kind.HANDLE:
        return f"{{{kind}, {types.index(p.of)}}}"
    if p.kind is Kind.INT:
        return f"{{{kind}, P::{_NUMBER[p.ctype.removesuffix('*')]}}}"
    if p.kind in (Kind.RESULT, Kind.BYTES, Kind.SCRATCH):
        return f"{{{kind}, 0, {_size(call, p)}}}"
    return f"{{{kind}}}"


def _size(call: Call, p: Field) -> str:
    """Of host memory: bytes, and the parameter that says how many times (-1: once)."""
    terms = p.size.split(" * ")
    names = [q.name for q in call.params]
    by = [names.index(term) for term in terms if not term.isdigit()]
    if len(by) > 1:
        raise ValueError(f"{call.name}: {p.name} is as long as several parameters say")
    return f"{prod(int(term) for term in terms if term.isdigit())}, {by[0] if by else -1}"
