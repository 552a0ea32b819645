"""Kernels on the GPU: modules loaded when one of their kernels is first wanted, and kept.

One copy of a module serves all clients, unless its kernels can leave data in it or a client has
uploaded it: then every client gets its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from threading import Lock

from cuda.bindings import driver

from mnemosyne.api.messages import CACHE_CONFIG
from mnemosyne.cubin import Module
from mnemosyne.server.devices.cuda.driver import check, check_code
from mnemosyne.server.errors import INVALID_DEVICE_FUNCTION, INVALID_VALUE, CallError
from mnemosyne.server.functions import MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER, FunctionInfo
from mnemosyne.server.modules import ModuleName, Modules, Uploads, image_of

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
    _Attribute.CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET,
    _Attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    _Attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
    _Attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    _Attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    _Attribute.CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
)
#: What one client sets must not take from another, of functions that they share.
_ONLY_RISE = (MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER)
#: A variable in PTX, as it is declared.
_VARIABLE = re.compile(rb"^\s*(\.(visible|extern|weak|common)\s+)?\.global\b", re.MULTILINE)
_MOST_PARAMETERS = 4096  # bytes of a launch's arguments are 32764 at most
_LOG_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class OwnModule:
    """A module that a client had in memory, loaded for it alone; PTX has no ``layout``."""

    handle: driver.CUmodule
    layout: Module | None
    keeps_state: bool


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel of one client. ``params``: (offset, size) of each parameter, in bytes.

    ``keeps_state``: its module has variables, which a new worker would find at their first values.
    ``shared``: other clients launch it, too.
    """

    handle: driver.CUfunction
    params: tuple[tuple[int, int], ...]
    info: FunctionInfo
    keeps_state: bool
    shared: bool
    module: OwnModule | None = None

    @property
    def argument_bytes(self) -> int:
        return max((offset + size for offset, size in self.params), default=0)


class Kernels:
    """The loaded modules of all clients. May be used from any thread."""

    def __init__(self, sm: str) -> None:
        self._modules = Modules(sm)
        self._loaded: dict[tuple[int, Module], driver.CUmodule] = {}  # by session
        self._most: dict[tuple[int, int], int] = {}  # by function and attribute
        self._lock = Lock()

    def resolve(self, session: int, name: ModuleName, kernel: str, uploads: Uploads) -> Function:
        """The kernel, loaded. Raises CallError, with MODULE_UNKNOWN to ask for the bytes."""
        module, found, shared = self._modules.kernel(name, kernel, uploads)
        handle = _handle(self._load(_SHARED if shared else session, module), kernel)
        return Function(handle, found.params, _info(handle), module.keeps_state, shared)

    def load(self, data: bytes) -> OwnModule:
        """A client's bytes: a cubin, a fatbin or PTX. Raises CallError."""
        layout = self._modules.in_memory(data)
        if layout is None:
            return OwnModule(_compile(data + b"\0"), None, bool(_VARIABLE.search(data)))
        handle = check(driver.cuModuleLoadData(layout.image()))
        return OwnModule(handle, layout, layout.keeps_state)

    def of_module(self, module: OwnModule, kernel: str) -> Function:
        """A kernel of such a module. Raises CallError."""
        known = module.layout.kernels.get(kernel) if module.layout else None
        if module.layout and known is None:
            raise CallError(INVALID_DEVICE_FUNCTION, f"the module has no kernel {kernel}")
        handle = _handle(module.handle, kernel)
        params = known.params if known else _parameters(handle)
        return Function(handle, params, _info(handle), module.keeps_state, False, module)

    def unload(self, module: OwnModule) -> None:
        check(driver.cuModuleUnload(module.handle))

    def _load(self, owner: int, module: Module) -> driver.CUmodule:
        with self._lock:
            loaded = self._loaded.get((owner, module))
            if loaded is None:
                loaded = check(driver.cuModuleLoadData(image_of(module)))
                self._loaded[owner, module] = loaded
        return loaded

    def set_attribute(self, function: Function, attribute: int, value: int) -> None:
        """Raises CallError. Of a shared function, what limits only rises."""
        if attribute == CACHE_CONFIG:
            config = driver.CUfunc_cache(value)
            check(driver.cuFuncSetCacheConfig(function.handle, config))
            return
        key = int(function.handle), attribute
        with self._lock:
            if function.shared and attribute in _ONLY_RISE:
                value = self._most[key] = max(value, self._most.get(key, 0))
            check(driver.cuFuncSetAttribute(function.handle, _Attribute(attribute), value))

    def forget(self, session: int) -> None:
        """Unloads the modules that only this session used."""
        with self._lock:
            own = [key for key in self._loaded if key[0] == session]
            modules = [self._loaded.pop(key) for key in own]
        for module in modules:
            check(driver.cuModuleUnload(module))


def _compile(image: bytes) -> driver.CUmodule:
    """Raises CallError; what the driver's compiler says of bad PTX is in its text."""
    log = bytearray(_LOG_BYTES)
    options = [
        driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
        driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ]
    try:
        return check(driver.cuModuleLoadDataEx(image, len(options), options, [log, len(log)]))
    except CallError as error:
        said = log.split(b"\0")[0].decode(errors="replace").split()
        raise CallError(error.code, " ".join([error.text, *said])) from None


def _handle(module: driver.CUmodule, kernel: str) -> driver.CUfunction:
    try:
        return check(driver.cuModuleGetFunction(module, kernel.encode()))
    except CallError as error:
        raise CallError(error.code, f"kernel {kernel}: {error.text}") from None


def _info(handle: driver.CUfunction) -> FunctionInfo:
    values = [check(driver.cuFuncGetAttribute(attribute, handle)) for attribute in _INFO]
    return FunctionInfo(*values)


def _parameters(handle: driver.CUfunction) -> tuple[tuple[int, int], ...]:
    """(offset, size) of each, as the driver knows them. Raises CallError."""
    found = []
    for index in range(_MOST_PARAMETERS):
        code, offset, size = driver.cuFuncGetParamInfo(handle, index)
        if int(code) == INVALID_VALUE:
            break  # there are no more
        check_code(int(code))
        found.append((int(offset), int(size)))
    return tuple(found)
