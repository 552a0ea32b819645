"""Kernels with what runs them on the CPU device, found once for all clients."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from mnemosyne.cubin import Kernel
from mnemosyne.server.devices.cpu.kernels import Binder, Run, UnsupportedKernel
from mnemosyne.server.errors import NOT_SUPPORTED, CallError
from mnemosyne.server.modules import ModuleName, Modules, Upload


class BoundKernels:
    """``bind`` finds what runs a kernel. May be used from any thread."""

    def __init__(self, sm: str, bind: Binder) -> None:
        self._modules = Modules(sm)
        self._bind = bind
        self._bound: dict[tuple[ModuleName, str], tuple[Kernel, Run]] = {}
        self._lock = Lock()

    def resolve(
        self, name: ModuleName, kernel: str, uploads: Mapping[int, Upload]
    ) -> tuple[Kernel, Run]:
        """The kernel and what runs it. Raises CallError, with MODULE_UNKNOWN to ask for bytes."""
        with self._lock:
            known = self._bound.get((name, kernel))
        if known is not None:
            return known
        _, found = self._modules.kernel(name, kernel, uploads)
        try:
            bound = found, self._bind(found)
        except UnsupportedKernel as error:
            raise CallError(NOT_SUPPORTED, str(error)) from None
        with self._lock:
            return self._bound.setdefault((name, kernel), bound)
