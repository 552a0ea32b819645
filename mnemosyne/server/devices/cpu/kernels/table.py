"""All families in one table: from a kernel's name to what runs it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from . import Family, KernelInfo, Run, UnsupportedKernel, __path__


def _families() -> Family:
    """The FAMILY of every module of this package that has one."""
    names = [m.name for m in iter_modules(__path__) if m.name != "table"]
    modules = [import_module(f"{__package__}.{name}") for name in names]
    return [entry for module in modules for entry in getattr(module, "FAMILY", ())]


FAMILIES = _families()


def bind(kernel: KernelInfo) -> Run:
    """What runs the kernel: the first family that knows it. UnsupportedKernel names the kernel."""
    name = kernel.demangled
    reason = "the CPU device has no kernel"
    for pattern, binder in FAMILIES:
        if pattern.search(name):
            try:
                return binder(kernel)
            except UnsupportedKernel as error:
                reason = f"{error}, in kernel"
    raise UnsupportedKernel(f"{reason} {shorten(name)}")


def shorten(name: str) -> str:
    """The name without namespaces, at most 300 characters."""
    for noise in ("at::native::", "(anonymous namespace)::", "void "):
        name = name.replace(noise, "")
    return name if len(name) <= 300 else name[:297] + "..."
