"""Connectionist temporal classification, forward and backward (LossCTC.cu).

How this works. A target of L labels, with blanks around each, is a row of 2 L + 1 states. `alpha`
is the logarithm of the probability of all ways to a state at a time, `beta` of all ways from there
to the end; both are one recursion, run from either end. A sequence is shorter than the others by
states and times of probability zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import failed_assertion

_NEVER = -torch.inf


class _Lattice(NamedTuple):
    """States of all sequences: labels and what may be skipped (sequence, state); lengths."""

    labels: Tensor
    skips: Tensor
    times: Tensor
    states: Tensor


class _Kernel:
    """The types of a kernel, and readers of what its arguments point to."""

    def __init__(self, kernel: KernelInfo, name: str, codes: str) -> None:
        self.kind, self._index = (dtype(t) for t in template_arguments(kernel.demangled, name)[:2])
        self.unpack = unpacker(kernel, codes)

    def lattice(
        self, memory: Memory, lengths: tuple[int, int], targets: tuple[int, int, int],
        longest: int, blank: int, count: int,
    ) -> _Lattice:  # fmt: skip
        """`lengths` of inputs and targets; `targets`, where each one begins, and their stride."""
        times, sizes = (memory.view(at, torch.int64, (count,), (1,)) for at in lengths)
        starts = memory.view(targets[1], torch.int64, (count,), (1,))
        labels = torch.full((count, 2 * longest + 1), blank)
        for row, start, size in zip(labels, starts.tolist(), sizes.tolist(), strict=True):
            at = targets[0] + start * self._index.itemsize
            row[1 : 2 * size : 2] = memory.view(at, self._index, (size,), (targets[2],))
        if labels.numel() and int(labels.min()) < 0:
            raise failed_assertion("a negative label in ctc_loss")
        skips = torch.zeros_like(labels, dtype=torch.bool)
        skips[:, 2:] = labels[:, 2:] != labels[:, :-2]
        return _Lattice(labels, skips, times, 2 * sizes + 1)

    def view(
        self, memory: Memory, pointer: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> Tensor:
        return memory.view(pointer, self.kind, sizes, strides)


def _emitted(lattice: _Lattice, log_probs: Tensor) -> Tensor:
    """What each state emits at each time, (sequence, time, state), from (sequence, time, label)."""
    times, states = log_probs.shape[1], lattice.labels.shape[1]
    index = lattice.labels[:, None].expand(-1, times, -1)
    inside = torch.arange(times)[:, None] < lattice.times[:, None, None]
    inside = inside & (torch.arange(states) < lattice.states[:, None, None])
    return log_probs.gather(2, index).masked_fill(~inside, _NEVER)


def _ways(emitted: Tensor, skips: Tensor) -> Tensor:
    """The recursion: into a state from itself, the one before, or over a blank."""
    result = torch.full_like(emitted, _NEVER)
    result[:, :1, :2] = emitted[:, :1, :2]
    for time in range(1, emitted.shape[1]):
        before = result[:, time - 1]
        one, two = (_shifted(before, n) for n in (1, 2))
        all_ways = torch.stack((before, one, two.masked_fill(~skips, _NEVER)))
        result[:, time] = all_ways.logsumexp(0) + emitted[:, time]
    return result


def _shifted(values: Tensor, places: int) -> Tensor:
    return torch.nn.functional.pad(values, (places, 0), value=_NEVER)[:, : values.shape[1]]


def _reversed(lattice: _Lattice, values: Tensor) -> Tensor:
    """Every sequence's times and states in reverse order; its own inverse."""
    times = lattice.times[:, None] - 1 - torch.arange(values.shape[1])
    states = lattice.states[:, None] - 1 - torch.arange(values.shape[2])
    rows = torch.arange(len(values))[:, None, None]
    found = values[rows, times.clamp(min=0)[:, :, None], states.clamp(min=0)[:, None]]
    return found.masked_fill((times < 0)[:, :, None] | (states < 0)[:, None], _NEVER)


def _log_probs(
    kernel: _Kernel, memory: Memory, pointer: int, strides: Sequence[int], times: int,
    lattice: _Lattice,
) -> Tensor:  # fmt: skip
    """As (sequence, time, label); as many labels as the targets name."""
    by_time, by_sequence, by_label = strides
    labels = int(lattice.labels.max()) + 1 if lattice.labels.numel() else 0
    sizes = (len(lattice.times), times, labels)
    return kernel.view(memory, pointer, sizes, (by_sequence, by_time, by_label))


