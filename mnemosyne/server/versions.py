"""Versions of the CUDA libraries on both sides. Pure: lists in, one line out.

A client packs arguments and asks for algorithms as its own libraries do; the worker executes them
with the ones it has loaded. They must be of one release: major and minor version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemosyne.protocol import ProtocolError

_CUDART = "cudart"  # counts 1000 * major + 10 * minor, the others 10000 * major + 100 * minor


def check(libraries: Sequence[Any]) -> None:
    """Raises ProtocolError when this is no list of [library name, version]."""
    for entry in libraries:
        if type(entry) is not list or [type(value) for value in entry] != [str, int]:
            raise ProtocolError("libraries are not [[name, version], ...]")


def mismatch(client: Sequence[Any], server: Sequence[Any]) -> str:
    """One line that names both versions, or "" when nothing that both sides have differs."""
    ours = dict(server)
    for name, version in client:
        if name in ours and release(name, version) != release(name, ours[name]):
            return (
                f"the program has {name} {release(name, version)}, the server "
                f"{release(name, ours[name])}; install the same version of PyTorch for both"
            )
    return ""


def release(name: str, version: int) -> str:
    """major.minor of a library's version number, as cuda_runtime_api.h and its like count."""
    major, minor = (1000, 10) if name == _CUDART else (10000, 100)
    return f"{version // major}.{version % major // minor}"
