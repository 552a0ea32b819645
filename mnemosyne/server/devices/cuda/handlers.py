"""The calls that the event loop executes on the GPU: what sets up the hot ones, and rare ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgpack
from cuda.bindings import driver

from mnemosyne import _native
from mnemosyne.api import SPEC
from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.server import graphs, ipc
from mnemosyne.server.devices.cuda import functions, libraries, memory
from mnemosyne.server.devices.cuda.driver import check, check_code
from mnemosyne.server.devices.cuda.session import CudaSession, when_idle
from mnemosyne.server.errors import (
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    CallError,
    LibraryError,
)
from mnemosyne.server.exports import Event
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.session import HANDLERS as COMMON
from mnemosyne.server.session import Deferred, Handler, Handlers, Outputs

_NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
_SETTINGS = 6  # of a cuBLAS handle, once it has been configured


def add_stream(s: CudaSession, number: int, flags: int, priority: int) -> None:
    """Raises CallError. For the driver every stream is non-blocking; see lane/cuda/streams.h."""
    handle = check(driver.cuStreamCreateWithPriority(_NON_BLOCKING, priority))
    if not s.executor.add_stream(number, int(handle), not flags & _NON_BLOCKING):
        check(driver.cuStreamDestroy(handle))
        raise CallError(OUT_OF_MEMORY, "too many streams")


def _create_stream(s: CudaSession, number: int, flags: int, priority: int) -> Outputs:
    COMMON["cudaStreamCreateWithPriority"](s, number, flags, priority)
    with ExitStack() as undo:
        undo.callback(COMMON["cudaStreamDestroy"], s, number)
        add_stream(s, number, flags, priority)
        undo.pop_all()
    return None


def _destroy_stream(s: CudaSession, number: int) -> Outputs:
    COMMON["cudaStreamDestroy"](s, number)
    s.executor.remove_stream(number)
    return None


def _add_event(s: CudaSession, number: int) -> None:
    s.executor.add_event(number, s.shared_events.open(s.events[number]))


def _remove_event(s: CudaSession, number: int, event: Event) -> None:
    if s.executor.remove_event(number):
        s.shared_events.close(event)


def _making_event(name: str, handlers: Handlers) -> Handler:
    def handler(s: CudaSession, number: int, value: int | bytes) -> Outputs:
        handlers[name](s, number, value)
        with ExitStack() as undo:
            undo.callback(COMMON["cudaEventDestroy"], s, number)
            _add_event(s, number)
            undo.pop_all()
        return None

    return handler


def _destroy_event(s: CudaSession, number: int) -> Outputs:
    event = s.event(number)
    COMMON["cudaEventDestroy"](s, number)
    _remove_event(s, number, event)
    return None


def _close_memory(s: CudaSession, pointer: int) -> Outputs:
    return when_idle(s, lambda: ipc.HANDLERS["ipc_close_memory"](s, pointer))


def _add_graph(s: CudaSession, number: int, frames: bytes) -> Outputs:
    graphs.HANDLERS["graph_frames"](s, number, frames)
    s.executor.add_graph(number, frames)
    return None


def _destroy_graph(s: CudaSession, number: int) -> Outputs:
    graphs.HANDLERS["graph_destroy"](s, number)
    return when_idle(s, lambda: s.executor.remove_graph(number))


def _free(s: CudaSession, pointer: int) -> Outputs:
    def free() -> None:
        COMMON["free"](s, pointer)

    return when_idle(s, free)


def _host_alloc(s: CudaSession, size: int) -> Outputs:
    """Pinning touches every page, so it happens in another thread."""
    outputs = COMMON["host_alloc"](s, size)
    assert isinstance(outputs, tuple)
    (offset,) = outputs

    def pin() -> CallError | None:
        try:
            _pin(s, offset, s.host.size_of(offset))
        except CallError as error:
            return error
        return None

    def finish(error: CallError | None) -> tuple[Any, ...]:
        if error is None:
            return (offset,)
        COMMON["host_free"](s, offset)
        raise error

    return Deferred(pin, finish)


def _pin(s: CudaSession, offset: int, size: int) -> None:
    address = s.layout.host_base + offset
    memory.pin(address, size)
    s.pinned.add(address)


def _unpin(s: CudaSession, address: int) -> None:
    memory.unpin(address)
    s.pinned.remove(address)


def _host_free(s: CudaSession, offset: int) -> Outputs:
    s.host.size_of(offset)  # raises CallError when there is none

    def unpin() -> None:
        check_code(s.executor.synchronize())
        _unpin(s, s.layout.host_base + offset)

    def finish(_: None) -> None:
        COMMON["host_free"](s, offset)

    return Deferred(unpin, finish)


def _create_blas(s: CudaSession, handle: int) -> Outputs:
    COMMON["cublasCreate_v2"](s, handle)
    s.executor.add_blas(handle)
    return None


def _destroy_blas(s: CudaSession, handle: int) -> Outputs:
    COMMON["cublasDestroy_v2"](s, handle)
    return when_idle(s, lambda: s.executor.remove_blas(handle))  # another session may get it


def _configure_blas(
    s: CudaSession, handle: int, stream: int, math: int, pointer: int, workspace: int, size: int,
    multiprocessors: int,
) -> Outputs:  # fmt: skip
    COMMON["blas_configure"](s, handle, stream, math, pointer, workspace, size, multiprocessors)
    settings = (stream, math, pointer, workspace, size, multiprocessors)
    s.journal.put("blas", handle, list(settings))
    _configure(s, handle, *settings)
    return None


def _configure(s: CudaSession, handle: int, *settings: int) -> None:
    if not s.executor.configure_blas(handle, *settings):
        raise CallError(INVALID_RESOURCE_HANDLE, "cuBLAS settings name an unknown stream")


def _create_dnn(s: CudaSession, handle: int) -> Outputs:
    COMMON["cudnnCreate"](s, handle)
    s.executor.add_dnn(handle)
    return None


def _destroy_dnn(s: CudaSession, handle: int) -> Outputs:
    COMMON["cudnnDestroy"](s, handle)
    return when_idle(s, lambda: s.executor.remove_dnn(handle))


def _dnn_heuristic(s: CudaSession, handle: int, stream: int, descriptor: list[Any]) -> Outputs:
    s.check_cudnn(handle, stream)
    packed = msgpack.packb(descriptor)

    def finish(configs: bytes) -> tuple[Any, ...]:
        return (msgpack.unpackb(configs),)

    return Deferred(lambda: _ask_dnn(s.executor.dnn_heuristic, handle, stream, packed), finish)


def _dnn_plan(
    s: CudaSession, handle: int, stream: int, number: int, descriptor: list[Any]
) -> Outputs:
    """Building a plan may compile code, which takes seconds."""
    s.check_cudnn(handle, stream)
    packed = msgpack.packb(descriptor)

    def finish(workspace: int) -> tuple[Any, ...]:
        s.journal.put("cudnn_plan", number, [handle, stream, descriptor])
        return (workspace,)

    return Deferred(lambda: _ask_dnn(s.executor.dnn_plan, handle, stream, number, packed), finish)


def _ask_dnn(ask: Callable[..., tuple[int, Any]], *values: Any) -> Any:
    """The answer besides its status. Raises LibraryError."""
    status, answer = ask(*values)
    if status:
        raise LibraryError(status, _native.dnn_error().decode(errors="replace"))
    return answer


def _destroy_dnn_plan(s: CudaSession, number: int) -> Outputs:
    if not s.executor.destroy_dnn_plan(number):
        raise CallError(INVALID_VALUE, f"this client has no cuDNN plan {number}")
    s.journal.drop("cudnn_plan", number)
    return None


def _dropout_states(s: CudaSession, handle: int, stream: int) -> Outputs:
    s.check_cudnn(handle, stream)
    return Deferred(lambda: _ask_dnn(s.executor.dnn_dropout_states, handle, stream), _one)


def _weight_space(s: CudaSession, handle: int, stream: int, rnn: list[Any]) -> Outputs:
    s.check_cudnn(handle, stream)
    packed = msgpack.packb(rnn)
    return Deferred(lambda: _ask_dnn(s.executor.dnn_weight_space, handle, stream, packed), _one)


def _weight_params(
    s: CudaSession, handle: int, stream: int, rnn: list[Any], pseudo_layer: int, *space: int
) -> Outputs:
    """``space``: bytes and address of the weights."""
    s.check_cudnn(handle, stream)
    values = (handle, stream, msgpack.packb(rnn), pseudo_layer, *space)

    def finish(params: bytes) -> tuple[Any, ...]:
        return (msgpack.unpackb(params),)

    return Deferred(lambda: _ask_dnn(s.executor.dnn_weight_params, *values), finish)


def _one(value: int) -> tuple[Any, ...]:
    return (value,)


def restore(s: CudaSession, entries: Entries) -> None:
    """Makes the driver's objects again. Raises ValueError; uploaded modules are gone."""
    for number, (flags, priority) in of_kind(entries, "stream"):
        add_stream(s, number, flags, priority)
    for number in s.events:
        _add_event(s, number)
    for offset, size in of_kind(entries, "host"):
        _pin(s, offset, size)
    for handle, settings in of_kind(entries, "blas"):
        s.executor.add_blas(handle)
        if len(settings) == _SETTINGS and settings[0] in s.streams:  # else it is still to come
            _configure(s, handle, *settings)
    for handle, _ in of_kind(entries, "cudnn"):
        s.executor.add_dnn(handle)
    libraries.restore(s, entries)
    graphs.restore(s, entries)
    for number, pieces in s.graphs.items():
        for piece in pieces:
            s.executor.add_graph(number, piece)
    try:
        for number, (_, _, descriptor) in of_kind(entries, "cudnn_plan"):
            plan = msgpack.packb(descriptor)
            _ask_dnn(s.executor.dnn_plan, next(iter(s.cudnn), 0), 0, number, plan)
        functions.restore(s, entries)
    except CallError as error:
        what = "a module it uploaded" if error.code == MODULE_UNKNOWN else "a kernel or plan"
        raise ValueError(f"{what} cannot be restored ({error.text})") from None


