"""cuDNN's spatial transformer on the CPU device: corners are the centres of the outermost pixels.

A grid is (batch, height, width, 2), its transformations (batch, 2, 3). Source: cudnn_ops.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from mnemosyne.server.devices.cpu.cudnn.graph import dtype_of
from mnemosyne.server.devices.cpu.cudnn.shapes import Shape, blend, fields, wide
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_BILINEAR = 0  # cudnnSamplerType_t


@dataclass(frozen=True, slots=True)
class _Transformer:
    """``sizes``: (batch, channels, height, width) of the output."""

    dtype: torch.dtype
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, raw: list[Any]) -> _Transformer:
        """From [sampler, type, sizes]. Raises ProtocolError and CallError."""
        sampler, kind, sizes = fields(raw, "a spatial transformer descriptor", [int, int, list])
        if sampler != _BILINEAR or len(sizes) != 4:
            raise CallError(NOT_SUPPORTED, f"a spatial transformer {sampler} of {sizes}")
        if any(n < 0 for n in sizes):
            raise CallError(INVALID_VALUE, f"a spatial transformer of {sizes}")
        return cls(dtype_of(kind), tuple(sizes))

    def grid(self, s: CpuSession, pointer: int) -> torch.Tensor:
        batch, _, height, width = self.sizes
        return self._dense(s, pointer, (batch, height, width, 2))

    def theta(self, s: CpuSession, pointer: int) -> torch.Tensor:
        return self._dense(s, pointer, (self.sizes[0], 2, 3))

    def _dense(self, s: CpuSession, pointer: int, sizes: tuple[int, ...]) -> torch.Tensor:
        strides = torch.empty(sizes, device="meta").stride()
        return s.memory.view(pointer, self.dtype, sizes, strides)

    def check(self, x: Shape, y: Shape) -> None:
        """Raises CallError unless x is sampled to y."""
        fits = y.sizes == self.sizes and len(x.sizes) == 4 and x.sizes[:2] == y.sizes[:2]
        if not fits or x.dtype is not self.dtype or y.dtype is not self.dtype:
            raise CallError(INVALID_VALUE, f"samples of {x.sizes} as {y.sizes}, not {self.sizes}")


def _grid(
    s: CpuSession, handle: int, stream: int, transformer: list[Any], theta: int, grid: int
) -> Outputs:
    s.check_cudnn(handle, stream)
    t = _Transformer.of(transformer)
    found = F.affine_grid(wide(t.theta(s, theta)), list(t.sizes), align_corners=True)
    t.grid(s, grid).copy_(found)
    return None


def _grid_backward(
    s: CpuSession, handle: int, stream: int, transformer: list[Any], dgrid: int, dtheta: int
) -> Outputs:
    s.check_cudnn(handle, stream)
    t = _Transformer.of(transformer)
    grad = wide(t.grid(s, dgrid))
    t.theta(s, dtheta).copy_(torch.ops.aten.affine_grid_generator_backward(grad, t.sizes, True))
    return None


def _sampler(
    s: CpuSession, handle: int, stream: int, transformer: list[Any], alpha: float, beta: float,
    x_desc: list[Any], x: int, grid: int, y_desc: list[Any], y: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    t, image, out = _Transformer.of(transformer), Shape.of(x_desc), Shape.of(y_desc)
    t.check(image, out)
    found = F.grid_sample(wide(image.at(s, x)), wide(t.grid(s, grid)), align_corners=True)
    blend(out.at(s, y), found, alpha, beta)
    return None


def _sampler_backward(
    s: CpuSession, handle: int, stream: int, transformer: list[Any], alpha: float, beta: float,
    alpha_grid: float, beta_grid: float, x_desc: list[Any], x: int, dx_desc: list[Any], dx: int,
    dy_desc: list[Any], dy: int, grid: int, dgrid: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    t, image, out = _Transformer.of(transformer), Shape.of(x_desc), Shape.of(dy_desc)
    t.check(image, out)
    grad_image, grad_grid = torch.ops.aten.grid_sampler_2d_backward(
        wide(out.at(s, dy)), wide(image.at(s, x)), wide(t.grid(s, grid)), 0, 0, True, [True, True]
    )
    result = Shape.of(dx_desc)
    if result.sizes != image.sizes:
        raise CallError(INVALID_VALUE, f"a gradient of {result.sizes} for {image.sizes}")
    blend(result.at(s, dx), grad_image, alpha, beta)
    blend(t.grid(s, dgrid), grad_grid, alpha_grid, beta_grid)
    return None


HANDLERS: Handlers = {
    "cudnn_grid": _grid,
    "cudnn_grid_backward": _grid_backward,
    "cudnn_sampler": _sampler,
    "cudnn_sampler_backward": _sampler_backward,
}
