"""cuDNN on the CPU device: graphs, and calls of the older API, as torch operations.

There is one engine, without knobs or workspace, for every graph that can be computed; anything else
is refused as "not supported" when an engine is asked for, which is where PyTorch looks for another.
It must never import the server's transports.
"""

from __future__ import annotations

from typing import Any

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.cudnn import (
    attention,
    convolution,
    ctc,
    dropout,
    legacy,
    norm,
    pointwise,
    rnn,
    transformer,
)
from mnemosyne.server.devices.cpu.cudnn.content import parse
from mnemosyne.server.devices.cpu.cudnn.graph import Graph, Values
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, OUT_OF_MEMORY, CallError
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.session import Handlers, Outputs

_MAX_PLANS = 1 << 15  # of a session; PyTorch keeps 10,000 a thread

_MODIFIERS = {**pointwise.BUILDERS, **attention.BUILDERS}
_BUILDERS = {**_MODIFIERS, **convolution.BUILDERS, 41: attention.builder(_MODIFIERS)}

#: The engine, as an engine configuration that lacks its graph (see the message cudnn_heuristic):
#: global index 0, no workspace, no shared memory.
_INT64, _INT32, _DESCRIPTOR = 3, 23, 15  # cudnnBackendAttributeType_t
_ENGINE = [2, [[1301, _INT64, bytes(8)]]]
_CONFIG = [
    3, [[300, _DESCRIPTOR, [_ENGINE]], [303, _INT64, bytes(8)], [304, _INT32, bytes(4)]],
]  # fmt: skip
_HEURISTIC_GRAPH, _PLAN_CONFIG, _CONFIG_ENGINE, _ENGINE_GRAPH = 201, 401, 300, 1300


def _heuristic(s: CpuSession, handle: int, stream: int, heuristic: list[Any]) -> Outputs:
    s.check_cudnn(handle, stream)
    Graph.of(parse(heuristic).child(_HEURISTIC_GRAPH), _BUILDERS)
    return ([_CONFIG],)


def _plan(s: CpuSession, handle: int, stream: int, number: int, descriptor: list[Any]) -> Outputs:
    s.check_cudnn(handle, stream)
    if number in s.plans:
        raise CallError(INVALID_VALUE, f"the cuDNN plan {number} exists already")
    if len(s.plans) >= _MAX_PLANS:
        raise CallError(OUT_OF_MEMORY, f"more than {_MAX_PLANS} cuDNN plans")
    s.plans[number] = _read_plan(descriptor)
    s.journal.put("cudnn_plan", number, descriptor)
    return (0,)


def _read_plan(descriptor: list[Any]) -> Graph:
    engine = parse(descriptor).child(_PLAN_CONFIG).child(_CONFIG_ENGINE)
    return Graph.of(engine.child(_ENGINE_GRAPH), _BUILDERS)


def restore(s: CpuSession, entries: Entries) -> None:
    """Reads the session's plans again."""
    s.plans.update((n, _read_plan(d)) for n, d in of_kind(entries, "cudnn_plan"))


def _destroy_plan(s: CpuSession, number: int) -> Outputs:
    if s.plans.pop(number, None) is None:
        raise CallError(INVALID_VALUE, f"this client has no cuDNN plan {number}")
    s.journal.drop("cudnn_plan", number)
    return None


def _execute(
    s: CpuSession, handle: int, stream: int, number: int, data: list[Any], workspace: int
) -> Outputs:
    s.check_cudnn(handle, stream)
    plan = s.plans.get(number)
    if plan is None:
        raise CallError(INVALID_VALUE, f"this client has no cuDNN plan {number}")
    plan.run(Values(s.memory, _places(data)))
    return None


def _places(data: list[Any]) -> dict[int, int | bytes]:
    """Pointers and values by the tensors' numbers."""
    try:
        places = {number: place for number, place in data}  # noqa: C416
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"cudnn_execute: malformed data ({error})") from None
    if any(type(n) is not int or type(p) not in (int, bytes) for n, p in places.items()):
        raise ProtocolError("cudnn_execute: data is not [[id, pointer or bytes], ...]")
    return places


HANDLERS: Handlers = {
    **dropout.HANDLERS,
    **norm.HANDLERS,
    **rnn.HANDLERS,
    **ctc.HANDLERS,
    **transformer.HANDLERS,
    **legacy.HANDLERS,
    "cudnn_heuristic": _heuristic,
    "cudnn_plan": _plan,
    "cudnn_plan_destroy": _destroy_plan,
    "cudnn_execute": _execute,
}
