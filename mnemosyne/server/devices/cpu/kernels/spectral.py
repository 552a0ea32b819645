"""What PyTorch adds to cuFFT and cuSOLVER: mirrored halves, complex eigenvectors.

Sources: SpectralOps.cu, LinearAlgebraEigMakeComplexEigenvectors of ATen/native/cuda.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import pointed_types, unpacker
from .structs import MAX_DIMS, OffsetCalculator

#: HermitianSymmetryOffsetCalculator<unsigned int> is one of one tensor, and a mask.
_HALVES = OffsetCalculator(1)


def _strided(
    launch: Launch, pointer: int, kind: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """A view whose strides may be negative: those axes are the wrong way round in it."""
    first = pointer + kind.itemsize * sum(
        (size - 1) * step for size, step in zip(sizes, strides, strict=True) if step < 0
    )
    return launch.memory.view(first, kind, sizes, [abs(step) for step in strides])


def _backwards(strides: Sequence[int]) -> list[int]:
    return [axis for axis, step in enumerate(strides) if step < 0]


def _bind_mirror(kernel: KernelInfo) -> Run:
    """_fft_conjugate_copy_kernel: (elements, out, source, where to read, where to write).

    In a mirrored axis, what is read at i goes to (n - i) % n.
    """
    kind = pointed_types(kernel, "_fft_conjugate_copy_kernel")[0]
    unpack = unpacker(kernel, "qQQss")
    reads, writes = kernel.params[3][0], kernel.params[4][0]
    if (kernel.params[3][1], kernel.params[4][1]) != (_HALVES.size, _HALVES.size + 4):
        raise UnsupportedKernel("offset calculators of another layout")
    mask_at = writes + _HALVES.size

    def run(launch: Launch) -> None:
        _, out, source, _, _ = unpack(launch.args)
        read, write = (_HALVES.read(launch.args, at) for at in (reads, writes))
        (mask,) = struct.unpack_from("<I", launch.args, mask_at)
        found = _strided(launch, source, kind, read.sizes, read.strides[0])
        found = found.flip(_backwards(read.strides[0])).conj().reshape(write.sizes)
        last = len(write.sizes) - 1
        axes = [last - d for d in range(MAX_DIMS) if mask >> d & 1]
        mirrored = found.flip(axes).roll([1] * len(axes), axes) if axes else found
        place = _strided(launch, out, kind, write.sizes, write.strides[0])
        place.copy_(mirrored.flip(_backwards(write.strides[0])))

    return run


def _bind_eigenvectors(kernel: KernelInfo) -> Run:
    """linalg_eig_make_complex_eigenvectors_kernel: (out, values, vectors, batch, n, step).

    Of a conjugate pair, the first column holds the real parts and the second the imaginary ones.
    """
    name = "linalg_eig_make_complex_eigenvectors_kernel"
    complex_kind, _, real_kind = pointed_types(kernel, name)
    unpack = unpacker(kernel, "QQQqqq")

    def run(launch: Launch) -> None:
        out, values, vectors, batch, n, step = unpack(launch.args)
        view, sizes, steps = launch.memory.view, (batch, n, n), (step, n, 1)
        found = view(values, complex_kind, (batch, n, 1), (n, 1, 1))
        packed = view(vectors, real_kind, sizes, steps)  # a row is a vector
        first = found.imag > 0
        real = torch.where(found.imag < 0, packed.roll(1, 1), packed)
        imag = torch.where(first, packed.roll(-1, 1), torch.where(found.imag < 0, -packed, 0))
        view(out, complex_kind, sizes, steps).copy_(torch.complex(real, imag))

    return run


FAMILY: Family = [
    (re.compile(r"_fft_conjugate_copy_kernel<"), _bind_mirror),
    (re.compile(r"linalg_eig_make_complex_eigenvectors_kernel<"), _bind_eigenvectors),
]
