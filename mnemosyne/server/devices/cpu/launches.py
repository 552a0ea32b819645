"""Kernels on the CPU device: finding, asking about and launching them."""

from __future__ import annotations

from typing import Any

from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.cubin import Kernel, Module
from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.functions import Function
from mnemosyne.server.devices.cpu.kernels import Launch, Run, UnsupportedKernel
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import (
    INVALID_DEVICE_FUNCTION,
    INVALID_VALUE,
    NOT_SUPPORTED,
    CallError,
)
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.modules import ModuleName, kept_bytes
from mnemosyne.server.session import Deferred, Handlers, Outputs

_VALUE_BYTES = 64  # of a launch attribute
_EVENTS = (7, 12)  # cudaLaunchAttributeID: of an event, recorded when blocks start or have ended


def _kernel(s: CpuSession, module: list[Any], name: str) -> Outputs:
    source = ModuleName.of(module)

    def finish(found: tuple[Kernel, Run]) -> tuple[Any, ...]:
        return _new_function(s, *found, entry=("function", [*module, name]))

    return Deferred(lambda: s.kernels.resolve(source, name, s.uploads), finish)


def _new_function(
    s: CpuSession, kernel: Kernel, run: Run, entry: tuple[str, list[Any]], module: int = 0
) -> tuple[Any, ...]:
    s.last_function += 1
    function = Function.of(s.last_function, kernel, run, module)
    s.functions[function.number] = function
    s.journal.put(entry[0], function.number, entry[1])
    params = [list(param) for param in function.kernel.params]
    return function.number, params, function.info.as_list()


def _load(s: CpuSession, number: int, name: bytes) -> Outputs:
    data = s.take_upload(name)
    if number in s.modules:
        raise CallError(INVALID_VALUE, f"module {number} exists already")

    def finish(module: Module | None) -> None:
        s.modules[number] = module
        s.keep_module(number, data)

    return Deferred(lambda: s.kernels.in_memory(data), finish)


def _module_function(s: CpuSession, number: int, name: str) -> Outputs:
    found = s.kernels.of_module(_module(s, number), name)
    return _new_function(s, *found, entry=("module_function", [number, name]), module=number)


def _unload(s: CpuSession, number: int) -> Outputs:
    _module(s, number)
    del s.modules[number]
    s.forget_module(number)
    for function in [f.number for f in s.functions.values() if f.module == number]:
        del s.functions[function]
        s.settings.pop(function, None)
        s.journal.drop("module_function", function)
        s.journal.drop("attributes", function)
    return None


def _module(s: CpuSession, number: int) -> Module | None:
    if number not in s.modules:
        raise CallError(INVALID_VALUE, f"this client has no module {number}")
    return s.modules[number]


def restore(s: CpuSession, entries: Entries) -> None:
    """Finds the session's functions again. Raises ValueError; uploaded modules may be gone."""
    try:
        for number, data in of_kind(entries, "module"):
            s.modules[number] = s.kernels.in_memory(kept_bytes(data))
        for number, (*module, name) in of_kind(entries, "function"):
            found = s.kernels.resolve(ModuleName.of(module), name, s.uploads)
            s.functions[number] = Function.of(number, *found)
        for number, (module, name) in of_kind(entries, "module_function"):
            found = s.kernels.of_module(s.modules[module], name)
            s.functions[number] = Function.of(number, *found, module)
        for number, settings in of_kind(entries, "attributes"):
            s.settings[number] = dict(settings)
            for attribute, value in settings:
                s.functions[number].set_attribute(attribute, value)
    except CallError as error:
        what = "a module it uploaded" if error.code == MODULE_UNKNOWN else "a kernel"
        raise ValueError(f"{what} cannot be restored ({error.text})") from None
    s.last_function = max(s.functions, default=0)


def _function(s: CpuSession, number: int) -> Function:
    found = s.functions.get(number)
    if found is None:
        raise CallError(INVALID_DEVICE_FUNCTION, f"this client has no function {number}")
    return found


def _set_attribute(s: CpuSession, number: int, attribute: int, value: int) -> Outputs:
    _function(s, number).set_attribute(attribute, value)
    settings = s.settings.setdefault(number, {})
    settings[attribute] = value
    s.journal.put("attributes", number, [list(pair) for pair in settings.items()])
    return None


def _occupancy(s: CpuSession, number: int, threads: int, shared: int, flags: int) -> Outputs:
    return (_function(s, number).occupancy(threads, shared),)


def _launch(
    s: CpuSession, number: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
    shared: int, stream: int, args: bytes,
) -> Outputs:  # fmt: skip
    function = s.functions.get(number) or _function(s, number)
    if stream not in s.streams:
        s.check_stream(stream)
    if len(args) != function.arg_bytes:
        raise ProtocolError(f"launch: {len(args)} bytes of arguments, not {function.arg_bytes}")
    grid, block = (gx, gy, gz), (bx, by, bz)
    function.check_launch(grid, block, shared)
    try:
        function.run(Launch(function.kernel, grid, block, shared, args, s.memory))
    except UnsupportedKernel as error:
        raise CallError(NOT_SUPPORTED, str(error)) from None
    return None


def _launch_ex(s: CpuSession, *values: Any) -> Outputs:
    """Launch attributes steer scheduling only, which the CPU has none of; but for events."""
    *launch, attributes = values
    events = [s.event(number) for number in _events(attributes)]
    _launch(s, *launch)
    for event in events:
        event.recorded = s.effects.clock()
    return None


def _events(attributes: list[Any]) -> list[int]:
    """The numbers of events in launch attributes. Raises ProtocolError."""
    for one in attributes:
        if type(one) is not list or [type(value) for value in one] != [int, bytes]:
            raise ProtocolError("launch_ex: its attributes are not [id, 64 bytes]")
    if any(len(value) != _VALUE_BYTES for _, value in attributes):
        raise ProtocolError("launch_ex: its attributes are not [id, 64 bytes]")
    return [int.from_bytes(value[:8], "little") for kind, value in attributes if kind in _EVENTS]


def _max_clusters(s: CpuSession, number: int, *values: Any) -> Outputs:
    _function(s, number)
    _events(values[-1])
    raise CallError(NOT_SUPPORTED, "the CPU device has no clusters of blocks to count")


def _tensor_map(s: CpuSession, *values: Any) -> Outputs:
    raise CallError(NOT_SUPPORTED, "the CPU device has no tensor maps: only a GPU's driver has")


HANDLERS: Handlers = {
    "kernel": _kernel,
    "module_load": _load,
    "module_function": _module_function,
    "module_unload": _unload,
    "function_attribute": _set_attribute,
    "occupancy": _occupancy,
    "max_clusters": _max_clusters,
    "launch": _launch,
    "launch_ex": _launch_ex,
    "tensor_map": _tensor_map,
    "tensor_map_im2col": _tensor_map,
}
