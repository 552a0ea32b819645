"""NCCL as a client has it: one rank, whose collectives are copies."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from conftest import Server
from torch import nn

SETUP = """
import ctypes, json, os, tempfile, torch, torch.distributed as dist
from torch import nn
torch.manual_seed(1)
folder = tempfile.TemporaryDirectory()
dist.init_process_group("nccl", f"file://{folder.name}/store", rank=0, world_size=1)
"""
COLLECTIVES = """
x = torch.arange(5.0, device="cuda").to(torch.bfloat16)
said = {}
def into(name, collective, *arguments):
    out = torch.zeros_like(x)
    collective(out, *arguments)
    said[name] = out.tolist()
for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
    y = x.clone()
    dist.all_reduce(y, getattr(dist.ReduceOp, op))
    said[op] = y.tolist()
into("scatter", dist.scatter, [x], 0)
into("all_to_all", dist.all_to_all_single, x)
into("all_gather", lambda out: dist.all_gather([out], x))
into("gather", lambda out: dist.gather(x, [out], 0))
into("reduce_scatter", lambda out: dist.reduce_scatter(out, [x]))
into("its own message", lambda out: [work.wait() for work in dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, x, 0), dist.P2POp(dist.irecv, out, 0)])])
into("another group", lambda out: dist.all_gather([out], x, group=dist.new_group([0])))
dist.broadcast(x, 0)
dist.reduce(x, 0)
dist.barrier()
said["in place"] = x.tolist()
objects = [None]
dist.all_gather_object(objects, {"rank": dist.get_rank()})
dist.destroy_process_group()
print(json.dumps([said, objects]))
"""
TRAINING = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
inputs = torch.randn(32, 8)
model = wrapped(model.cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(5):
    loss = model(inputs.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
dist.destroy_process_group()
print(json.dumps(losses))
"""
BY_HAND = """
import ctypes, torch
torch.ones(1, device="cuda")
nccl = ctypes.CDLL(None)
class Id(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 128)]
p, size, byref = ctypes.c_void_p, ctypes.c_size_t, ctypes.byref
def made(function, *arguments):
    comm = p()
    return function(byref(comm), *arguments), comm
def number(function, comm):
    n = ctypes.c_int(-1)
    return function(comm, byref(n)), n.value
id = Id()
codes, comm = made(nccl.ncclCommInitRank, 1, id, 0)
print("unique id", nccl.ncclGetUniqueId(byref(id)), nccl.ncclGetUniqueId(None))
print("init", codes, made(nccl.ncclCommInitRankConfig, 1, id, 0, None)[0],
      made(nccl.ncclCommInitRankScalable, 1, 0, 1, byref(id), None)[0],
      made(nccl.ncclCommInitAll, 1, None)[0], made(nccl.ncclCommInitRank, 2, id, 1)[0],
      made(nccl.ncclCommInitRank, 1, id, 1)[0])
print("tell", number(nccl.ncclCommCount, comm), number(nccl.ncclCommUserRank, comm),
      number(nccl.ncclCommGetAsyncError, comm), number(nccl.ncclCommCount, p(99)))
split = p()
print("split", nccl.ncclCommSplit(comm, 3, 0, byref(split), None), bool(split),
      nccl.ncclCommSplit(comm, -1, 0, byref(split), None), bool(split))
a, b, handle = p(), p(), p()
print("memory", nccl.ncclMemAlloc(byref(a), size(64)), nccl.ncclMemAlloc(byref(b), size(64)),
      nccl.ncclCommRegister(comm, a, size(64), byref(handle)),
      nccl.ncclCommDeregister(comm, handle))
FLOAT = 7
print("reduce", nccl.ncclAllReduce(a, b, size(4), FLOAT, 0, comm, None),
      nccl.ncclAllReduce(a, b, size(4), 12, 0, comm, None),
      nccl.ncclAllReduce(a, b, size(4), FLOAT, 5, comm, None),
      nccl.ncclReduce(a, b, size(4), FLOAT, 0, 1, comm, None),
      nccl.ncclAllReduce(None, b, size(4), FLOAT, 0, comm, None),
      nccl.ncclAllReduce(None, None, size(0), FLOAT, 0, comm, None))
print("copies", nccl.ncclAlltoAll(a, b, size(4), FLOAT, comm, None),
      nccl.ncclGather(a, b, size(4), FLOAT, 0, comm, None),
      nccl.ncclBcast(a, size(4), FLOAT, 0, comm, None),
      nccl.ncclBroadcast(a, b, size(4), FLOAT, 0, comm, None),
      nccl.ncclReduceScatter(a, b, size(4), FLOAT, 0, comm, None))
def send(n=4): return nccl.ncclSend(a, size(n), FLOAT, 0, comm, None)
def receive(n=4): return nccl.ncclRecv(b, size(n), FLOAT, 0, comm, None)
def group(*calls):
    nccl.ncclGroupStart()
    return [call() for call in calls], nccl.ncclGroupEnd()
print("group", group(receive, send), group(send), group(receive, lambda: send(3)),
      send(), nccl.ncclGroupEnd())
print("end", nccl.ncclCommFinalize(comm), nccl.ncclCommDestroy(comm), nccl.ncclCommDestroy(comm),
      nccl.ncclCommAbort(None), nccl.ncclAllReduce(a, b, size(4), FLOAT, 0, comm, None))
print("free", nccl.ncclMemFree(a), nccl.ncclMemFree(b), nccl.ncclMemFree(p(64)))
"""