def release(s: CudaSession) -> None:
    """Gives back everything but the device memory."""
    for number, event in s.events.items():
        _remove_event(s, number, event)
    s.executor.end()
    for address in list(s.pinned):
        _unpin(s, address)
    functions.release(s)


def _in_the_lane(name: str) -> Handler:
    def handler(s: CudaSession, *values: Any) -> Outputs:
        raise AssertionError(f"{name} is executed by the lane")

    return handler


HANDLERS: Handlers = {
    **functions.HANDLERS,
    **libraries.HANDLERS,
    **{m.name: _in_the_lane(m.name) for m in SPEC.messages.values() if m.lane},
    **ipc.HANDLERS,
    "ipc_open_event": _making_event("ipc_open_event", ipc.HANDLERS),
    "ipc_close_memory": _close_memory,
    "graph_frames": _add_graph,
    "graph_destroy": _destroy_graph,
    "cudaStreamCreateWithPriority": _create_stream,
    "cudaStreamDestroy": _destroy_stream,
    "cudaEventCreateWithFlags": _making_event("cudaEventCreateWithFlags", COMMON),
    "cudaEventDestroy": _destroy_event,
    "free": _free,
    "host_alloc": _host_alloc,
    "host_free": _host_free,
    "cublasCreate_v2": _create_blas,
    "cublasDestroy_v2": _destroy_blas,
    "blas_configure": _configure_blas,
    "cudnnCreate": _create_dnn,
    "cudnnDestroy": _destroy_dnn,
    "cudnn_heuristic": _dnn_heuristic,
    "cudnn_plan": _dnn_plan,
    "cudnn_plan_destroy": _destroy_dnn_plan,
    "cudnn_dropout_states": _dropout_states,
    "cudnn_rnn_weight_space": _weight_space,
    "cudnn_rnn_weight_params": _weight_params,
}
