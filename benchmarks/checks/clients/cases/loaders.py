"""How data gets to the device: loaders, streams, events, and pinned memory."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import torch
from case import Setting, Step, Tensors, case, cases, gpu_only, pick, randn
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


@cases({
    "DataLoader, 4 workers": (False,),
    "DataLoader, 4 workers, pin_memory": (True,),
})  # fmt: skip
def loader(pin: bool) -> Tensors:
    data = TensorDataset(torch.randn(64, 3, 16, 16), torch.arange(64))
    pin = pin and Setting.device == "cuda"
    found = []
    for x, y in DataLoader(data, batch_size=8, num_workers=4, pin_memory=pin):
        x, y = (part.to(Setting.device, non_blocking=pin) for part in (x, y))
        found += [x * 2, y + 1]
    return found


@cases({"non_blocking copies, small": (1 << 10,), "non_blocking copies, large": (1 << 24,)})
def non_blocking(count: int) -> Step:
    """There and back; in between is a kernel."""
    gpu_only("streams")
    count = pick(count, 1 << 10)
    sources = [torch.arange(i, i + count, dtype=torch.int32).pin_memory() for i in range(3)]
    back = [torch.empty(count, dtype=torch.int32, pin_memory=True) for _ in sources]

    def step() -> Tensors:
        there = [source.to("cuda", non_blocking=True) for source in sources]
        for target, source in zip(back, there, strict=True):
            target.copy_(source + 1, non_blocking=True)
        torch.cuda.synchronize()
        return back

    return step


@case("prefetch on a side stream")
def prefetch() -> Step:
    gpu_only("streams")
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    pinned = [torch.full((1 << 16,), float(i)).pin_memory() for i in range(6)]

    def step() -> Tensors:
        total, following = torch.zeros(1 << 16, device="cuda"), None
        for source in [*pinned, None]:
            current = following
            if source is not None:
                with torch.cuda.stream(side):
                    following = source.to("cuda", non_blocking=True)
            if current is not None:
                main.wait_stream(side)
                current.record_stream(main)
                total = total * 2 + current
        return [total]

    return step


@case("events: elapsed_time")
def events() -> Tensors:
    """The times themselves are no results; that they are sane is."""
    gpu_only("events")
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    x = randn(512, 512)
    begin.record()
    middle.record()
    for _ in range(20):
        x = x @ x / 512
    end.record()
    end.synchronize()
    whole, part = begin.elapsed_time(end), middle.elapsed_time(end)
    return [x, torch.tensor([0 < part <= whole < 60_000, end.query()])]


@case("events between streams")
def waiting() -> Tensors:
    gpu_only("events")
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    done, x = torch.cuda.Event(), randn(1 << 20)
    one.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(one):
        for _ in range(50):
            x = x * 1.001 + 0.1
        done.record()
    with torch.cuda.stream(other):
        other.wait_event(done)
        y = x * 3
    other.synchronize()
    return [x, y]


@case("stream priorities")
def priorities() -> Tensors:
    gpu_only("streams")
    found = [torch.tensor(torch.cuda.Stream.priority_range())]
    for priority in torch.cuda.Stream.priority_range():
        stream = torch.cuda.Stream(priority=priority)
        with torch.cuda.stream(stream):
            found.append(torch.arange(1000, device="cuda") * 2)
        stream.synchronize()
        found.append(torch.tensor(stream.priority))
    return found


@case("record_stream keeps a block from reuse")
def record_stream() -> Tensors:
    gpu_only("streams")
    side, found = torch.cuda.Stream(), []
    for i in range(10):
        x = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                y = x * 2
            found.append(y.sum())
        x.record_stream(side)
        del x
        torch.full((1 << 20,), -1.0, device="cuda")
    torch.cuda.synchronize()
    return found


@case("sixteen streams")
def many_streams() -> Tensors:
    gpu_only("streams")
    parts = []
    for i in range(16):
        with torch.cuda.stream(torch.cuda.Stream()):
            parts.append(torch.full((1 << 12,), float(i), device="cuda").cumsum(0))
    torch.cuda.synchronize()
    return [torch.stack(parts)]


@case("external stream")
def external() -> Tensors:
    gpu_only("streams")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.cuda_stream)):
        x = torch.arange(1000, device="cuda") * 3
    stream.synchronize()
    return [x]


@case("threads, each with a stream")
def threads() -> Tensors:
    gpu_only("streams")

    def work(seed: int) -> Tensor:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((256, 256), seed / 7, device="cuda")
            for _ in range(10):
                x = x @ x / 256
        stream.synchronize()
        return x

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(1, 9)))


@case("what the allocator counts")
def allocator() -> Tensors:
    gpu_only("allocator")
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.ones(1 << 20, device="cuda")
    peak, known = torch.cuda.max_memory_allocated() - before, bool(torch.cuda.memory_snapshot())
    del x
    torch.cuda.empty_cache()
    return [torch.tensor([peak, known, torch.cuda.memory_allocated() - before])]


class OnDevice:
    """Pinned memory presented as memory of the GPU, whose kernels then reach it where it is."""

    def __init__(self, pinned: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(pinned.shape), "typestr": "<f4", "version": 2,
            "data": (pinned.data_ptr(), False),
        }  # fmt: skip


@case("zero-copy pinned memory")
def zero_copy() -> Tensors:
    gpu_only("pinned memory")
    pinned = torch.arange(1024, dtype=torch.float32).pin_memory()
    seen = torch.as_tensor(OnDevice(pinned), device="cuda")
    doubled = seen * 2
    seen.add_(1)
    torch.cuda.synchronize()
    return [doubled, pinned]
