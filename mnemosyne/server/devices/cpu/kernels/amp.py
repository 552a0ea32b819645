"""Loss scaling: how the scale of a GradScaler grows and falls."""

from __future__ import annotations

import math
import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker


def _bind_update_scale(kernel: KernelInfo) -> Run:
    """(scale, growth tracker, found infinite, growth factor, backoff factor, growth interval)."""
    unpack = unpacker(kernel, "QQQddi")

    def run(launch: Launch) -> None:
        scale_at, tracker_at, found_at, growth, backoff, interval = unpack(launch.args)
        view = launch.memory.view
        scale = view(scale_at, torch.float32, (), ())
        tracker = view(tracker_at, torch.int32, (), ())
        if view(found_at, torch.float32, (), ()).item():
            scale.mul_(backoff)
            tracker.zero_()
        elif tracker.item() + 1 < interval:
            tracker.add_(1)
        else:
            _grow(scale, growth)
            tracker.zero_()

    return run


def _grow(scale: torch.Tensor, factor: float) -> None:
    """A scale that would become infinite stays as it is."""
    grown = (scale * factor).item()
    if math.isfinite(grown):
        scale.fill_(grown)


FAMILY: Family = [(re.compile(r"\bamp_update_scale_cuda_kernel\("), _bind_update_scale)]
