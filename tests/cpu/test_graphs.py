"""CUDA graphs: capture and replay by torch.cuda.graph, and what cannot be captured."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from conftest import Server
from logged_server import LoggedServer, logged_server
from ring import MESSAGES, RingClient

from mnemosyne.protocol.frames import encode

INVALID_VALUE, INVALID_RESOURCE_HANDLE, ILLEGAL_ADDRESS = 1, 400, 700
GRAPH = 0x50000010

REPLAYED = """
import torch
torch.manual_seed(0)
w, x = torch.randn(8, 8, device="cuda"), torch.ones(8, device="cuda")
side = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = (x @ w).relu()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = y * 2
    torch.cuda.current_stream().wait_stream(side)
    z += 1
for value in (3.0, -1.0):
    x.fill_(value)
    graph.replay()
    want = (x.cpu() @ w.cpu()).relu() * 2 + 1
    print(torch.equal(z.cpu(), want))
other = torch.randn(3, 5, device="cuda")
print(torch.allclose((other @ other.T).cpu(), other.cpu() @ other.cpu().T, atol=1e-6))
"""
TRAINED = """
import torch
from torch import nn

def losses(device, graphed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)).to(device)
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 1).to(device)
    step = torch.cuda.make_graphed_callables(model, (x.clone(),)) if graphed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(step(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)

print((losses("cuda", True) - losses("cpu", False)).abs().max().item())
"""
EXTERNAL_EVENTS = """
import torch
x = torch.zeros(1000, device="cuda")
start, end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph, stream=stream):
    start.record()
    for _ in range(50): x.add_(1)
    end.record()
for _ in range(2):
    graph.replay()
    end.synchronize()
    print(end.query(), start.elapsed_time(end) > 0)
print(x.sum().item())
"""
BROKEN = """
import torch
x = torch.ones(4, device="cuda")
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        y = x * 2
        y.sum().item()
except RuntimeError as error:
    print("capture" in str(error))
print(x.sum().item())
event = torch.cuda.Event()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    z = x + 1
    event.record()
    try:
        event.query()
    except RuntimeError as error:
        print("captur" in str(error))
"""


def test_events_around_a_graphs_work_are_recorded_by_each_replay(server: Server) -> None:
    assert server.output(EXTERNAL_EVENTS).split() == ["True"] * 4 + ["100000.0"]


def test_a_graph_computes_with_what_its_inputs_hold_now(server: Server) -> None:
    assert server.output(REPLAYED).split() == ["True"] * 3


def test_a_graphed_model_trains_as_plain_pytorch_does(server: Server) -> None:
    assert float(server.output(TRAINED)) < 1e-5


def test_what_waits_for_the_device_breaks_a_capture_and_nothing_else(server: Server) -> None:
    assert server.output(BROKEN).split() == ["True", "4.0", "True"]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedServer]:
    with logged_server(tmp_path_factory.mktemp("graphs")) as running:
        yield running


@pytest.fixture
def client(logged: LoggedServer) -> Iterator[RingClient]:
    one = logged.client()
    yield one
    one.close()


def frames(*calls: tuple[object, ...]) -> bytes:
    encoded = [encode(MESSAGES[str(name)], *values) for name, *values in calls]
    return b"".join(struct.pack("<I", len(frame)) + frame for frame in encoded)


def memory(client: RingClient) -> int:
    status, pointer = client.call("malloc", 4096)
    assert status == 0
    return int(pointer)


def test_a_graph_comes_in_pieces_and_outlives_its_worker(
    client: RingClient, logged: LoggedServer
) -> None:
    p = memory(client)
    for at in range(3):
        piece = frames(("copy_inline", p + 8 * at, struct.pack("<q", at + 5), 77))
        assert client.call("graph_frames", GRAPH, piece) == [0]
    logged.kill_worker()
    assert client.call("graph_launch", GRAPH, 0) == [0]
    assert client.call("copy_fetch", p, 24, 0) == [0, struct.pack("<3q", 5, 6, 7)]
    assert client.call("graph_destroy", GRAPH) == [0]
    assert client.call("graph_launch", GRAPH, 0)[0] == INVALID_VALUE
    assert client.call("graph_destroy", GRAPH)[0] == INVALID_VALUE


def test_graphs_are_a_clients_own(client: RingClient, logged: LoggedServer) -> None:
    other = logged.client()
    p = memory(client)
    mine, foreign = ("copy_inline", p, b"12345678", 0), ("copy_inline", 64, b"0", 0)
    assert client.call("graph_frames", GRAPH, frames(mine, foreign)) == [0]
    assert other.call("graph_launch", GRAPH, 0)[0] == INVALID_VALUE
    assert client.call("graph_launch", GRAPH, 99)[0] == INVALID_RESOURCE_HANDLE
    assert client.call("graph_launch", GRAPH, 0)[0] == ILLEGAL_ADDRESS
    assert client.call("copy_fetch", p, 8, 0) == [0, b"12345678"]
    other.close()


@pytest.mark.parametrize(
    "piece",
    [
        b"\1\0",
        struct.pack("<I", 100) + b"\x92",
        frames(("malloc", 4096)),
        frames(("graph_launch", GRAPH, 0)),
        struct.pack("<I", 2) + b"\x91\xcd",
    ],
    ids=["half a size", "a frame cut off", "no work", "a graph in a graph", "no frame"],
)
def test_a_piece_of_anything_else_ends_its_client_alone(
    logged: LoggedServer, client: RingClient, piece: bytes
) -> None:
    p, guilty = memory(client), logged.client()
    guilty.post("graph_frames", GRAPH, piece)
    assert "frame" in guilty.wait_dead()
    assert client.call("cudaMemsetAsync", p, 1, 16, 0) == [0]
