"""Holds memory whose every word it can verify, and does a small operation when asked."""

from __future__ import annotations

import time

import talk
import torch
from torch import Tensor

BLOCK = 256 << 20  # bytes of one tensor
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: every word of a block differs

device = talk.device()
blocks: list[Tensor] = []


def pattern(number: int, words: int) -> Tensor:
    """Block ``number``: words (words,), int64, that depend on their place and the block."""
    return (torch.arange(words, device=device) + number * BLOCK) * FACTOR


def hold(count: int) -> talk.Answer:
    """Fill ``count`` bytes, or three quarters of what is free if that is less."""
    if device == "cuda":
        count = min(count, torch.cuda.mem_get_info()[0] * 3 // 4)
    while count >= 8:
        blocks.append(pattern(len(blocks), min(count, BLOCK) // 8))
        count -= min(count, BLOCK)
    return {"held": sum(block.nbytes for block in blocks)}


def verify() -> talk.Answer:
    """Count the words that are not what they were."""
    wrong = sum(
        int((block != pattern(number, len(block))).sum()) for number, block in enumerate(blocks)
    )
    return {"wrong": wrong}


def first() -> talk.Answer:
    """A first operation, there and back; when it was done, by the machine's monotonic clock."""
    value = (torch.ones(64, device=device) * 2).sum().item()
    return {"first": time.monotonic(), "value": value}


talk.serve({"hold": hold, "verify": verify, "first": first})
