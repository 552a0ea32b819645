"""Sums, means and extrema of bags of embeddings, and their gradients.

How this works. A bag's indices follow each other: it goes from its offset to the next one's, the
first from zero, the last to the end. The padding's index does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import opmath, unpacker
from .embedding_sorted import Vectors, add_parts
from .names import dtype, template_arguments
from .raw import asserting, failed_assertion

_SUM, _MEAN = 0, 1


def _bag_sizes(offsets: Tensor, count: int) -> Tensor:
    starts = offsets.long()
    starts[:1] = 0
    sizes = torch.diff(starts, append=starts.new_tensor([count]))
    if bool((sizes < 0).any()):
        raise failed_assertion("offsets of bags that do not ascend")
    return sizes


def _bind_sum_mean(kernel: KernelInfo) -> Run:
    """EmbeddingBag_updateOutputKernel_sum_mean.

    Arguments: indices, offsets, weights, out, each index's bag (out), numbers of indices, bags and
    features, strides of the weights, mode, sizes of bags (out), factors of the indices, their
    stride, padding, rows.
    """
    kind, index = template_arguments(kernel.demangled, "EmbeddingBag_updateOutputKernel_sum_mean")
    element, vector = dtype(kind), Vectors(dtype(index))
    unpack = unpacker(kernel, "QQQQQqqqqqiQQqnq")

    def run(launch: Launch) -> None:
        (
            indices_at, offsets_at, weights, target, bags_at, count, bags, size, *steps,
            mode, sizes_at, factors, factor_step, padding, rows,
        ) = unpack(launch.args)  # fmt: skip
        if mode not in (_SUM, _MEAN):
            raise UnsupportedKernel(f"bags by mode {mode}")
        memory, view = launch.memory, launch.memory.view
        indices = vector(memory, indices_at, count)
        bag = torch.repeat_interleave(_bag_sizes(vector(memory, offsets_at, bags), count))
        values = view(weights, element, (rows, size), steps).index_select(0, indices)
        values = values.to(opmath(element))
        kept = indices != padding
        if factors:
            values *= view(factors, element, (count,), (factor_step,))[:, None]
        values.masked_fill_(~kept[:, None], 0)
        sums = values.new_zeros((bags, size)).index_add_(0, bag, values)
        sizes = torch.bincount(bag[kept], minlength=bags)
        if mode == _MEAN:
            sums /= sizes.clamp(min=1)[:, None]
        view(target, element, (bags, size), (size, 1)).copy_(sums)
        vector(memory, bags_at, count).copy_(bag)
        vector(memory, sizes_at, bags).copy_(sizes)

    return asserting(run)


def _bind_max(kernel: KernelInfo) -> Run:
    """EmbeddingBag_updateOutputKernel_max.

    Arguments: indices, offsets, weights, out, each index's bag (out), numbers of indices, bags and
    features, strides of the weights, sizes of bags (out), the greatest's index (out), padding,
    rows. An empty bag gives 0 of index -1.
    """
    kind, index = template_arguments(kernel.demangled, "EmbeddingBag_updateOutputKernel_max")
    element, vector = dtype(kind), Vectors(dtype(index))
    unpack = unpacker(kernel, "QQQQQqqqqqQQnq")

    def run(launch: Launch) -> None:
        (
            indices_at, offsets_at, weights, target, bags_at, count, bags, size, *steps,
            sizes_at, greatest_at, padding, rows,
        ) = unpack(launch.args)  # fmt: skip
        memory, view = launch.memory, launch.memory.view
        indices = vector(memory, indices_at, count)
        lengths = _bag_sizes(vector(memory, offsets_at, bags), count)
        bag = torch.repeat_interleave(lengths)
        values = view(weights, element, (rows, size), steps).index_select(0, indices)
        kept = indices != padding
        out = view(target, element, (bags, size), (size, 1))
        greatest = view(greatest_at, vector.index, (bags, size), (size, 1))
        pieces = zip(*(x.split(lengths.tolist()) for x in (values, indices, kept)), strict=True)
        for number, (piece, which, real) in enumerate(pieces):
            out[number], greatest[number] = _greatest(piece[real], which[real])
        vector(memory, bags_at, count).copy_(bag)
        vector(memory, sizes_at, bags).copy_(torch.bincount(bag[kept], minlength=bags))

    return asserting(run)


def _greatest(rows: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """By columns, the first of the greatest; NaN is never greater, nor is anything than NaN."""
    if len(rows) == 0:
        return rows.new_zeros(rows.shape[1]), indices.new_full((rows.shape[1],), -1)
    compared = rows.clone()
    compared[1:].masked_fill_(rows[1:].isnan(), -torch.inf)
    best = compared.amax(0)
    place = ((compared == best) | compared.isnan()).to(torch.uint8).argmax(0)
    return rows.gather(0, place[None])[0], indices[place]


def _bind_parts(kernel: KernelInfo) -> Run:
    """compute_grad_weight_bags: sums of parts of sorted indices, as compute_grad_weight.

    Arguments: order, gradient of bags, each index's bag, counts, rows, row size, whether means,
    sizes of bags, factors, their stride, parts' starts, their number, out.
    """
    kind, index = template_arguments(kernel.demangled, "compute_grad_weight_bags")
    element, vector = dtype(kind), Vectors(dtype(index))
    unpack = unpacker(kernel, "QQQQqqiQQqQQQx")

    def run(launch: Launch) -> None:
        (
            order_at, grad_at, bags_at, counts, count, size, means, sizes_at, factors, factor_step,
            starts_at, number_at, target,
        ) = unpack(launch.args)  # fmt: skip
        memory, view = launch.memory, launch.memory.view
        order = vector(memory, order_at, count).long()
        bag = vector(memory, bags_at, count)[order].long()
        bags = int(bag.max()) + 1
        grad = view(grad_at, element, (bags, size), (size, 1)).to(opmath(element))
        if means:
            grad = grad / vector(memory, sizes_at, bags)[:, None]
        values = grad.index_select(0, bag)
        if counts:
            values /= vector(memory, counts, count)[:, None]
        if factors:
            values *= view(factors, element, (count,), (factor_step,))[order][:, None]
        starts = vector(memory, starts_at, vector.count(memory, number_at))
        sums = add_parts(values, starts)
        view(target, sums.dtype, sums.shape, (size, 1)).copy_(sums)

    return run


def _bind_max_backward(kernel: KernelInfo) -> Run:
    """EmbeddingBag_accGradParametersKernel_max.

    Arguments: indices of the greatest, gradient, weights' gradient, row size, bags, padding, number
    of elements of the weights.
    """
    kind, index = template_arguments(kernel.demangled, "EmbeddingBag_accGradParametersKernel_max")
    element, index_type = dtype(kind), dtype(index)
    unpack = unpacker(kernel, "QQQqqnn")

    def run(launch: Launch) -> None:
        words_at, grad_at, target, size, bags, padding, total = unpack(launch.args)
        view = launch.memory.view
        words = view(words_at, index_type, (bags, size), (size, 1)).long()
        grad = view(grad_at, element, (bags, size), (size, 1))
        kept = (words >= 0) & (words != padding)
        added = torch.where(kept, grad, torch.zeros_like(grad))
        table = view(target, element, (total // size, size), (size, 1))
        table.scatter_add_(0, words.clamp(min=0), added)

    return asserting(run)


def _bind_factors_backward(kernel: KernelInfo) -> Run:
    """_embedding_bag_per_sample_weights_backward_kernel.

    Arguments: gradient, its strides, weights, their strides, indices, each index's bag, number of
    indices, features, out, padding.
    """
    name = "_embedding_bag_per_sample_weights_backward_kernel"
    kind, index = template_arguments(kernel.demangled, name)
    element, vector = dtype(kind), Vectors(dtype(index))
    unpack = unpacker(kernel, "QqqQqqQQqqQn")

    def run(launch: Launch) -> None:
        (
            grad_at, grad_step, grad_inner, weights, step, inner, indices_at, bags_at, count, size,
            target, padding,
        ) = unpack(launch.args)  # fmt: skip
        memory, view = launch.memory, launch.memory.view
        indices = vector(memory, indices_at, count).long()
        bag = vector(memory, bags_at, count).long()
        rows, bags = int(indices.max()) + 1, int(bag.max()) + 1
        grad = view(grad_at, element, (bags, size), (grad_step, grad_inner))[bag]
        table = view(weights, element, (rows, size), (step, inner))[indices]
        # Of 16-bit floats each product is rounded before it is added.
        sums = (grad * table).to(opmath(element)).sum(1)
        sums.masked_fill_(indices == padding, 0)
        view(target, element, (count,), (1,)).copy_(sums)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    ("EmbeddingBag_updateOutputKernel_sum_mean", _bind_sum_mean),
    ("EmbeddingBag_updateOutputKernel_max", _bind_max),
    ("compute_grad_weight_bags", _bind_parts),
    ("EmbeddingBag_accGradParametersKernel_max", _bind_max_backward),
    ("_embedding_bag_per_sample_weights_backward_kernel", _bind_factors_backward),
)
FAMILY: Family = [(re.compile(rf"\b{name}<"), binder) for name, binder in _BINDERS]
