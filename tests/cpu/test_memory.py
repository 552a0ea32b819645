"""Memory: copies of every size and way, quotas, and what a pointer is said to be."""

from __future__ import annotations

import pytest
from conftest import Nursery, Server, wait_until

SIZES = [1, 3, 4096, 4097, 8192, 8193, 1 << 20, (8 << 20) + 5, (70 << 20) + 1]


@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
def test_copies_bring_back_what_was_sent(server: Server, nursery: Nursery, pinned: bool) -> None:
    code = f"""
import torch
for size in {SIZES}:
    source = torch.randint(0, 256, (size,), dtype=torch.uint8)
    if {pinned}: source = source.pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device="cuda").copy_(source, non_blocking={pinned})
    second = there.clone()
    back = torch.empty(size, dtype=torch.uint8, pin_memory={pinned})
    back.copy_(second, non_blocking={pinned})
    torch.cuda.synchronize()
    assert torch.equal(back, source), size
    del source, there, second, back
print("same")
"""
    assert nursery.output(server, code) == "same"


def test_more_than_the_quota_is_out_of_memory_and_the_client_recovers(
    own_server, nursery: Nursery
) -> None:
    server = own_server("--clients", "2", "--memory-per-client", "256MiB")
    code = """
import torch
free, total = torch.cuda.mem_get_info()
assert total == 256 << 20, total
kept = torch.ones(1 << 20, device="cuda")
try:
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print("out of memory" in str(error))
x = torch.zeros(100 << 20, dtype=torch.uint8, device="cuda")
print(kept.sum().item() == 1 << 20)
del x; torch.cuda.empty_cache()
print(torch.cuda.mem_get_info()[0] >= free - (32 << 20))
"""
    assert nursery.output(server, code).split() == ["True"] * 3


def test_new_memory_of_another_client_is_clean(own_server, nursery: Nursery) -> None:
    server = own_server("--clients", "1")
    made = "import torch; x = torch.{}, dtype=torch.uint8, device='cuda'); print(x.cpu().sum())"
    assert nursery.output(server, made.format("full((8 << 20,), 7")) == f"tensor({7 * (8 << 20)})"
    assert wait_until(lambda: server.sessions() == [])
    assert nursery.output(server, made.format("empty((8 << 20,)")) == "tensor(0)"


def test_events_tell_the_time_between_them(server: Server, nursery: Nursery) -> None:
    code = """
import torch
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
x = torch.ones(1 << 20, device="cuda")
start.record()
for _ in range(20): x.mul_(1.0)
end.record()
end.synchronize()
print(start.query(), end.query(), 0 < start.elapsed_time(end) < 60_000)
"""
    assert nursery.output(server, code) == "True True True"


def test_a_bad_launch_is_reported_at_the_call(server: Server, nursery: Nursery) -> None:
    code = """
import ctypes, torch
torch.zeros(1, device="cuda")
runtime = ctypes.CDLL(None)
bad_free = runtime.cudaFree(ctypes.c_void_p(0x1234))
print(bad_free, runtime.cudaStreamSynchronize(ctypes.c_void_p(0x999)))
"""
    assert nursery.output(server, code) == "1 400"
