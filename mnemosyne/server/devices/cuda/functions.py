"""Kernels as clients name them: of libraries' files and of modules that they have in memory."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from mnemosyne.server.devices.cuda.driver import check
from mnemosyne.server.devices.cuda.kernels import Function, OwnModule
from mnemosyne.server.devices.cuda.session import CudaSession, when_idle
from mnemosyne.server.errors import INVALID_DEVICE_FUNCTION, INVALID_VALUE, CallError
from mnemosyne.server.functions import check_setting
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.modules import ModuleName, kept_bytes
from mnemosyne.server.session import Deferred, Handlers, Outputs


def _kernel(s: CudaSession, module: list[Any], name: str) -> Outputs:
    source = ModuleName.of(module)

    def finish(function: Function) -> tuple[Any, ...]:
        return _new_function(s, function, ("function", [*module, name]))

    return Deferred(lambda: s.kernels.resolve(s.number, source, name, s.uploads), finish)


def _new_function(
    s: CudaSession, function: Function, entry: tuple[str, list[Any]]
) -> tuple[Any, ...]:
    s.last_function += 1
    _add_function(s, s.last_function, function)
    s.journal.put(entry[0], s.last_function, entry[1])
    return s.last_function, [list(param) for param in function.params], function.info.as_list()


def _add_function(s: CudaSession, number: int, function: Function) -> None:
    s.functions[number] = function
    s.executor.add_function(number, int(function.handle), function.argument_bytes)


def _function(s: CudaSession, number: int) -> Function:
    found = s.functions.get(number)
    if found is None:
        raise CallError(INVALID_DEVICE_FUNCTION, f"this client has no function {number}")
    return found


def _set_attribute(s: CudaSession, number: int, attribute: int, value: int) -> Outputs:
    check_setting(attribute, value)
    s.kernels.set_attribute(_function(s, number), attribute, value)
    settings = s.settings.setdefault(number, {})
    settings[attribute] = value
    s.journal.put("attributes", number, [list(pair) for pair in settings.items()])
    return None


def _occupancy(s: CudaSession, number: int, threads: int, shared: int, flags: int) -> Outputs:
    handle = _function(s, number).handle
    ask = driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    return (check(ask(handle, threads, shared, flags)),)


def _load(s: CudaSession, number: int, name: bytes) -> Outputs:
    """The driver compiles PTX, which takes a while."""
    data = s.take_upload(name)
    if number in s.modules:
        raise CallError(INVALID_VALUE, f"module {number} exists already")

    def finish(module: OwnModule) -> None:
        s.modules[number] = module
        s.keep_module(number, data)

    return Deferred(lambda: s.kernels.load(data), finish)


def _module_function(s: CudaSession, number: int, name: str) -> Outputs:
    module = _module(s, number)

    def finish(function: Function) -> tuple[Any, ...]:
        return _new_function(s, function, ("module_function", [number, name]))

    return Deferred(lambda: s.kernels.of_module(module, name), finish)


def _unload(s: CudaSession, number: int) -> Outputs:
    module = _module(s, number)

    def unload() -> None:
        for function in [n for n, f in s.functions.items() if f.module is module]:
            s.executor.remove_function(function)
            del s.functions[function]
            s.settings.pop(function, None)
            s.journal.drop("module_function", function)
            s.journal.drop("attributes", function)
        del s.modules[number]
        s.forget_module(number)
        s.kernels.unload(module)

    return when_idle(s, unload)


def _module(s: CudaSession, number: int) -> OwnModule:
    found = s.modules.get(number)
    if found is None:
        raise CallError(INVALID_VALUE, f"this client has no module {number}")
    return found


def restore(s: CudaSession, entries: Entries) -> None:
    """Loads the session's modules again. Raises CallError and ValueError."""
    for number, data in of_kind(entries, "module"):
        s.modules[number] = s.kernels.load(kept_bytes(data))
    for number, (*module, name) in of_kind(entries, "function"):
        found = s.kernels.resolve(s.number, ModuleName.of(module), name, s.uploads)
        _restore_function(s, number, found)
    for number, (own, name) in of_kind(entries, "module_function"):
        _restore_function(s, number, s.kernels.of_module(s.modules[own], name))
    for number, settings in of_kind(entries, "attributes"):
        s.settings[number] = dict(settings)
        for attribute, value in settings:
            s.kernels.set_attribute(s.functions[number], attribute, value)
    s.last_function = max(s.functions, default=0)


def _restore_function(s: CudaSession, number: int, found: Function) -> None:
    if found.keeps_state:
        raise ValueError("a module with variables of its own cannot be restored")
    _add_function(s, number, found)


def release(s: CudaSession) -> None:
    """Unloads the modules that only this session used."""
    for module in s.modules.values():
        s.kernels.unload(module)
    s.modules.clear()
    s.kernels.forget(s.number)


HANDLERS: Handlers = {
    "kernel": _kernel,
    "function_attribute": _set_attribute,
    "occupancy": _occupancy,
    "module_load": _load,
    "module_function": _module_function,
    "module_unload": _unload,
}
