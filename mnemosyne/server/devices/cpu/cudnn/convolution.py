"""Convolutions of cuDNN graphs: forward, and the gradients of image and filter.

Tensors are (batch, channels, ...) and (filters, channels of a group, ...) in any memory layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from mnemosyne.server.devices.cpu.cudnn.content import Descriptor
from mnemosyne.server.devices.cpu.cudnn.graph import (
    Builder,
    Step,
    Tensor,
    Values,
    check_fit,
    compute_dtype,
)
from mnemosyne.server.errors import INVALID_VALUE, CallError

_CONVOLUTION = 1  # cudnnBackendDescriptorType_t
_COMPUTE, _MODE, _DILATIONS, _STRIDES, _AFTER, _BEFORE, _DIMS = range(100, 107)
_FLIPPED = 0  # cudnnConvolutionMode_t: CUDNN_CONVOLUTION; otherwise cross-correlation


class Sized(Protocol):
    """A tensor's description."""

    @property
    def sizes(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Movement:
    """How the filter moves; ``before`` and ``after`` are zeros around the image."""

    compute: torch.dtype
    flipped: bool
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, d: Descriptor) -> Movement:
        """Raises CallError."""
        d.only(set(range(_COMPUTE, _DIMS + 1)))
        lists = [d.integers(name) for name in (_STRIDES, _DILATIONS, _BEFORE, _AFTER)]
        dims = d.integer(_DIMS)
        if d.kind != _CONVOLUTION or dims < 1 or any(len(one) != dims for one in lists):
            raise CallError(INVALID_VALUE, "a cuDNN convolution whose lists differ in length")
        return cls(compute_dtype(d.enum(_COMPUTE)), d.enum(_MODE) == _FLIPPED, *lists)

    def padded(self, image: torch.Tensor) -> torch.Tensor:
        """The image with zeros around it, where they differ between the sides."""
        pads = [n for pair in zip(self.before, self.after, strict=True) for n in pair[::-1]]
        return F.pad(image, pads[::-1]) if self.uneven else image

    def cut(self, image: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The gradient of the image, from that of the padded image."""
        for at, start in enumerate(self.before if self.uneven else (), 2):
            image = image.narrow(at, start, like.shape[at])
        return image

    @property
    def uneven(self) -> bool:
        return self.before != self.after

    @property
    def padding(self) -> tuple[int, ...]:
        return (0,) * len(self.before) if self.uneven else self.before

    def turned(self, weight: torch.Tensor) -> torch.Tensor:
        """The filter, as a cross-correlation takes it."""
        return weight.flip(tuple(range(2, weight.dim()))) if self.flipped else weight


#: Computes a result from the image, the filter and the output (or its gradient).
Compute = Callable[[Movement, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def forward(
    m: Movement, image: torch.Tensor, weight: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    return torch.convolution(
        m.padded(image), m.turned(weight), None, m.strides, m.padding, m.dilations, False,
        [0] * len(m.strides), _groups(image, weight),
    )  # fmt: skip


def image_gradient(
    m: Movement, image: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    found = _gradients(m, grad, m.padded(image), m.turned(weight), [True, False, False])[0]
    return m.cut(found, image)


def filter_gradient(
    m: Movement, image: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    return m.turned(_gradients(m, grad, m.padded(image), weight, [False, True, False])[1])


def _gradients(
    m: Movement, grad: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, wanted: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten.convolution_backward(
        grad, image, weight, None, m.strides, m.padding, m.dilations, False,
        [0] * len(m.strides), _groups(image, weight), wanted,
    )  # fmt: skip
    return found


def _groups(image: torch.Tensor, weight: torch.Tensor) -> int:
    return image.shape[1] // weight.shape[1]


def check_sizes(m: Movement, x: Sized, w: Sized, y: Sized) -> None:
    """Raises CallError unless image, filter and output fit together."""
    what = f"a convolution of {x.sizes} by {w.sizes} to {y.sizes}"
    check_fit(all(len(t.sizes) == len(m.strides) + 2 for t in (x, w, y)), what)
    check_fit(min(*w.sizes, *m.strides, *m.dilations) > 0 <= min(*m.before, *m.after), what)
    groups, rest = divmod(x.sizes[1], w.sizes[1])
    moves = zip(x.sizes[2:], w.sizes[2:], m.strides, m.dilations, m.before, m.after, strict=True)
    out = [
        (size + before + after - dilation * (width - 1) - 1) // stride + 1
        for size, width, stride, dilation, before, after in moves
    ]
    check_fit(groups > 0 == rest and w.sizes[0] % groups == 0, what)
    check_fit(y.sizes == (x.sizes[0], w.sizes[0], *out), what)


def _builder(first: int, names: tuple[int, int, int], result: int, compute: Compute) -> Builder:
    """``first``: the attribute alpha, before beta and the convolution; ``names``: x, w, y."""

    def build(d: Descriptor) -> Step:
        d.only({first, first + 1, first + 2, *names})
        movement = Movement.of(d.child(first + 2))
        alpha, beta = d.real(first, 1.0), d.real(first + 1, 0.0)
        tensors = tuple(Tensor.of(d.child(name)) for name in names)
        check_sizes(movement, *tensors)
        out = tensors[result]

        def run(values: Values) -> None:
            found = compute(movement, *(_wide(values, t, t is out, movement) for t in tensors))
            found = found if alpha == 1 else found * alpha
            values.write(out, found + beta * values.read(out) if beta else found)

        reads = tuple(t for t in tensors if t is not out)
        return Step((*reads, *((out,) if beta and out.virtual else ())), (out,), run)

    return build


def _wide(values: Values, t: Tensor, is_result: bool, m: Movement) -> torch.Tensor:
    """The operand; of the result only its sizes are looked at."""
    if is_result:
        return torch.empty(1, dtype=m.compute).expand(t.sizes)
    return values.read(t).to(m.compute)


BUILDERS = {
    10: _builder(700, (704, 703, 705), 2, forward),  # alpha 700, beta 701, convolution 702
    11: _builder(712, (716, 715, 717), 1, filter_gradient),
    12: _builder(706, (710, 709, 711), 0, image_gradient),
}
