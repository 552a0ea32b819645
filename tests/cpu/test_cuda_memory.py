"""Memory on the CUDA device: copies of every size and way, and what becomes of freed memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_server import CudaServer, Program

MIB = 1 << 20
#: Around what travels in a reply, in a frame, and in a piece of the staging area; and many pieces.
SIZES = [1, *(at + by for at in (4096, 8192, 2 * MIB) for by in (-1, 0, 1)), 40 * MIB]
Start = Callable[..., Program]

#: host -> device -> device -> host; synchronous copies go through the null stream.
COPIES = """
import random
class Host:
    def __init__(self, size, pin):
        self.pin, self.size = pin, size
        self.buffer = None if pin else ctypes.create_string_buffer(size)
        self.at = pinned(size) if pin else ctypes.addressof(self.buffer)
    def set(self, data): ctypes.memmove(self.at, data, self.size)
    def get(self): return ctypes.string_at(self.at, self.size)
    def free(self):
        if self.pin: ok(cuda.cudaFreeHost(c_void_p(self.at)))
def round_trip(size, seed, pin, wait, s=None):
    data = random.Random(seed).randbytes(size)
    source, back, there, second = Host(size, pin), Host(size, pin), malloc(size), malloc(size)
    source.set(data)
    for dst, src, kind in (there, source.at, H2D), (second, there, D2D), (back.at, second, D2H):
        if wait: ok(cuda.cudaMemcpy(c_void_p(dst), c_void_p(src), size_t(size), kind))
        else: copy(dst, src, size, kind, s)
    if not wait: ok(cuda.cudaStreamSynchronize(s))
    same = back.get() == data
    for p in there, second: free(p)
    for h in source, back: h.free()
    return same
def in_threads(count, work):
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(work(n))) for n in range(count)]
    for t in threads: t.start()
    for t in threads: t.join()
    return results
"""


@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "in a stream"])
@pytest.mark.parametrize("pin", [False, True], ids=["pageable", "pinned"])
def test_copies_bring_back_what_was_sent(start: Start, pin: bool, wait: bool) -> None:
    client = start(COPIES)
    client.do("s = stream(NON_BLOCKING)")
    for size in SIZES:
        assert client.get(f"round_trip({size}, {size}, {pin}, {wait}, s)"), size


def test_threads_copy_at_once_through_one_staging_area(start: Start) -> None:
    client = start(COPIES)
    client.do(f"""
sizes = {[4097, 8193, 2 * MIB - 1, 5 * MIB]}
def work(n):
    s = stream(NON_BLOCKING)
    return all(round_trip(size, n, n % 4 == 3, False, s) for size in sizes * 2)
""")
    assert client.get("in_threads(6, work)") == [True] * 6


def test_pinned_memory_is_the_hosts_again_after_an_event(start: Start) -> None:
    client = start(COPIES)
    client.do("""
s, e, gate, size = stream(NON_BLOCKING), event(), Gate(), 3 << 20
there, source = malloc(size), Host(size, True)
source.set(b"a" * size)
gate.close(s)
copy(there, source.at, size, H2D, s)
ok(cuda.cudaEventRecord(e, s))
""")
    assert client.get("cuda.cudaEventQuery(e)") == 600
    client.do("gate.open(); ok(cuda.cudaEventSynchronize(e)); source.set(b'b' * size)")
    assert client.get("get(there, size) == b'a' * size")


def test_pageable_memory_is_the_hosts_again_at_once(start: Start) -> None:
    client = start(COPIES)
    client.do("""
s, gate, size = stream(NON_BLOCKING), Gate(), 3 << 20
there, source, small = malloc(size), Host(size, False), Host(5000, False)
source.set(b"a" * size); small.set(b"c" * 5000)
gate.close(s)
copy(there, source.at, size, H2D, s)
copy(there, small.at, 5000, H2D, s)
source.set(b"b" * size); small.set(b"d" * 5000)
gate.open()
ok(cuda.cudaStreamSynchronize(s))
""")
    assert client.get("get(there, size) == b'c' * 5000 + b'a' * (size - 5000)")


def test_rows_are_copied_and_filled_at_their_pitch(start: Start) -> None:
    client = start(COPIES)
    client.do("""
width, height, pitch, tight = 1000, 37, 1536, 1024
data = random.Random(1).randbytes(width * height)
p, q, source = malloc(pitch * height), malloc(tight * height), host(data)
def copy_2d(dst, dpitch, src, spitch, kind):
    ok(cuda.cudaMemcpy2DAsync(c_void_p(dst), size_t(dpitch), c_void_p(src), size_t(spitch),
                              size_t(width), size_t(height), kind, None))
ok(cuda.cudaMemset(c_void_p(p), 0x141, size_t(pitch * height)))
ok(cuda.cudaMemset(c_void_p(q), ord("z"), size_t(tight * height)))
copy_2d(p, pitch, ctypes.addressof(source), width, H2D)
copy_2d(q, tight, p, pitch, D2D)
back = host(bytes(width * height))
copy_2d(ctypes.addressof(back), width, q, tight, D2H)
rows = [data[at : at + width] for at in range(0, len(data), width)]
""")
    assert client.get("get(p, pitch * height) == b''.join(r + b'A' * 536 for r in rows)")
    assert client.get("get(q, tight * height) == b''.join(r + b'z' * 24 for r in rows)")
    assert client.get("back.raw == data")
    client.do("""
