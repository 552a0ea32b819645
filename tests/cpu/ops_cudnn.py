"""What PyTorch computes with calls of cuDNN's older API: CTC losses and sampled images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]
STEPS, BATCH, LETTERS = 12, 4, 6
LABELS = [1, 2, 2, 3, 4, 5, 1, 3]
LABEL_LENGTHS = [3, 0, 4, 1]


def _randn(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator).to(kind).to(device)


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def ctc(input_lengths: Sequence[int], on_device: bool, reduction: str = "none") -> Case:
    """``on_device``: labels and lengths are tensors there, else they come from the host."""

    def case(device: torch.device) -> Tensors:
        x = _randn(device, STEPS, BATCH, LETTERS).requires_grad_()
        labels, lengths = _int32(LABELS), (list(input_lengths), LABEL_LENGTHS)
        if on_device:
            labels, lengths = labels.to(device), tuple(_int32(n).to(device) for n in lengths)
        loss = F.ctc_loss(x.log_softmax(2), labels, *lengths, reduction=reduction)
        loss.sum().backward()
        assert x.grad is not None
        return [loss.detach(), x.grad]

    return case


def impossible_ctc(device: torch.device) -> Tensors:
    """Three equal letters need five steps; the sample counts for nothing."""
    x = _randn(device, 4, 2, 5).requires_grad_()
    lengths = [4, 4], [3, 2]
    loss = F.ctc_loss(
        x.log_softmax(2), _int32([2, 2, 2, 1, 3]), *lengths, reduction="sum", zero_infinity=True
    )
    loss.backward()
    assert x.grad is not None
    return [loss.detach(), x.grad]


def is_taken(device: torch.device) -> Tensors:
    """The cases above are cuDNN's."""
    if device.type == "cpu":
        return [torch.tensor([True, True])]
    x, labels = _randn(device, STEPS, BATCH, LETTERS), _int32(LABELS)
    lengths = [STEPS] * BATCH, LABEL_LENGTHS
    tensors = [_int32(n).to(device) for n in lengths]
    taken = [
        torch._use_cudnn_ctc_loss(x, labels, *lengths, 0),
        torch._use_cudnn_ctc_loss(x, labels.to(device), *tensors, 0),
    ]
    return [torch.tensor(taken)]


def sample(kind: torch.dtype, channels_last: bool = False) -> Case:
    def case(device: torch.device) -> Tensors:
        image = _randn(device, 2, 3, 5, 4, kind=kind)
        if channels_last:
            image = image.contiguous(memory_format=torch.channels_last)
        image.requires_grad_()
        grid = (1.3 * _randn(device, 2, 6, 7, 2, kind=kind)).requires_grad_()
        result = F.grid_sample(image, grid, align_corners=True)
        (result * _randn(device, *result.shape, kind=kind)).sum().backward()
        assert image.grad is not None
        assert grid.grad is not None
        return [result.detach(), image.grad, grid.grad]

    return case


def affine_grid(device: torch.device) -> Tensors:
    theta = _randn(device, 2, 2, 3).requires_grad_()
    if device.type == "cpu":
        grid = F.affine_grid(theta, [2, 3, 5, 6], align_corners=True)
    else:
        grid = torch.cudnn_affine_grid_generator(theta, 2, 3, 5, 6)
    (grid * _randn(device, *grid.shape)).sum().backward()
    assert theta.grad is not None
    return [grid.detach(), theta.grad]


CASES: dict[str, Case] = {
    "ctc, host": ctc([STEPS] * BATCH, on_device=False),
    "ctc, host, mean": ctc([STEPS] * BATCH, on_device=False, reduction="mean"),
    "ctc, device": ctc([STEPS, 9, 8, 11], on_device=True),
    "ctc, device, mean": ctc([STEPS, 9, 8, 11], on_device=True, reduction="mean"),
    "ctc, impossible": impossible_ctc,
    "ctc, is taken": is_taken,
    "grid_sample": sample(torch.float32),
    "grid_sample, float64": sample(torch.float64),
    "grid_sample, channels last": sample(torch.float32, channels_last=True),
    "affine grid": affine_grid,
}
