"""Kernels on the CPU device: finding, asking about and launching them."""

from __future__ import annotations

from typing import Any

from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.functions import Function
from mnemosyne.server.devices.cpu.kernels import Launch, UnsupportedKernel
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_DEVICE_FUNCTION, NOT_SUPPORTED, CallError
from mnemosyne.server.functions import MAX_DYNAMIC_SHARED
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.modules import ModuleName
from mnemosyne.server.session import Deferred, Handlers, Outputs


def _kernel(s: CpuSession, module: list[Any], name: str) -> Outputs:
    source = ModuleName.of(module)

    def finish(found: Any) -> tuple[Any, ...]:
        function = Function.of(len(s.functions) + 1, *found)
        s.functions[function.number] = function
        s.journal.put("function", function.number, [*module, name])
        params = [list(param) for param in function.kernel.params]
        return function.number, params, function.info.as_list()

    return Deferred(lambda: s.kernels.resolve(source, name, s.uploads), finish)


def restore(s: CpuSession, entries: Entries) -> None:
    """Finds the session's functions again. Raises ValueError; uploaded modules are gone."""
    try:
        for number, (*module, name) in of_kind(entries, "function"):
            found = s.kernels.resolve(ModuleName.of(module), name, {})
            s.functions[number] = Function.of(number, *found)
        for number, most in of_kind(entries, "limit"):
            s.functions[number].set_attribute(MAX_DYNAMIC_SHARED, most)
    except CallError as error:
        what = "a module it uploaded" if error.code == MODULE_UNKNOWN else "a kernel"
        raise ValueError(f"{what} cannot be restored ({error.text})") from None


def _function(s: CpuSession, number: int) -> Function:
    found = s.functions.get(number)
    if found is None:
        raise CallError(INVALID_DEVICE_FUNCTION, f"this client has no function {number}")
    return found


def _set_attribute(s: CpuSession, number: int, attribute: int, value: int) -> Outputs:
    function = _function(s, number)
    function.set_attribute(attribute, value)
    s.journal.put("limit", number, function.info.maxDynamicSharedSizeBytes)
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
    """Launch attributes steer scheduling only, which the CPU has none of."""
    return _launch(s, *values[:-1])


HANDLERS: Handlers = {
    "kernel": _kernel,
    "function_attribute": _set_attribute,
    "occupancy": _occupancy,
    "launch": _launch,
    "launch_ex": _launch_ex,
}