def _bind_alpha(kernel: KernelInfo) -> Run:
    """ctc_loss_log_alpha_gpu_kernel; also the loss.

    Arguments: alpha, log-probabilities, input lengths, times, targets, target lengths, longest
    target, loss, strides of log-probabilities (time, sequence, label) and alpha (sequence, time,
    state), where targets begin, their stride, sequences, the blank.
    """
    k = _Kernel(kernel, "ctc_loss_log_alpha_gpu_kernel", "QQQqQQqQ" + "q" * 6 + "Qqqq")

    def run(launch: Launch) -> None:
        alpha, probs, inputs, times, targets, lengths, longest, loss, *rest = k.unpack(launch.args)
        *strides, starts, stride, count, blank = rest
        memory = launch.memory
        where = (targets, starts, stride)
        lattice = k.lattice(memory, (inputs, lengths), where, longest, blank, count)
        log_probs = _log_probs(k, memory, probs, strides[:3], times, lattice)
        ways = _ways(_emitted(lattice, log_probs), lattice.skips)
        k.view(memory, alpha, ways.shape, strides[3:]).copy_(ways)
        k.view(memory, loss, (count,), (1,)).copy_(_loss(lattice, ways))

    return run


def _loss(lattice: _Lattice, ways: Tensor) -> Tensor:
    """Ways end in the last label or the blank behind it; without time only an empty target does."""
    rows, states = torch.arange(len(ways)), lattice.states - 1
    last = ways[rows, (lattice.times - 1).clamp(min=0)]
    label = last[rows, (states - 1).clamp(min=0)].masked_fill(states == 0, _NEVER)
    likelihood = torch.logaddexp(last[rows, states], label)
    untimed = torch.zeros_like(likelihood).masked_fill(states > 0, _NEVER)
    return -torch.where(lattice.times > 0, likelihood, untimed)


def _bind_beta(kernel: KernelInfo) -> Run:
    """ctc_loss_backward_log_beta_gpu_kernel: as for alpha, without the loss."""
    k = _Kernel(kernel, "ctc_loss_backward_log_beta_gpu_kernel", "QQQqQQq" + "q" * 6 + "Qqqq")

    def run(launch: Launch) -> None:
        beta, probs, inputs, times, targets, lengths, longest, *rest = k.unpack(launch.args)
        *strides, starts, stride, count, blank = rest
        memory = launch.memory
        where = (targets, starts, stride)
        lattice = k.lattice(memory, (inputs, lengths), where, longest, blank, count)
        log_probs = _log_probs(k, memory, probs, strides[:3], times, lattice)
        backward = _reversed(lattice, _emitted(lattice, log_probs))
        ways = _reversed(lattice, _ways(backward, _reversed_skips(lattice)))
        k.view(memory, beta, ways.shape, strides[3:]).copy_(ways)

    return run


def _reversed_skips(lattice: _Lattice) -> Tensor:
    """From a state backwards, what skips into the state two before."""
    states = lattice.states[:, None] - 1 - torch.arange(lattice.labels.shape[1])
    return lattice.skips.gather(1, (states + 2).clamp(0, lattice.labels.shape[1] - 1)) & (
        states + 2 < lattice.states[:, None]
    )


def _bind_collect(kernel: KernelInfo) -> Run:
    """ctc_loss_backward_collect_gpu_kernel: the gradient of all labels.

    Arguments: gradient, gradient of the loss and its stride, alpha, beta, log-probabilities, input
    lengths, times, targets, target lengths, longest target, loss, strides of gradient,
    log-probabilities (time, sequence, label), alpha, beta (sequence, time, state), where targets
    begin, their stride, sequences, labels, the blank, whether infinite losses count as zero.
    """
    codes = "QQqQQQQqQQqQ" + "q" * 12 + "Qqqqq?"
    k = _Kernel(kernel, "ctc_loss_backward_collect_gpu_kernel", codes)

    def run(launch: Launch) -> None:
        target, grad, step, alpha, beta, probs, inputs, times, *rest = k.unpack(launch.args)
        targets, lengths, longest, loss, *strides, starts, stride, count, labels, blank, zero = rest
        memory, where = launch.memory, (targets, starts, stride)
        lattice = k.lattice(memory, (inputs, lengths), where, longest, blank, count)
        states = (count, times, lattice.labels.shape[1])
        ways, place, log_probs = _paths(
            k, memory, (alpha, beta, target, probs), states, labels, strides
        )
        losses = k.view(memory, loss, (count,), (1,))[:, None, None]
        found = _collected(lattice, ways, log_probs, losses)
        scale = k.view(memory, grad, (count,), (step,))[:, None, None]
        outside = torch.arange(times)[:, None] >= lattice.times[:, None, None]
        if zero:
            outside = outside | (losses == torch.inf)
        place.copy_((found * scale).masked_fill(outside, 0))

    return run