ok(cuda.cudaMemset2D(c_void_p(p), size_t(pitch), ord("-"), size_t(width), size_t(height - 1)))
""")
    assert client.get("get(p, pitch * height)[: 36 * pitch] == (b'-' * 1000 + b'A' * 536) * 36")
    assert client.get("get(p, pitch * height)[36 * pitch :] == rows[36] + b'A' * 536")


def test_in_torch_more_than_the_quota_is_out_of_memory_and_the_client_recovers(
    start: Start,
) -> None:
    client = start("import torch\n")
    client.do("""
x = torch.arange(3_000_000, dtype=torch.float32).reshape(1000, 3000)
there = x.pin_memory().to("cuda", non_blocking=True)
done = torch.cuda.Event(); done.record(); done.synchronize()
""")
    assert client.get("torch.equal(there.cpu(), x)")
    assert client.get("torch.equal(there[100:200].cpu(), x[100:200])")
    client.do("""
def empty(mib): return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
kept = torch.arange(1000).cuda()
held = empty(200)
def refused(mib):
    try: empty(mib)
    except torch.cuda.OutOfMemoryError as error: return "out of memory" in str(error)
""")
    assert client.get("torch.cuda.mem_get_info()[1]") == 256 * MIB
    assert client.get("refused(100)") is True
    assert client.get("refused(10_000)") is True
    client.do("del held; torch.cuda.empty_cache(); other = empty(200)")
    assert client.get("kept.cpu().tolist() == list(range(1000))")
    assert client.get("torch.equal(there.cpu(), x)")


def test_freed_memory_is_reused_after_the_work_that_used_it(start: Start) -> None:
    client = start()
    client.do("""
s, gate, size = stream(NON_BLOCKING), Gate(), 200 << 20
p, found = malloc(size), []
gate.close(s)
fill(p, 7, 1000, s)
free(p)
t = threading.Thread(target=lambda: found.append(malloc(size)))
t.start()
""")
    client.do("t.join(0.1)")
    assert client.get("found") == []  # more than the quota until p is free
    client.do("gate.open(); t.join()")
    assert client.get("words(found[0], 1000)") == [0] * 1000


def files(cuda: CudaServer) -> list[int]:
    """How many pieces of device memory supervisor and worker hold: each is a file."""
    folders = (Path(f"/proc/{pid}/fd") for pid in (cuda.process.pid, cuda.worker().pid))
    return [sum("fakecuda" in os.readlink(file) for file in one.iterdir()) for one in folders]


def test_a_thousand_allocations_leave_nothing_behind(cuda: CudaServer, start: Start) -> None:
    client = start(COPIES)
    client.do("free(malloc(1)); Host(1, True).free(); synchronize()")
    before = files(cuda)
    client.do("""
def info():
    a, b = size_t(), size_t()
    ok(cuda.cudaMemGetInfo(byref(a), byref(b)))
    return a.value, b.value
kept = []
for n in range(1000):
    kept.append(malloc(1 + 77777 * (n % 40)))
    fill(kept[-1], n)
    if n % 7 == 0: Host(n + 1, True).free()
    if len(kept) > 20: free(kept.pop(n % 20))
for p in kept: free(p)
""")
    assert client.get("info()") == (256 * MIB, 256 * MIB)
    assert cuda.used() == [0]
    assert files(cuda) == before


FULL = "p = malloc(200 << 20); fill(p, 0xABCD1234, 50 << 20); synchronize()"


@pytest.mark.parametrize("end", ["exit", "kill", "kill at work"])
def test_memory_of_a_client_that_ends_is_given_back_and_clean(
    cuda: CudaServer, start: Start, end: str
) -> None:
    before, first = files(cuda), start()
    first.do(FULL)
    if end == "kill at work":
        first.do("s = stream(NON_BLOCKING); sleep(300_000, s); fill(p, 1, 1000, s)")
    first.end() if end == "exit" else first.kill()
    assert cuda.ended(first)
    assert files(cuda) == before
    second = start()
    second.do("p = malloc(200 << 20)")
    assert second.get("get(p, 200 << 20).count(0)") == 200 * MIB


def test_a_client_killed_while_it_frees_gives_back_everything(
    cuda: CudaServer, start: Start
) -> None:
    before = files(cuda)
    for last in (
        "free(p)",
        "cuda.cudaFreeHost(c_void_p(at))",
        "cuda.cudaHostAlloc(byref(q), 9, 0)",
    ):
        one = start("q = c_void_p()\n")
        one.do("p, at, s = malloc(9 << 20), pinned(1 << 20), stream(NON_BLOCKING)")
        one.do("copy(at, p, 1 << 20, D2H, s); sleep(200_000, s)")
        one.do("copy(at, p, 1 << 20, D2H, s); free(malloc(1 << 20))")
        one.do(f"threading.Thread(target=lambda: {last}, daemon=True).start()")
        one.kill()
        assert cuda.ended(one)
        assert files(cuda) == before
    assert start().get("words(malloc(4))") == [0]


def test_clients_that_wait_to_free_do_not_keep_others_from_their_first_kernel(
    cuda: CudaServer, start: Start
) -> None:
    waiting = [start() for _ in range(4)]
    for one in waiting:
        one.do("gate = Gate(); gate.close(); free(malloc(1 << 20)); e = event()")
    other = start()
    other.do("p = malloc(4); fill(p, 8)")
    assert other.get("words(p)") == [8]
    for one in waiting:
        one.do("gate.open(); synchronize()")
