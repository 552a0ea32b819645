"""All families in one table: from a kernel's name to what runs it."""

from __future__ import annotations

from importlib import import_module

from . import Family, KernelInfo, Run, UnsupportedKernel

#: Modules of this package, each with a FAMILY; the first pattern that matches decides.
_MODULES = (
    "cat",
    "gather",
    "triangle",
    "softmax",
    "norm",
    "loss",
    "loss_spatial",
)


def _families() -> Family:
    return [entry for name in _MODULES for entry in import_module(f"{__package__}.{name}").FAMILY]


FAMILIES = _families()


def bind(kernel: KernelInfo) -> Run:
    """What runs the kernel. Raises UnsupportedKernel, which names it."""
    name = kernel.demangled
    for pattern, binder in FAMILIES:
        if pattern.search(name):
            try:
                return binder(kernel)
            except UnsupportedKernel as error:
                raise UnsupportedKernel(f"{error} (in kernel {shorten(name)})") from None
    raise UnsupportedKernel(f"the CPU device has no kernel {shorten(name)}")


def shorten(name: str) -> str:
    """The name without namespaces and parameter list, at most 300 characters."""
    for noise in ("at::native::", "(anonymous namespace)::", "void "):
        name = name.replace(noise, "")
    return name if len(name) <= 300 else name[:297] + "..."
