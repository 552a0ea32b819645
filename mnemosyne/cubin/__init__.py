"""Describes the kernels in CUDA libraries: their parameters, registers and shared memory, by name.

It reads fatbins and ELF cubins itself, without the CUDA toolkit or a GPU, and keeps the results on
disk. It must never import torch, asyncio, cuda or any other part of mnemosyne.

Read on in `registry.py`, which is what a worker uses; then `fatbin.py`, `elf.py` and `layout.py`.
"""

from .arch import Arch, Reach
from .demangle import demangle
from .errors import ArchError, CubinError
from .fatbin import Entry, choose_entry, read_fatbin, unpack
from .layout import Global, Kernel, Layout, read_layout
from .library import Span, find_spans, find_torch_library
from .registry import Module, Registry

__all__ = [
    "Arch",
    "ArchError",
    "CubinError",
    "Entry",
    "Global",
    "Kernel",
    "Layout",
    "Module",
    "Reach",
    "Registry",
    "Span",
    "choose_entry",
    "demangle",
    "find_spans",
    "find_torch_library",
    "read_fatbin",
    "read_layout",
    "unpack",
]
