"""Calls of cuFFT, cuSOLVER and cuSPARSE, as a session sees them. Pure: no I/O, no clock.

How this works: a message carries a function and its arguments. Here they are checked against the
specification, and the handles that they name against the session's own; a device's ``Run`` then
executes the call. What makes a handle, sets or ends it takes effect once that has succeeded, and is
kept in the journal as it came: another worker makes the same calls again. What only runs comes here
where no lane executes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mnemosyne.api import SPEC, Call, Field, Kind
from mnemosyne.api.spec import Way
from mnemosyne.protocol import ProtocolError, carried
from mnemosyne.server.errors import INVALID_RESOURCE_HANDLE, INVALID_VALUE, CallError
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.session import Deferred, Handlers, LibraryObject, Outputs, Session

_JOURNAL = "library"


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """``arguments``: as they came; ``values``: by parameter, of a handle the object (or None for
    null). ``stream``: its number.
    """

    call: Call
    arguments: list[Any]
    values: dict[str, Any]
    stream: int


#: Executes a call: outputs in the order of the parameters they belong to, as any handler.
Run = Callable[[Any, LibraryCall], Outputs]


def handlers(run: Run) -> Handlers:
    """A handler for each message that carries calls."""
    return {message: partial(_handle, run, message) for message in SPEC.carried}


def _handle(
    run: Run, message: str, s: Session, function: str | int, stream: int, *rest: Any
) -> Outputs:
    """``rest``: the arguments; before them the work area, if there is one, is for a GPU."""
    s.check_stream(stream)
    arguments: list[Any] = rest[-1]
    call, values = carried.read(message, function, arguments)
    numbers = {p.name: values[p.name] for p in call.params if p.kind is Kind.HANDLE}
    values.update({p.name: _object(s, p, values[p.name]) for p in _handles(call)})
    outputs = run(s, LibraryCall(call, arguments, values, stream))

    def done(results: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        for p in _handles(call):
            if found := values[p.name]:
                _take_effect(s, call, p, numbers[p.name], found, arguments)
        return results

    if isinstance(outputs, Deferred):
        finish = outputs.finish
        return Deferred(outputs.work, lambda result: done(finish(result)))
    return done(outputs)


def _handles(call: Call) -> list[Field]:
    return [p for p in call.params if p.kind is Kind.HANDLE]


def _object(s: Session, p: Field, number: int) -> LibraryObject | None:
    """Raises CallError when the session has no such handle of that type, or has a new one."""
    if p.may_be_null and number == 0:
        return None
    found = s.objects.get(number)
    if p.way is Way.NEW:
        if found is not None or number == 0:
            raise CallError(INVALID_VALUE, f"a {p.of} {number:#x} exists already")
        return LibraryObject(p.of)
    if found is None or found.of != p.of:
        raise CallError(INVALID_RESOURCE_HANDLE, f"this client has no {p.of} {number:#x}")
    return found


def _take_effect(
    s: Session, call: Call, p: Field, number: int, found: LibraryObject, arguments: list[Any]
) -> None:
    if p.way is Way.GONE:
        del s.objects[number]
        return s.journal.drop(_JOURNAL, number)
    if p.way is Way.NEW:
        s.objects[number] = found
    elif call.lossy and p is _handles(call)[-1]:
        if found.lossy:
            return None
        found.lossy = True
    elif not call.journal:
        return None
    if not call.lossy:
        _keep(found, call, arguments)
    return s.journal.put(_JOURNAL, number, [found.of, found.lossy, found.calls])


def _keep(found: LibraryObject, call: Call, arguments: list[Any]) -> None:
    """The same setting again replaces the earlier one."""
    same = _setting(call.name, arguments)
    found.calls = [one for one in found.calls if _setting(*one) != same]
    found.calls.append([call.name, arguments])


def _setting(function: str, arguments: list[Any]) -> tuple[Any, ...]:
    """What a call sets; attributes are set one by one."""
    return (function, arguments[1]) if function.endswith("Attribute") else (function,)


def restore(s: Session, entries: Entries, run: Run) -> None:
    """Makes the session's handles again; ``run`` must not defer. Raises ValueError."""
    for number, (of, lossy, calls) in of_kind(entries, _JOURNAL):
        if lossy:
            raise ValueError(f"what a {of} has found out cannot be restored")
        found = s.objects[number] = LibraryObject(of, calls)
        for function, arguments in calls:
            _replay(s, found, function, arguments, run)


def _replay(
    s: Session, found: LibraryObject, function: str, arguments: list[Any], run: Run
) -> None:
    try:
        call, values = carried.read(_CARRIER[function], function, arguments)
        values.update({p.name: found for p in _handles(call)})
        run(s, LibraryCall(call, arguments, values, stream=0))
    except (CallError, ProtocolError, KeyError) as error:
        raise ValueError(f"a {found.of} cannot be restored ({error})") from None


_CARRIER = {call.name: call.via for call in SPEC.library_calls}


def nothing(s: Session, c: LibraryCall) -> Outputs:
    """Executes nothing: all that comes back is zero. For a device without a library."""
    return tuple(_zero(p, c.values) for p in c.call.params if _comes_back(p, c.values))


def _comes_back(p: Field, values: dict[str, Any]) -> bool:
    """Whether the reply holds a value for this parameter."""
    return p.way in (Way.OUT, Way.INOUT) or (p.kind is Kind.RESULT and values[p.name] == 0)


def _zero(p: Field, values: dict[str, Any]) -> Any:
    return 0 if p.kind is Kind.INT else bytes(carried.room(p, values))
