"""Item limits: what a client is told of memory and device, and what happens at its quota."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.checks.context import CLIENTS, NO_GPU, Context, attempt, attempts
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.server import Server
from mnemosyne.server.options import parse_size

QUOTA = CLIENTS / "quota.py"
TAKEN = 64 << 20
MESSAGE = re.compile(
    r"CUDA out of memory\. Tried to allocate [\d.]+ \w+\. GPU 0 has a total capacity of "
    r"(?P<total>[\d.]+ \w+) of which [\d.]+ \w+ is free\."
)
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def run(context: Context) -> Iterator[Check]:
    quota = parse_size(context.scale.quota)
    with context.server("--clients", "2", "--memory-per-client", context.scale.quota) as server:
        with context.program(server, QUOTA) as program:
            told = program.ask("tell", "total")
            yield check_information(told, program.ask(f"take {TAKEN}", "bytes"), quota)
            yield check_properties(context, told["properties"])
            yield from attempts(
                "beyond the quota",
                lambda: check_exceeding(program.ask("exceed", "message"), quota),
            )
        for how, count, environment in (
            ("through the cache", context.scale.cycles // 10, {}),
            ("without cache", context.scale.cycles, UNCACHED),
        ):
            look = partial(check_cycles, context, server, how, count, environment)
            yield attempt(f"allocate and free {how}", look)


def check_information(told: dict[str, Any], taken: dict[str, Any], quota: int) -> Check:
    """mem_get_info tells the quota; what is taken shows there and in memory_stats."""
    seen = told["free"] - taken["free"]
    figure = f"total {told['total'] >> 20} MiB, quota {quota >> 20}; {seen >> 20} MiB less are free"
    figure += f" with {TAKEN >> 20} taken"
    exact = told["total"] == taken["total"] == quota and taken["allocated"] == TAKEN
    return judged("mem_get_info, memory_stats", exact and seen >= TAKEN, figure)


def check_properties(context: Context, ours: dict[str, Any]) -> Check:
    name = "get_device_properties"
    if not context.on_gpu:
        return skipped(name, f"{NO_GPU} to compare with; {ours['name']}")
    with context.program(None, QUOTA) as native:
        real = native.ask("tell", "total")["properties"]
    differing = {key: (ours[key], real[key]) for key in real if ours[key] != real[key]}
    return judged(
        name, not differing, f"as natively: {ours['name']}" if not differing else f"{differing}"
    )


def check_exceeding(found: dict[str, Any], quota: int) -> Iterator[Check]:
    match = MESSAGE.search(found["message"])
    total = match["total"] if match else ""
    yield judged("message beyond the quota", total == readable(quota), found["message"][:110])
    free = found["total"] - found["free"] == 0 == found["reserved"]
    figure = f"{found['held']} blocks taken again, {found['wrong']} wrong, all free: {free}"
    yield judged(
        "recovery by empty_cache", free and found["held"] > 0 and found["wrong"] == 0, figure
    )


def readable(count: int) -> str:
    """A size as PyTorch writes it."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def check_cycles(
    context: Context, server: Server, how: str, count: int, environment: dict[str, str]
) -> Check:
    with context.program(server, QUOTA, **environment) as program:
        after = program.ask(f"cycle {count}", "cycles")
        status = server.used_bytes()[program.pid]
    left = {
        "mem_get_info": after["total"] - after["free"], "allocated": after["allocated"],
        "reserved": after["reserved"], "server": status,
    }  # fmt: skip
    figure = f"{count} cycles; left: {', '.join(f'{k} {v}' for k, v in left.items())}"
    return judged(f"allocate and free {how}", not any(left.values()), figure)
