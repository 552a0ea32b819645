"""What kernels that move elements share: elements as bytes, and indices out of bounds."""

from __future__ import annotations

import re
from functools import wraps

import torch

from mnemosyne.server.errors import DEVICE_ASSERT, CallError

from . import Launch, Run, UnsupportedKernel
from .names import dtype

#: A type for elements of so many bytes that are moved and never computed with.
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")


def raw(size: int) -> torch.dtype:
    """A dtype of so many bytes."""
    found = _RAW.get(size)
    if found is None:
        raise UnsupportedKernel(f"elements of {size} bytes")
    return found


def raw_type(name: str) -> torch.dtype:
    """A dtype of the size of a C++ type: ``OpaqueType<4>`` or the type of a tensor."""
    opaque = _OPAQUE.search(name)
    return raw(int(opaque[1]) if opaque else dtype(name).itemsize)


def element_type(name: str) -> torch.dtype:
    """The dtype of a C++ type; raw when it is an OpaqueType."""
    return raw_type(name) if "OpaqueType" in name else dtype(name)


def asserting(run: Run) -> Run:
    """Turn torch's complaint about an index into the failed assertion it is on a GPU."""

    @wraps(run)
    def checked(launch: Launch) -> None:
        try:
            run(launch)
        except (IndexError, RuntimeError) as error:
            if "out of bounds" in str(error) or "out of range" in str(error):
                raise failed_assertion(str(error)) from None
            raise

    return checked


def failed_assertion(text: str) -> CallError:
    """The error of a kernel whose assertion fails."""
    return CallError(DEVICE_ASSERT, f"device-side assert triggered: {text}")