def test_collectives_among_one_rank_give_what_it_sent(server: Server) -> None:
    said, objects = json.loads(server.output(SETUP + COLLECTIVES))
    assert len(said) == 13
    assert {name: values for name, values in said.items() if values != [0, 1, 2, 3, 4]} == {}
    assert objects == [{"rank": 0}]


def test_training_with_distributed_wrappers_is_as_without(server: Server) -> None:
    wrappers = (
        "nn.parallel.DistributedDataParallel",
        "dist.fsdp.FullyShardedDataParallel",
        "dist.fsdp.fully_shard",
    )
    for wrapper in wrappers:
        code = f"{SETUP}import torch.distributed.fsdp\nwrapped = {wrapper}\n{TRAINING}"
        torch.testing.assert_close(
            json.loads(server.output(code)), plain_losses(), rtol=1e-5, atol=0
        )


def test_sharded_training_in_bfloat16_follows_that_in_float32(server: Server) -> None:
    """Activations and gradients are rounded to eight bits, weights and sums of gradients not."""
    wrapper = """
import torch.distributed.fsdp as fsdp
def wrapped(model):
    policy = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    for part in (model[0], model[2], model):
        fsdp.fully_shard(part, mp_policy=policy)
    return model
"""
    losses = json.loads(server.output(SETUP + wrapper + TRAINING))
    torch.testing.assert_close(losses, plain_losses(), rtol=2**-7, atol=0)


def plain_losses() -> list[float]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    inputs = torch.randn(32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_second_rank_is_refused_with_the_reason(server: Server, tmp_path: Path) -> None:
    code = f"""
import torch, torch.distributed as dist
dist.init_process_group("nccl", "file://{tmp_path}/store", rank=0, world_size=2)
try:
    dist.all_reduce(torch.ones(1, device="cuda"))
except dist.DistBackendError as error:
    print("invalid usage" in str(error))
"""
    done = server.run(code)
    assert done.stdout.split() == ["True"]
    assert "mnemosyne: NCCL cannot join 2 ranks: each needs a GPU of its own" in done.stderr


def test_calls_say_what_is_wrong_with_them_as_nccl_does(server: Server) -> None:
    assert server.output(BY_HAND).splitlines() == [
        "unique id 0 4",
        "init 0 0 0 0 5 4",
        "tell (0, 1) (0, 0) (0, 0) (4, -1)",
        "split 0 True 0 False",
        "memory 0 0 0 0",
        "reduce 0 4 4 4 4 0",
        "copies 0 0 0 0 0",
        "group ([0, 0], 0) ([0], 5) ([0, 0], 5) 5 5",
        "end 0 0 4 0 4",
        "free 0 0 1",
    ]