def _paths(
    k: _Kernel, memory: Memory, pointers: tuple[int, ...], states: tuple[int, int, int],
    labels: int, strides: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """All paths through each state, where gradients go, and log-probabilities.

    ``pointers``: alpha, beta, gradient, log-probabilities; ``states``: their shape (sequence, time,
    state); ``strides``: of gradient, log-probabilities, alpha, beta, three each. The second and the
    third of the results are (sequence, time, label).
    """
    alpha, beta, target, probs = pointers
    count, times, _ = states
    ways = k.view(memory, alpha, states, strides[6:9]) + k.view(memory, beta, states, strides[9:])
    place, log_probs = (
        k.view(memory, at, (times, count, labels), strides[i : i + 3]).transpose(0, 1)
        for at, i in ((target, 0), (probs, 3))
    )
    return ways, place, log_probs


def _collected(lattice: _Lattice, ways: Tensor, log_probs: Tensor, loss: Tensor) -> Tensor:
    """Probabilities of labels, less those given the target: (sequence, time, label)."""
    inside = torch.arange(ways.shape[2]) < lattice.states[:, None, None]
    ways = ways.masked_fill(~inside, _NEVER)
    index = lattice.labels[:, None].expand_as(ways)
    most = torch.full_like(log_probs, _NEVER).scatter_reduce(2, index, ways, "amax")
    most = most.masked_fill(most == _NEVER, 0)
    shares = (ways - most.gather(2, index)).exp()
    sums = torch.zeros_like(log_probs).scatter_add(2, index, shares).log() + most
    return log_probs.exp() - (sums + loss - log_probs).exp()


def _bind_collect_labels(kernel: KernelInfo) -> Run:
    """ctc_loss_backward_collect_nonblank_gpu_kernel: subtracts what the labels take.

    Arguments: as of the other kernel, without times, longest target, labels and the blank.
    """
    codes = "QQqQQQQQQQ" + "q" * 12 + "Qqq?"
    k = _Kernel(kernel, "ctc_loss_backward_collect_nonblank_gpu_kernel", codes)

    def run(launch: Launch) -> None:
        target, grad, step, alpha, beta, probs, inputs, targets, *rest = k.unpack(launch.args)
        lengths, loss, *strides, starts, stride, count, zero = rest
        memory, where = launch.memory, (targets, starts, stride)
        sizes = memory.view(lengths, torch.int64, (count,), (1,))
        times = int(memory.view(inputs, torch.int64, (count,), (1,)).max())
        longest = int(sizes.max())
        lattice = k.lattice(memory, (inputs, lengths), where, longest, 0, count)
        labels, states = int(lattice.labels.max()) + 1, (count, times, 2 * longest + 1)
        ways, place, log_probs = _paths(
            k, memory, (alpha, beta, target, probs), states, labels, strides
        )
        losses = k.view(memory, loss, (count,), (1,))[:, None, None]
        scale = k.view(memory, grad, (count,), (step,))[:, None, None]
        inside = _emitted(lattice, log_probs)[:, :, 1::2] > _NEVER
        if zero:
            inside = inside & (losses != torch.inf)
        index = lattice.labels[:, None, 1::2].expand(-1, times, -1)
        taken = (ways[:, :, 1::2] + losses - log_probs.gather(2, index)).exp() * scale
        place.scatter_add_(2, index, -taken.masked_fill(~inside, 0))

    return run


def _bind_zero(kernel: KernelInfo) -> Run:
    """ctc_loss_zero_padded_gradients: (gradient, input lengths, strides, times, count, labels)."""
    kind = dtype(template_arguments(kernel.demangled, "ctc_loss_zero_padded_gradients")[0])
    unpack = unpacker(kernel, "QQqqqqqq")

    def run(launch: Launch) -> None:
        target, inputs, *strides, times, count, labels = unpack(launch.args)
        place = launch.memory.view(target, kind, (times, count, labels), strides)
        lengths = launch.memory.view(inputs, torch.int64, (count,), (1,))
        place.masked_fill_((torch.arange(times)[:, None] >= lengths)[..., None], 0)

    return run


FAMILY: Family = [
    (re.compile(r"\bctc_loss_log_alpha_gpu_kernel<"), _bind_alpha),
    (re.compile(r"\bctc_loss_backward_log_beta_gpu_kernel<"), _bind_beta),
    (re.compile(r"\bctc_loss_backward_collect_gpu_kernel<"), _bind_collect),
    (re.compile(r"\bctc_loss_backward_collect_nonblank_gpu_kernel<"), _bind_collect_labels),
    (re.compile(r"\bctc_loss_zero_padded_gradients<"), _bind_zero),
]
