"""The columns that convolutions are made of: what windows of an image see, and the way back.

How this works. A column is what lies at one place of a window, for all the places where the window
is put; so it is a strided part of the padded image. Images have two dimensions or three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, unpacker
from .names import dtype, template_arguments
from .structs import contiguous

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows are put on an image: one number for each of its dimensions."""

    sizes: Sizes
    kernel: Sizes
    padding: Sizes
    stride: Sizes
    dilation: Sizes
    places: Sizes

    @staticmethod
    def of(values: Sequence[int]) -> Windows:
        """From the kernels' arguments, which come in the order of the members."""
        dims = len(values) // 6
        return Windows(*(tuple(values[at : at + dims]) for at in range(0, len(values), dims)))

    def spanned(self) -> Sizes:
        """The sizes of what all windows together cover, from the padding on."""
        moves = zip(self.kernel, self.stride, self.dilation, self.places, strict=True)
        return tuple((n - 1) * step + gap * (k - 1) + 1 for k, step, gap, n in moves)

    def parts(self) -> Iterator[tuple[slice, ...]]:
        """For each place of a window, in order, what it sees: of channels and a spanned image."""
        moves = tuple(zip(self.stride, self.dilation, self.places, strict=True))
        for places in product(*(range(k) for k in self.kernel)):
            yield (
                slice(None),
                *(
                    slice(at * gap, at * gap + (n - 1) * step + 1, step)
                    for at, (step, gap, n) in zip(places, moves, strict=True)
                ),
            )

    def unfold(self, image: Tensor) -> Tensor:
        """(channels, *sizes) to (channels, places of a window, *places); zeros around the image."""
        padded = _framed(image, self.padding, self.spanned())
        return torch.stack([padded[part] for part in self.parts()], 1)

    def fold(self, columns: Tensor) -> Tensor:
        """(channels, places of a window, *places) to (channels, *sizes): what overlaps is added."""
        image = columns.new_zeros((len(columns), *self.spanned()))
        for number, part in enumerate(self.parts()):
            image[part] += columns[:, number]
        return _framed(image, tuple(-n for n in self.padding), self.sizes)


def _framed(image: Tensor, before: Sizes, sizes: Sizes) -> Tensor:
    """So many zeros before (or elements left out), and as many behind as the sizes need."""
    frame: list[int] = []
    for dim in reversed(range(len(sizes))):
        frame += [before[dim], sizes[dim] - before[dim] - image.shape[dim + 1]]
    return F.pad(image, frame)


def _view(launch: Launch, at: int, element: torch.dtype, *sizes: int) -> Tensor:
    return launch.memory.view(at, element, sizes, contiguous(sizes))


def _bind_columns(kernel: KernelInfo) -> Run:
    """im2col_kernel, vol2col_kernel: (n, image, sizes, kernel, ..., places, out)."""
    name, codes = ("vol2col", "i" * 18) if "vol2col" in kernel.demangled else ("im2col", "q" * 12)
    element = dtype(template_arguments(kernel.demangled, f"{name}_kernel")[0])
    unpack = unpacker(kernel, f"qQ{codes}Q")

    def run(launch: Launch) -> None:
        count, image, *values, out = unpack(launch.args)
        windows = Windows.of(values)
        channels = count // prod(windows.places)
        found = windows.unfold(_view(launch, image, element, channels, *windows.sizes))
        _view(launch, out, element, *found.shape).copy_(found)

    return run


def _bind_image(kernel: KernelInfo) -> Run:
    """col2im_kernel: (n, columns, sizes, kernel, ..., places, image)."""
    element = dtype(template_arguments(kernel.demangled, "col2im_kernel")[0])
    unpack = unpacker(kernel, "qQ" + "q" * 12 + "Q")

    def run(launch: Launch) -> None:
        count, columns, *values, image = unpack(launch.args)
        _add_up(launch, element, count, Windows.of(values), columns, image)

    return run


def _bind_volume(kernel: KernelInfo) -> Run:
    """vol2im_kernel: (n, columns, sizes, channels, kernel, ..., places, image)."""
    element = dtype(template_arguments(kernel.demangled, "vol2im_kernel")[0])
    unpack = unpacker(kernel, "qQ" + "I" * 19 + "Q")

    def run(launch: Launch) -> None:
        count, columns, *values, image = unpack(launch.args)
        windows = Windows.of([*values[:3], *values[4:]])
        _add_up(launch, element, count, windows, columns, image)

    return run


def _bind_images(kernel: KernelInfo) -> Run:
    """col2im_batched_kernel: (n, columns, their batch stride, batch, ..., image, its stride)."""
    element = dtype(template_arguments(kernel.demangled, "col2im_batched_kernel")[0])
    unpack = unpacker(kernel, "qQ" + "q" * 14 + "Qq")

    def run(launch: Launch) -> None:
        count, columns, step, batch, *values, image, image_step = unpack(launch.args)
        windows, size = Windows.of(values), element.itemsize
        for number in range(batch):
            source, target = columns + number * step * size, image + number * image_step * size
            _add_up(launch, element, count, windows, source, target)

    return run


def _add_up(
    launch: Launch, element: torch.dtype, count: int, windows: Windows, columns: int, image: int
) -> None:
    """One image of `count` elements from the columns at an address, summed as the kernels do."""
    channels = count // prod(windows.sizes)
    sizes = (channels, prod(windows.kernel), *windows.places)
    operand = _view(launch, columns, element, *sizes).to(opmath(element))
    _view(launch, image, element, channels, *windows.sizes).copy_(windows.fold(operand))


FAMILY: Family = [
    (re.compile(r"\b(im|vol)2col_kernel<"), _bind_columns),
    (re.compile(r"\bcol2im_kernel<"), _bind_image),
    (re.compile(r"\bvol2im_kernel<"), _bind_volume),
    (re.compile(r"\bcol2im_batched_kernel<"), _bind_images),
]
