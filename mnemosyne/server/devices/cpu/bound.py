"""Kernels with what runs them on the CPU device, found once for all clients of a module."""

from __future__ import annotations

from threading import Lock

from mnemosyne.cubin import Kernel, Module
from mnemosyne.server.devices.cpu.kernels import Binder, Run, UnsupportedKernel
from mnemosyne.server.errors import INVALID_DEVICE_FUNCTION, NOT_SUPPORTED, CallError
from mnemosyne.server.modules import ModuleName, Modules, Uploads


class BoundKernels:
    """``bind`` finds what runs a kernel. May be used from any thread."""

    def __init__(self, sm: str, bind: Binder) -> None:
        self._modules = Modules(sm)
        self._bind = bind
        self._bound: dict[tuple[Module, str], tuple[Kernel, Run]] = {}
        self._lock = Lock()

    def resolve(self, name: ModuleName, kernel: str, uploads: Uploads) -> tuple[Kernel, Run]:
        """The kernel and what runs it. Raises CallError, with MODULE_UNKNOWN to ask for bytes."""
        module, found, shared = self._modules.kernel(name, kernel, uploads)
        with self._lock:
            known = self._bound.get((module, kernel))
        if known is not None:
            return known
        try:
            bound = found, self._bind(found)
        except UnsupportedKernel as error:
            raise CallError(NOT_SUPPORTED, str(error)) from None
        if not shared:
            return bound
        with self._lock:
            return self._bound.setdefault((module, kernel), bound)

    def in_memory(self, data: bytes) -> Module | None:
        """The module of a client's bytes; None for PTX. Raises CallError."""
        return self._modules.in_memory(data)

    def of_module(self, module: Module | None, kernel: str) -> tuple[Kernel, Run]:
        """A kernel of a client's bytes, and what runs it. Raises CallError."""
        found = module.kernels.get(kernel) if module is not None else None
        if module is not None and found is None:
            raise CallError(INVALID_DEVICE_FUNCTION, f"the module has no kernel {kernel}")
        try:
            if found is not None:
                return found, self._bind(found)
        except UnsupportedKernel:
            pass
        text = f"the CPU device cannot run kernels that are compiled at run time, such as {kernel}"
        raise CallError(NOT_SUPPORTED, text)
