"""Asks what the device has, takes more than that, and allocates and frees many times."""

from __future__ import annotations

import talk
import torch

SIZES = (1, 512, 4 << 10, 1 << 20, 4 << 20, 20 << 20)  # bytes of what is allocated in turn


def tell() -> talk.Answer:
    """Memory that is free and in all, what the allocator counts, and the device's properties."""
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    stats = torch.cuda.memory_stats()
    return {
        "free": free,
        "total": total,
        "allocated": stats.get("allocated_bytes.all.current", 0),
        "reserved": stats.get("reserved_bytes.all.current", 0),
        "properties": {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "processors": properties.multi_processor_count,
            "memory": properties.total_memory,
            "uuid": str(properties.uuid),
        },
    }


def take(count: int) -> talk.Answer:
    """What the allocator counts while a tensor of ``count`` bytes lives."""
    kept = torch.empty(count, dtype=torch.uint8, device="cuda")
    return {"bytes": len(kept), **tell()}


def exceed() -> talk.Answer:
    """Allocate until memory is over; what that raised, and what can be had again afterwards."""
    size = torch.cuda.mem_get_info()[1] // 8
    kept = []
    try:
        while True:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        message = str(error)
    held = len(kept) - 1  # sums need memory as well
    kept.clear()
    torch.cuda.empty_cache()
    again = [torch.ones(size // 8, dtype=torch.int64, device="cuda") for _ in range(held)]
    wrong = sum(int(one.sum() != size // 8) for one in again)
    again.clear()
    torch.cuda.empty_cache()
    return {"message": message, "held": held, "wrong": wrong, **tell()}


def cycle(count: int) -> talk.Answer:
    """Allocate and free, through cudaMalloc every time; what is counted afterwards."""
    for number in range(count):
        one = torch.empty(SIZES[number % len(SIZES)], dtype=torch.uint8, device="cuda")
        del one
        torch.cuda.empty_cache()
    return {"cycles": count, **tell()}


talk.device()
talk.serve({"tell": tell, "take": take, "exceed": exceed, "cycle": cycle})
