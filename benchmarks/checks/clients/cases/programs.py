"""Graphs, compiled models, memory that processes share, and other parts of PyTorch."""

from __future__ import annotations

import queue
import tempfile
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
from case import Setting, Step, Tensors, case, cases, gpu_only, need, randn
from torch import Tensor, nn
from torch.multiprocessing import reductions


def small() -> nn.Module:
    layers = nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)
    return nn.Sequential(*layers).to(Setting.device)


@cases({
    "torch.compile": ({},),
    "torch.compile, reduce-overhead": ({"mode": "reduce-overhead"},),
    "torch.compile, aot_eager": ({"backend": "aot_eager"},),
})  # fmt: skip
def compiled(settings: dict[str, str]) -> Step:
    if "backend" not in settings and Setting.device == "cuda":
        need("triton")
    model, x = small(), randn(8, 16)
    fast = torch.compile(model, **settings)

    def step() -> Tensors:
        torch.compiler.cudagraph_mark_step_begin()
        model.zero_grad()
        out = fast(x).clone()
        out.square().sum().backward()
        return [out, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    return step


@case("CUDA graph")
def graph() -> Step:
    gpu_only("graphs")
    x = randn(64, 64)
    warm_up(lambda: (x @ x).relu() + 1)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        y = (x @ x).relu() + 1

    def step() -> Tensors:
        x.copy_(randn(64, 64))
        recorded.replay()
        return [y]

    return step


@case("CUDA graph of a training step")
def graph_of_training() -> Step:
    gpu_only("graphs")
    model, x, y = small(), randn(8, 16), randn(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)

    def train() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warm_up(train)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = train()

    def step() -> Tensors:
        recorded.replay()
        return [loss, *model.parameters()]

    return step


@case("CUDA graph that draws random numbers")
def graph_of_dropout() -> Step:
    gpu_only("graphs")
    x = randn(64, 64)
    warm_up(lambda: nn.functional.dropout(x))
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        y = nn.functional.dropout(x)

    def step() -> Tensors:
        recorded.replay()
        return [y]

    return step


def warm_up(function: Any) -> None:
    """Before it is captured, as PyTorch's documentation wants it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)


@case("make_graphed_callables")
def graphed() -> Step:
    gpu_only("graphs")
    model, x = small(), randn(8, 16)
    fast = torch.cuda.make_graphed_callables(model, (x.clone().requires_grad_(),))

    def step() -> Tensors:
        model.zero_grad()
        out = fast(x.clone().requires_grad_())
        out.square().sum().backward()
        return [out, *(p.grad for p in model.parameters() if p.grad is not None)]

    return step


@case("a CUDA tensor given to another process")
def shared_on_device() -> Tensors:
    gpu_only("memory of its own")
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    reductions.reduce_tensor(x)  # an error is ours, not the queue's thread's
    return [doubled_elsewhere(x)]


@case("a tensor in shared memory given to another process")
def shared_on_host() -> Tensors:
    return [doubled_elsewhere(torch.arange(100, dtype=torch.float32).share_memory_())]


def doubled_elsewhere(x: Tensor) -> Tensor:
    processes = torch.multiprocessing.get_context("spawn")
    given, back = processes.Queue(), processes.Queue()
    child = processes.Process(target=double, args=(given, back), daemon=True)
    child.start()
    try:
        given.put(x)
        return torch.frombuffer(bytearray(answer(child, back)), dtype=x.dtype)
    finally:
        child.join(5)
        child.kill()


def answer(child: Any, back: Any) -> bytes:
    while True:
        try:
            return back.get(timeout=1.0)
        except queue.Empty:
            if not child.is_alive():
                raise RuntimeError(f"the other process ended, status {child.exitcode}") from None


def double(given: Any, back: Any) -> None:
    back.put((given.get() * 2).cpu().numpy().tobytes())


@case("deterministic algorithms")
def deterministic() -> Tensors:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        x, where = randn(100, 8), torch.arange(100, device=Setting.device) % 7
        zeros = torch.zeros(7, 8, device=Setting.device)
        return [zeros.index_add(0, where, x), x.cumsum(0), x @ x.t()]
    finally:
        torch.use_deterministic_algorithms(False)


@case("random numbers")
def random() -> Tensors:
    gpu_only("generator of a GPU's numbers")
    generator = torch.Generator("cuda").manual_seed(3)
    like: dict[str, Any] = {"device": "cuda", "generator": generator}
    share = torch.rand(50, **like)
    return [
        share, torch.randn(101, **like), torch.randperm(1000, **like),
        torch.multinomial(share, 9, generator=generator),
        torch.bernoulli(share, generator=generator), torch.poisson(share, generator=generator),
        torch.empty(50, device="cuda").exponential_(generator=generator),
    ]  # fmt: skip


@case("a generator's state, kept and set again")
def random_state() -> Tensors:
    gpu_only("generator of a GPU's numbers")
    state = torch.cuda.get_rng_state()
    first = torch.rand(10, device="cuda")
    torch.cuda.set_rng_state(state)
    return [first, torch.rand(10, device="cuda")]


@case("torch.profiler")
def profiled() -> Tensors:
    """Its times are no results; that it knows the product's kernel is."""
    gpu_only("kernels")
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    a, b = randn(64, 64), randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        x = a @ b
        torch.cuda.synchronize()
    kernels = [event for event in found.events() if event.device_type == DeviceType.CUDA]
    return [x, torch.tensor(bool(kernels))]


@case("NCCL in one process")
def nccl() -> Tensors:
    gpu_only("NCCL")
    x = randn(100)
    with tempfile.NamedTemporaryFile() as file:
        where = f"file://{file.name}"
        torch.distributed.init_process_group("nccl", where, rank=0, world_size=1)
        try:
            torch.distributed.all_reduce(x)
            model = nn.parallel.DistributedDataParallel(small())
            model(randn(8, 16)).sum().backward()
        finally:
            torch.distributed.destroy_process_group()
    return [x, *(p.grad for p in model.parameters() if p.grad is not None)]
