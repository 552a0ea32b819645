"""Fourier transforms, sparse matrices, and functions that PyTorch compiles when they are called."""

from __future__ import annotations

from collections.abc import Callable

import torch
from case import Setting, Step, Tensors, case, cases, gpu_only, randn, with_grads
from torch import Tensor, fft, nn

COMPLEX = torch.complex64


def window() -> Tensor:
    return torch.hann_window(64, device=Setting.device)


def stft() -> Tensor:
    return torch.stft(randn(2, 512), 64, window=window(), return_complex=True)


def half_rfft() -> Tensors:
    gpu_only("transforms of 16 bits")
    return [fft.rfft(randn(4, 64, dtype=torch.float16))]


FOURIER: dict[str, Callable[[], Tensors]] = {
    "fft": lambda: [fft.fft(randn(4, 60))],
    "fft of a prime length": lambda: [fft.fft(randn(4, 61, dtype=COMPLEX))],
    "fft of columns": lambda: [fft.fft(randn(60, 4), dim=0)],
    "ifft, orthonormal": lambda: [fft.ifft(randn(4, 60, dtype=COMPLEX), norm="ortho")],
    "rfft and irfft": lambda: [fft.irfft(fft.rfft(randn(4, 64))), fft.hfft(randn(4, 33))],
    "fft2": lambda: [fft.fft2(randn(2, 16, 24))],
    "fftn fp64": lambda: [fft.fftn(randn(8, 8, 8, dtype=torch.float64))],
    "rfft fp16": half_rfft,
    "gradient": lambda: with_grads(lambda x: torch.view_as_real(fft.rfft(x)), randn(4, 64)),
    "stft and istft": lambda: [stft(), torch.istft(stft(), 64, window=window())],
}


@cases({f"fft: {name}": (name,) for name in FOURIER})
def fourier(name: str) -> Step:
    return lambda: FOURIER[name]()


def holey() -> Tensor:
    """Three numbers out of ten are not zero."""
    return (randn(32, 48) - 0.5).relu()


def csr() -> Tensor:
    return holey().to_sparse_csr()


def coo() -> Tensor:
    return holey().to_sparse()


def triangle() -> Tensor:
    return (torch.eye(32) + torch.ones(32, 32).triu() / 10).to(Setting.device).to_sparse_csr()


def embedding() -> Tensors:
    layer = nn.Embedding(30, 8, sparse=True).to(Setting.device)
    layer(torch.arange(0, 30, 3, device=Setting.device)).square().sum().backward()
    torch.optim.SparseAdam(layer.parameters()).step()
    assert layer.weight.grad is not None
    return [layer.weight, layer.weight.grad.to_dense()]


SPARSE: dict[str, Callable[[], Tensors]] = {
    "coo by dense": lambda: [torch.sparse.mm(coo(), randn(48, 8))],
    "csr by dense": lambda: [csr() @ randn(48, 8)],
    "csr by vector": lambda: [csr() @ randn(48)],
    "csr by csr": lambda: [(csr() @ holey().t().to_sparse_csr()).to_dense()],
    "coo by coo": lambda: [torch.sparse.mm(coo(), holey().t().to_sparse()).to_dense()],
    "bsr by dense": lambda: [holey().to_sparse_bsr((16, 16)) @ randn(48, 16)],
    "sampled_addmm": lambda: [
        torch.sparse.sampled_addmm(csr(), randn(32, 8), randn(8, 48)).to_dense()
    ],
    "coo sum": lambda: [(coo() + coo()).coalesce().to_dense()],
    "csr sum": lambda: [(csr() + csr()).to_dense()],
    "softmax": lambda: [torch.sparse.softmax(coo(), 1).to_dense()],
    "gradient": lambda: with_grads(lambda x: torch.sparse.mm(coo(), x), randn(48, 8)),
    "embedding with SparseAdam": embedding,
    "triangular_solve": lambda: [
        torch.triangular_solve(randn(32, 2), triangle(), upper=True).solution
    ],
}


@cases({f"sparse: {name}": (name,) for name in SPARSE})
def sparse(name: str) -> Step:
    return lambda: SPARSE[name]()


@case("sparse: two of four")
def semi_structured() -> Tensors:
    gpu_only("such sparsity")
    from torch.sparse import to_sparse_semi_structured

    kept = torch.tensor([0, 0, 1, 1], dtype=torch.float16, device="cuda").tile(128, 32)
    weight = (kept * randn(128, 128, dtype=torch.float16)).contiguous()
    return [to_sparse_semi_structured(weight) @ randn(128, 64, dtype=torch.float16)]


def line(begin: float, end: float) -> Tensor:
    return torch.linspace(begin, end, 1000).to(Setting.device)


ONE = (
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "modified_bessel_i0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "spherical_bessel_j0", "i1e", "ndtri", "log_ndtr", "erfcx",
)  # fmt: skip
TWO = ("zeta", "chebyshev_polynomial_t", "hermite_polynomial_h", "laguerre_polynomial_l")


@cases({f"special.{name}": (name,) for name in ONE})
def of_one(name: str) -> Step:
    return lambda: [getattr(torch.special, name)(line(0.1, 0.9))]


@cases({f"special.{name}": (name,) for name in TWO})
def of_two(name: str) -> Step:
    three = torch.tensor(3.0).to(Setting.device)
    return lambda: [getattr(torch.special, name)(line(1.5, 4), three)]


@cases({"gcd": (torch.gcd,), "lcm": (torch.lcm,)})
def of_integers(function: Callable[[Tensor, Tensor], Tensor]) -> Step:
    numbers = torch.arange(1, 100).to(Setting.device)
    return lambda: [function(numbers, numbers.flip(0))]


@case("complex functions")
def complex_functions() -> Tensors:
    x = randn(1000, dtype=COMPLEX)
    found = [x.exp(), x.tanh(), x.abs(), x.sigmoid(), x.reciprocal(), x.sum(), x.sqrt()]
    return [*found, (x / 4).exp().prod()]


@case("a jiterated function of one's own")
def jiterated() -> Tensors:
    gpu_only("jiterator")
    source = "template <typename T> T mine(T x, T y, T alpha) { return alpha * x * x + y; }"
    mine = torch.cuda.jiterator._create_jit_fn(source, alpha=2.0)
    return [mine(randn(100), randn(100)), mine(randn(100), randn(100), alpha=3.0)]
