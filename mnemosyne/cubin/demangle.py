"""C++ names of kernels, through the demangler of libstdc++.

nvcc gives functions with internal linkage a namespace whose name holds a hash of the source file
(`_INTERNAL_1f0d42c5_9_Sorting_cu_8a70c1de_1234`). It has no counterpart in the source and changes
with every build, so it is taken out of the demangled name.

libstdc++ refuses names of more than 1,024 characters (DEMANGLE_RECURSION_LIMIT in its
cp-demangle.c). In libtorch_cuda.so that hits 475 CUTLASS templates; they keep their mangled names.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

_FILE_SCOPE = re.compile(r"_INTERNAL_[0-9a-f]+_\w+::")


def demangle(names: Iterable[str]) -> list[str]:
    """Give the readable name of each mangled one; what cannot be demangled comes back as it is."""
    return [demangle_one(name) for name in names]


@lru_cache(maxsize=1 << 15)
def demangle_one(name: str) -> str:
    """Give one readable name; see `demangle`."""
    if not name.startswith("_Z"):
        return name
    readable = _demangler()(name)
    return name if readable is None else _FILE_SCOPE.sub("", readable)


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str | None]:
    """Bind `__cxa_demangle` (Itanium C++ ABI, cxxabi.h); without libstdc++ nothing is demangled."""
    try:
        cxa_demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda name: None
    cxa_demangle.restype = ctypes.c_void_p  # not c_char_p: the pointer itself must be freed
    cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p]

    def demangler(name: str) -> str | None:
        pointer = cxa_demangle(name.encode("utf-8", "surrogateescape"), None, None, None)
        if not pointer:
            return None
        try:
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            free(pointer)

    return demangler
