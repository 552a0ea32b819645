"""Kernels on the GPU: modules loaded when one of their kernels is first wanted, and kept.

One copy of a module serves all clients, unless its kernels can leave data in it: then every client
gets its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from cuda.bindings import driver

from mnemosyne.cubin import Module
from mnemosyne.server.devices.cuda.driver import check
from mnemosyne.server.functions import MAX_DYNAMIC_SHARED, FunctionInfo
from mnemosyne.server.modules import ModuleName, Modules, Upload

_Attribute = driver.CUfunction_attribute
_SHARED = 0
#: In the order of FunctionInfo.
_INFO = (
    _Attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    _Attribute.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    _Attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    _Attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    _Attribute.CU_FUNC_ATTRIBUTE_NUM_REGS,
    _Attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION,
    _Attribute.CU_FUNC_ATTRIBUTE_BINARY_VERSION,
    _Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
)


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel of one client. ``params``: (offset, size) of each parameter, in bytes.

    ``keeps_state``: its module has variables, which a new worker would find at their first values.
    """

    handle: driver.CUfunction
    params: tuple[tuple[int, int], ...]
    info: FunctionInfo
    keeps_state: bool

    @property
    def argument_bytes(self) -> int:
        return max((offset + size for offset, size in self.params), default=0)


class Kernels:
    """The loaded modules of all clients. May be used from any thread."""

    def __init__(self, sm: str) -> None:
        self._modules = Modules(sm)
        self._loaded: dict[tuple[int, ModuleName], driver.CUmodule] = {}
        self._most_shared: dict[int, int] = {}  # by function
        self._lock = Lock()

    def resolve(
        self, session: int, name: ModuleName, kernel: str, uploads: Mapping[int, Upload]
    ) -> Function:
        """The kernel, loaded. Raises CallError, with MODULE_UNKNOWN to ask for the bytes."""
        module, found = self._modules.kernel(name, kernel, uploads)
        owner = session if module.keeps_state else _SHARED
        handle = check(driver.cuModuleGetFunction(self._load(owner, name, module), kernel.encode()))
        values = [check(driver.cuFuncGetAttribute(attribute, handle)) for attribute in _INFO]
        return Function(handle, found.params, FunctionInfo(*values), module.keeps_state)

    def _load(self, owner: int, name: ModuleName, module: Module) -> driver.CUmodule:
        with self._lock:
            loaded = self._loaded.get((owner, name))
            if loaded is None:
                loaded = check(driver.cuModuleLoadData(module.image()))
                self._loaded[owner, name] = loaded
        return loaded

    def set_attribute(self, function: Function, attribute: int, value: int) -> None:
        """Raises CallError. A shared function's limit of dynamic shared memory only rises."""
        key = int(function.handle)
        with self._lock:
            if attribute == MAX_DYNAMIC_SHARED:
                value = max(value, self._most_shared.get(key, 0))
                self._most_shared[key] = value
            check(driver.cuFuncSetAttribute(function.handle, _Attribute(attribute), value))

    def forget(self, session: int) -> None:
        """Unloads the modules that only this session used."""
        with self._lock:
            own = [key for key in self._loaded if key[0] == session]
            modules = [self._loaded.pop(key) for key in own]
        for module in modules:
            check(driver.cuModuleUnload(module))
