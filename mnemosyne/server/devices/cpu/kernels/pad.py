"""Padding by reflection and by replication, in one to three dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .axes import Accessor, select, select_backward
from .names import dtype, template_arguments
from .raw import raw_type

Tensor = torch.Tensor


def _reflected(size: int, before: int, out: int) -> Tensor:
    """For each element of the result, the element of the operand."""
    period = max(2 * (size - 1), 1)
    index = (torch.arange(out) - before).remainder(period)
    return torch.minimum(index, period - index) if size > 1 else torch.zeros_like(index)


def _replicated(size: int, before: int, out: int) -> Tensor:
    return (torch.arange(out) - before).clamp(0, size - 1)


def _bind_reflect_1d(kernel: KernelInfo) -> Run:
    """reflection_pad1d_out_kernel: (in, out, width, left, right); a row for each grid.y, grid.z."""
    element = raw_type(template_arguments(kernel.demangled, "reflection_pad1d_out_kernel")[0])
    unpack = unpacker(kernel, "QQqqq")

    def run(launch: Launch) -> None:
        source, out, width, left, right = unpack(launch.args)
        rows = launch.grid[1] * launch.grid[2]
        _reflect_rows(launch, element, (source, out), rows, width, left, width + left + right)

    return run


def _bind_reflect_flat(kernel: KernelInfo) -> Run:
    """reflection_pad1d_flat: (in, out, width, left, right, width of out, rows)."""
    element = raw_type(template_arguments(kernel.demangled, "reflection_pad1d_flat")[0])
    unpack = unpacker(kernel, "QQqqqqq")

    def run(launch: Launch) -> None:
        source, out, width, left, _, out_width, rows = unpack(launch.args)
        _reflect_rows(launch, element, (source, out), rows, width, left, out_width)

    return run


def _reflect_rows(
    launch: Launch, element: torch.dtype, ends: tuple[int, int], rows: int, width: int,
    left: int, out_width: int,
) -> None:  # fmt: skip
    view = launch.memory.view
    operand = view(ends[0], element, (rows, width), (width, 1))
    place = view(ends[1], element, (rows, out_width), (out_width, 1))
    place.copy_(select(operand, [_reflected(width, left, out_width)]))


def _bind_reflect_1d_backward(kernel: KernelInfo) -> Run:
    """reflection_pad1d_backward_out_kernel: (grad of in, grad, width, left, right); adds."""
    name = "reflection_pad1d_backward_out_kernel"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    unpack = unpacker(kernel, "QQqqq")

    def run(launch: Launch) -> None:
        target, grad, width, left, right = unpack(launch.args)
        rows = launch.grid[1] * launch.grid[2]
        _add_rows(launch, element, (target, grad), rows, width, left, width + left + right)

    return run


def _bind_reflect_flat_backward(kernel: KernelInfo) -> Run:
    """reflection_pad1d_backward_flat: (grad of in, grad, width, left, width of out, rows); adds."""
    element = dtype(template_arguments(kernel.demangled, "reflection_pad1d_backward_flat")[0])
    unpack = unpacker(kernel, "QQqqqq")

    def run(launch: Launch) -> None:
        target, grad, width, left, out_width, rows = unpack(launch.args)
        _add_rows(launch, element, (target, grad), rows, width, left, out_width)

    return run


def _add_rows(
    launch: Launch, element: torch.dtype, ends: tuple[int, int], rows: int, width: int,
    left: int, out_width: int,
) -> None:  # fmt: skip
    view = launch.memory.view
    place = view(ends[0], element, (rows, width), (width, 1))
    grad = view(ends[1], element, (rows, out_width), (out_width, 1))
    place.add_(select_backward(grad, [_reflected(width, left, out_width)], (width,)))


def _bind_reflect_2d(kernel: KernelInfo) -> Run:
    """reflection_pad2d_out_kernel, ..._backward_..., which adds.

    Arguments: in and out (backward: grad of in, grad), width, height, top, bottom, left, right;
    the first plane and batch of this launch, the planes of a batch.
    """
    backward = "reflection_pad2d_backward_out_kernel<" in kernel.demangled
    name = f"reflection_pad2d_{'backward_' * backward}out_kernel"
    kind = template_arguments(kernel.demangled, name)[0]
    element = dtype(kind) if backward else raw_type(kind)
    unpack = unpacker(kernel, "QQqqiiiiiii")

    def run(launch: Launch) -> None:
        inner, outer, w, h, top, bottom, left, right, *first, count = unpack(launch.args)
        oh, ow = h + top + bottom, w + left + right
        image = _planes(launch, inner, element, (h, w), first, count)
        padded = _planes(launch, outer, element, (oh, ow), first, count)
        indices = [_reflected(h, top, oh), _reflected(w, left, ow)]
        if backward:
            image.add_(select_backward(padded, indices, (h, w)))
        else:
            padded.copy_(select(image, indices))

    return run


def _planes(
    launch: Launch, pointer: int, element: torch.dtype, size: tuple[int, int],
    first: list[int], count: int,
) -> Tensor:  # fmt: skip
    """The planes of one launch: (batch, plane, height, width)."""
    (h, w), (plane, batch) = size, first
    start = pointer + (batch * count + plane) * h * w * element.itemsize
    sizes = (launch.grid[2], launch.grid[1], h, w)
    return launch.memory.view(start, element, sizes, (count * h * w, h * w, w, 1))


def _bind_replicate(kernel: KernelInfo) -> Run:
    """replication_pad_forward_kernel1d, 2d, 3d: accessors of in and out; see `_Accessors`."""
    name = re.search(r"replication_pad_forward_kernel\dd", kernel.demangled)
    assert name is not None
    element = raw_type(template_arguments(kernel.demangled, name[0])[0])
    accessors = _Accessors(kernel, _replicated)

    def run(launch: Launch) -> None:
        image, padded, indices = accessors.read(launch, element)
        padded.copy_(select(image, indices))

    return run


def _bind_replicate_backward(kernel: KernelInfo) -> Run:
    """replication_pad_backward_kernel: the same with gradients; adds."""
    element = dtype(template_arguments(kernel.demangled, "replication_pad_backward_kernel")[0])
    accessors = _Accessors(kernel, _replicated)

    def run(launch: Launch) -> None:
        image, padded, indices = accessors.read(launch, element)
        image.add_(select_backward(padded, indices, image.shape[2:]))

    return run


def _bind_reflect_3d(kernel: KernelInfo) -> Run:
    """reflection_pad3d_out_kernel, ..._backward_..., which adds: as replication, left first."""
    backward = "reflection_pad3d_backward_out_kernel<" in kernel.demangled
    name = f"reflection_pad3d_{'backward_' * backward}out_kernel"
    kind = template_arguments(kernel.demangled, name)[0]
    element = dtype(kind) if backward else raw_type(kind)
    accessors = _Accessors(kernel, _reflected, left_first=True)

    def run(launch: Launch) -> None:
        image, padded, indices = accessors.read(launch, element)
        if backward:
            image.add_(select_backward(padded, indices, image.shape[2:]))
        else:
            padded.copy_(select(image, indices))

    return run


class _Accessors:
    """Reads two accessors, the padding before each dimension, the first plane and batch."""

    def __init__(
        self, kernel: KernelInfo, index: Callable[[int, int, int], Tensor], left_first: bool = False
    ) -> None:
        self._starts = [offset for offset, _ in kernel.params[:2]]
        self._accessor = Accessor.of(kernel.params[0][1])
        dims = (kernel.params[0][1] - 8) // 16 - 2
        self._unpack = unpacker(kernel, "ss" + "n" * (dims + 2))
        self._index, self._step = index, -1 if left_first else 1

    def read(self, launch: Launch, element: torch.dtype) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The planes of this launch, small and padded, and for each dimension the index."""
        _, _, *before, plane, batch = self._unpack(launch.args)
        image, padded = (
            self._accessor.view(launch.args, start, launch.memory, element)[
                batch : batch + launch.grid[2], plane : plane + launch.grid[1]
            ]
            for start in self._starts
        )
        sizes = zip(image.shape[2:], before[:: self._step], padded.shape[2:], strict=True)
        return image, padded, [self._index(*size) for size in sizes]


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\breflection_pad1d_out_kernel<", _bind_reflect_1d),
        (r"\breflection_pad1d_flat<", _bind_reflect_flat),
        (r"\breflection_pad1d_backward_out_kernel<", _bind_reflect_1d_backward),
        (r"\breflection_pad1d_backward_flat<", _bind_reflect_flat_backward),
        (r"\breflection_pad2d_(backward_)?out_kernel<", _bind_reflect_2d),
        (r"\breflection_pad3d_(backward_)?out_kernel<", _bind_reflect_3d),
        (r"\breplication_pad_forward_kernel\dd<", _bind_replicate),
        (r"\breplication_pad_backward_kernel<", _bind_replicate_backward),
    )
]
