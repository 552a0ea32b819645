"""Kernels that the fake driver knows by name, as a cubin, a fatbin and a library of a client.

There is no code in them: a cubin that only says which kernels there are and what they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin

from .build import HERE, compile_cpp

#: What launch.cpp executes, and one kernel that does nothing; parameters as (offset, size).
KERNELS = (
    FakeKernel("fake_sleep", ((0, 4),), 4),  # microseconds
    FakeKernel("fake_fill", ((0, 8), (8, 4), (16, 8)), 24),  # pointer, word, count of words
    FakeKernel("fake_spin", ((0, 8),), 8),  # pointer to a word: runs until it is not 0
    FakeKernel("fake_illegal", (), 0),
    FakeKernel("fake_assert", (), 0),
    FakeKernel("fake_nothing", (), 0),
)

#: Code of a Python client, for `launch("fake_fill", pointer, c_uint(7), c_size_t(4))`.
CLIENT = """
import ctypes
def load(path):
    global kernels
    kernels = ctypes.CDLL(path)
def launch(name, *arguments, stream=None):
    stub = ctypes.c_char.in_dll(kernels, name)
    places = (ctypes.c_void_p * (len(arguments) + 1))(*map(ctypes.addressof, arguments))
    return kernels.launch(ctypes.byref(stub), places, stream)
load({library!r})
"""


def kernels_cubin(
    kernels: Sequence[FakeKernel] = KERNELS, variables: Sequence[tuple[str, int, str]] = ()
) -> bytes:
    """Build a cubin for sm_90 with these kernels, and variables as (name, bytes, section)."""
    return cubin(FakeCubin(kernels, variables))


def kernels_fatbin(kernels: Sequence[FakeKernel] = KERNELS) -> bytes:
    """Build a fatbin with one cubin for sm_90."""
    return fatbin(entry(kernels_cubin(kernels)))


def build_kernels(folder: Path, kernels: Sequence[FakeKernel] = KERNELS) -> Path:
    """Build a library that registers these kernels when a process with libclient.so loads it.

    It exports a stub of each kernel's name, which must be an identifier (mangled names are), and
    `int launch(const void* stub, void** arguments, cudaStream_t)`; see CLIENT.
    """
    image, library = folder / "kernels.fatbin", folder / "libkernels.so"
    image.write_bytes(kernels_fatbin(kernels))
    (folder / "kernels.inc").write_text("".join(f"KERNEL({one.name})\n" for one in kernels))
    flags = ["-std=c++17", "-fPIC", "-shared", f"-I{folder}", f'-DFATBIN="{image}"']
    compile_cpp(*flags, HERE / "client" / "kernels.cpp", "-o", library)
    return library


def client_code(library: Path) -> str:
    """Give CLIENT for a library of build_kernels."""
    return CLIENT.format(library=str(library))
