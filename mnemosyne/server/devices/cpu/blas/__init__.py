"""cuBLAS on the CPU device: every routine of the specification as torch operations.

How this works: a routine is written once, for whatever type its matrices have, as a function of the
session, a ``Type`` and the call's fields. ``HANDLERS`` has one entry for each type that the
specification names.
"""

from __future__ import annotations

from functools import partial

from mnemosyne.api.cublas_routines import VARIANTS
from mnemosyne.server.devices.cpu.blas import batches, matrices, products, rotations, vectors
from mnemosyne.server.devices.cpu.blas.operands import Type
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Handlers, Outputs

_ROUTINES = {
    **vectors.ROUTINES, **rotations.ROUTINES, **matrices.ROUTINES, **products.ROUTINES,
    **batches.ROUTINES,
}  # fmt: skip


def _run(name: str, t: Type, s: CpuSession, handle: int, *values: int | bytes) -> Outputs:
    s.blas_handle(handle)
    return _ROUTINES[name](s, t, *values)


HANDLERS: Handlers = {
    **products.HANDLERS,
    **{
        call: partial(_run, routine, Type.of(element, letters))
        for call, (routine, letters, element) in VARIANTS.items()
    },
    "cublasDotEx": vectors.dot_ex,
}
