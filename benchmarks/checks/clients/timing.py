"""Times small operations and copies, in seconds for one of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import talk
import torch
from torch import Tensor

COPIES = 4  # in a row, of a bandwidth
device = talk.device()
synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None


def per_operation(operation: Callable[[], object], count: int) -> float:
    for _ in range(count // 10 + 1):
        operation()
    synchronize()
    start = time.perf_counter()
    for _ in range(count):
        operation()
    return time.perf_counter() - start


def first(count: int) -> talk.Answer:
    """The first operations of this process, there and back."""
    start = time.perf_counter()
    (torch.ones(count, device=device) * 2).sum().item()
    return {"seconds": time.perf_counter() - start}


def issue(count: int) -> talk.Answer:
    """``x.add_(1)`` on 64 floats, until the last call returns."""
    x = torch.zeros(64, device=device)
    answer = {"seconds": per_operation(lambda: x.add_(1), count) / count}
    synchronize()
    return answer


def item(count: int) -> talk.Answer:
    """``x.sum().item()``, there and back."""
    x = torch.zeros(64, device=device)
    return {"seconds": per_operation(lambda: x.sum().item(), count) / count}


def sync(count: int) -> talk.Answer:
    """Synchronising a stream on which there is nothing."""
    stream = torch.cuda.current_stream() if device == "cuda" else None
    wait = stream.synchronize if stream else lambda: None
    return {"seconds": per_operation(wait, count) / count}


def launch_sync(count: int) -> talk.Answer:
    """``x.add_(1)`` and waiting for it."""
    x = torch.zeros(64, device=device)

    def operation() -> None:
        x.add_(1)
        synchronize()

    return {"seconds": per_operation(operation, count) / count}


def to_device(count: int, pinned: bool) -> talk.Answer:
    return transfer(torch.empty(count, dtype=torch.uint8, device=device), on_host(count, pinned))


def to_host(count: int, pinned: bool) -> talk.Answer:
    return transfer(on_host(count, pinned), torch.ones(count, dtype=torch.uint8, device=device))


def on_host(count: int, pinned: bool) -> Tensor:
    """Bytes that are all there: touched, and pinned if asked."""
    key = (count, pinned)
    if key not in HOST:
        HOST[key] = torch.ones(count, dtype=torch.uint8)
        HOST[key] = HOST[key].pin_memory() if pinned else HOST[key]
    return HOST[key]


def transfer(target: Tensor, source: Tensor) -> talk.Answer:
    target.copy_(source, non_blocking=True)
    synchronize()
    start = time.perf_counter()
    for _ in range(COPIES):
        target.copy_(source, non_blocking=True)
    synchronize()
    return {"seconds": (time.perf_counter() - start) / COPIES}


HOST: dict[tuple[int, bool], Tensor] = {}
talk.serve({
    "first": first,
    "issue": issue,
    "item": item,
    "sync": sync,
    "launch_sync": launch_sync,
    "h2d_pinned": lambda count: to_device(count, True),
    "h2d_pageable": lambda count: to_device(count, False),
    "d2h_pinned": lambda count: to_host(count, True),
    "d2h_pageable": lambda count: to_host(count, False),
})  # fmt: skip
