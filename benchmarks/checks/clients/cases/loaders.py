"""How data gets to the device: loaders, streams, events and pinned memory."""

import torch
from case import Setting, Skip, case, pick, randn
from torch.utils.data import DataLoader, TensorDataset


def needs_streams():
    if Setting.device == "cpu":
        raise Skip("the CPU has no streams")


@case("DataLoader, 4 workers", False)
@case("DataLoader, 4 workers, pin_memory", True)
def loader(pin):
    data = TensorDataset(torch.randn(64, 3, 16, 16), torch.arange(64))
    pin = pin and Setting.device == "cuda"
    batches = DataLoader(data, batch_size=8, num_workers=4, pin_memory=pin)
    found = []
    for x, y in batches:
        x, y = (part.to(Setting.device, non_blocking=pin) for part in (x, y))
        found += [x * 2, y + 1]
    return found


@case("non_blocking copies", 1 << 10)
@case("large non_blocking copies", 1 << 24)
def non_blocking(count):
    needs_streams()
    count = pick(count, 1 << 10)
    sources = [torch.arange(i, i + count, dtype=torch.int32).pin_memory() for i in range(3)]
    there = [source.to("cuda", non_blocking=True) for source in sources]
    back = [torch.empty(count, dtype=torch.int32, pin_memory=True) for _ in sources]
    for target, source in zip(back, there):
        target.copy_(source + 1, non_blocking=True)
    torch.cuda.synchronize()
    return back


@case("prefetch on a side stream")
def prefetch():
    needs_streams()
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    pinned = [torch.full((1 << 16,), float(i)).pin_memory() for i in range(6)]
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


@case("events: elapsed_time is sane")
def events():
    needs_streams()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = randn(512, 512)
    begin.record()
    for _ in range(20):
        x = x @ x / 512
    end.record()
    end.synchronize()
    elapsed = begin.elapsed_time(end)
    return [x, torch.tensor([0 < elapsed < 60_000, end.query()])]


@case("events between streams")
def waiting():
    needs_streams()
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
def priorities():
    needs_streams()
    low, high = torch.cuda.Stream.priority_range()
    found = [torch.tensor([low, high])]
    for priority in (low, high):
        stream = torch.cuda.Stream(priority=priority)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found.append(torch.arange(1000, device="cuda") * 2)
        found.append(torch.tensor([stream.priority]))
        torch.cuda.current_stream().wait_stream(stream)
    return found


@case("record_stream keeps a block from reuse")
def record_stream():
    needs_streams()
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


@case("legacy default stream and per-stream order")
def many_streams():
    needs_streams()
    streams = [torch.cuda.Stream() for _ in range(16)]
    parts = []
    for i, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            parts.append(torch.full((1 << 12,), float(i), device="cuda").cumsum(0))
    torch.cuda.synchronize()
    return [torch.stack(parts)]


@case("external stream")
def external():
    needs_streams()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.cuda_stream)):
        x = torch.arange(1000, device="cuda") * 3
    stream.synchronize()
    return [x]


@case("threads, each with a stream")
def threads():
    needs_streams()
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        x = torch.full((256, 256), seed / 7, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((256, 256), seed / 7, device="cuda")
            for _ in range(10):
                x = x @ x / 256
            torch.cuda.current_stream().synchronize()
            return x

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(1, 9)))


@case("allocator: snapshot, reset and empty_cache")
def allocator():
    needs_streams()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.ones(1 << 20, device="cuda")
    peak = torch.cuda.max_memory_allocated() - before
    snapshot = torch.cuda.memory_snapshot()
    del x
    torch.cuda.empty_cache()
    return [torch.tensor([peak, bool(snapshot), torch.cuda.memory_allocated() - before])]


class Pinned:
    """Pinned memory offered as if it were on the GPU: native kernels read it where it is."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape), "typestr": "<f4", "version": 2,
            "data": (tensor.data_ptr(), False),
        }


@case("zero-copy pinned memory")
def zero_copy():
    needs_streams()
    host = torch.arange(1024, dtype=torch.float32).pin_memory()
    view = torch.as_tensor(Pinned(host), device="cuda")
    found = [view * 2]
    view.add_(1)
    torch.cuda.synchronize()
    return [*found, host.clone()]
