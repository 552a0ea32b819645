"""Fourier transforms: every kind, in each precision, of one to three dimensions and beyond."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

F = torch.fft
REAL = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums of a few dozen values, added up in another order."""
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=3e-5, check_stride=False)


def values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(sizes) + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=kind).to(device)


def _complex(kind: torch.dtype, axes: tuple[int, ...], norm: str) -> Case:
    def case(device: torch.device) -> Tensors:
        x = values(device, 3, 4, 6, 5, kind=kind)
        return [F.fftn(x, dim=axes, norm=norm), F.ifftn(x, dim=axes, norm=norm)]

    return case


def _real(kind: torch.dtype, axes: tuple[int, ...]) -> Case:
    def case(device: torch.device) -> Tensors:
        x = values(device, 3, 4, 6, 5, kind=kind)
        half = F.rfftn(x, dim=axes)
        return [half, F.irfftn(half, s=[x.shape[axis] for axis in axes], dim=axes)]

    return case


def _gradient(device: torch.device) -> Tensors:
    x = values(device, 4, 8).requires_grad_()
    torch.view_as_real(F.rfft2(x)).square().sum().backward()
    return [x.grad]


CASES: dict[str, Case] = {
    **{
        f"complex {kind} {axes} {norm}": _complex(kind, axes, norm)
        for kind in COMPLEX
        for axes in ((3,), (0,), (1, 3), (3, 1), (1, 2, 3), (0, 1, 2, 3))
        for norm in ("backward", "ortho", "forward")
    },
    **{
        f"real {kind} {axes}": _real(kind, axes)
        for kind in REAL
        for axes in ((3,), (1,), (2, 3), (0, 2), (1, 2, 3), (0, 1, 2, 3))
    },
    "of a transposed matrix": lambda d: [F.fft2(values(d, 6, 4).mT), F.rfft(values(d, 6, 4).mT)],
    "of every other element": lambda d: [F.fft(values(d, 4, 12)[:, ::2])],
    "padded and cut": lambda d: [F.fft(values(d, 3, 8), n=11), F.fft(values(d, 3, 8), n=5)],
    "Hermitian": lambda d: [F.hfft(values(d, 5, kind=torch.complex64)), F.ihfft(values(d, 3, 8))],
    "of a prime length": lambda d: [F.fft(values(d, 2, 31))],
    "gradient": _gradient,
    "short-time": lambda d: [
        torch.stft(values(d, 64), 16, window=torch.hann_window(16, device=d), return_complex=True)
    ],
    "convolution": lambda d: [F.irfft(F.rfft(values(d, 2, 16)) * F.rfft(values(d, 2, 16).flip(1)))],
}  # fmt: skip
