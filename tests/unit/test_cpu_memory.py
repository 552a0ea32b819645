"""What the CPU device's memory answers to sizes and addresses that no session has."""

from __future__ import annotations

import pytest
import torch

from mnemosyne.server.devices.cpu.memory import CpuMemory, IllegalAddress


def test_an_empty_view_may_lie_anywhere() -> None:
    assert CpuMemory().view(64, torch.float32, (0, 5), (5, 1)).shape == (0, 5)


@pytest.mark.parametrize("sizes", [(1,), (0, 1 << 63), (1 << 64, 0)])
def test_a_view_of_something_or_of_an_impossible_size_may_not(sizes: tuple[int, ...]) -> None:
    with pytest.raises(IllegalAddress):
        CpuMemory().view(64, torch.float32, sizes, (1,) * len(sizes))
