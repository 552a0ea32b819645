"""A session on the GPU: what the common session knows, and the driver's objects behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mnemosyne import _native
from mnemosyne.server.devices.cuda.kernels import Function, Kernels
from mnemosyne.server.session import Session


@dataclass(kw_only=True)
class CudaSession(Session):
    """``kernels`` is the device's, ``words`` its block of progress words; the rest is this
    client's own. Streams, events and functions themselves are in ``executor``, by number.
    ``pinned``: addresses of the host memory that the GPU reaches now."""

    executor: _native.CudaExecutor
    kernels: Kernels
    words: int
    functions: dict[int, Function] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)
