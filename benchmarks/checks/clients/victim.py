"""Enqueues a chain of products that takes a known time, says so, and is killed meanwhile."""

from __future__ import annotations

import time

import talk
import torch

device = talk.device()
WIDTH = (
    8192 if device == "cuda" and torch.cuda.get_device_properties(0).total_memory > 40e9 else 768
)
TRIALS = 3


def launch(count: int, milliseconds: int) -> talk.Answer:
    """Take ``count`` bytes and enqueue work; ``ends``: when it will be done (monotonic clock)."""
    kept = torch.ones(count, dtype=torch.uint8, device=device)
    one, product = (torch.ones(WIDTH, WIDTH, device=device) for _ in range(2))
    torch.mm(one, one, out=product)
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(TRIALS):
        torch.mm(one, one, out=product)
    torch.cuda.synchronize()
    seconds = (time.monotonic() - start) / TRIALS
    launches = max(2, round(milliseconds / 1e3 / seconds))
    start = time.monotonic()
    for _ in range(launches):
        torch.mm(one, one, out=product)
    return {"launched": time.monotonic(), "ends": start + launches * seconds, "bytes": len(kept)}


talk.serve({"launch": launch})
