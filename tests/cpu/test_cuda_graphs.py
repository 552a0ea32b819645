"""CUDA graphs on the CUDA device: what the driver captures, and what happens where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cuda_server import CudaServer, FakeGpu, Program, finish
from ring import MESSAGES
from servers import wait_until

from mnemosyne.protocol.frames import encode

Start = Callable[..., Program]

GRAPHS = """
p, gate = malloc(4096), Gate()
s, t = stream(NON_BLOCKING), stream(NON_BLOCKING)
def capture(work):
    graph, executable = c_void_p(), c_void_p()
    ok(cuda.cudaStreamBeginCapture(s, 0))
    work()
    ok(cuda.cudaStreamEndCapture(s, byref(graph)))
    ok(cuda.cudaGraphInstantiateWithFlags(byref(executable), graph, ctypes.c_ulonglong(0)))
    ok(cuda.cudaGraphDestroy(graph))
    return executable
def replay(executable, where): ok(cuda.cudaGraphLaunch(executable, where))
def many(count=900):
    for n in range(count): fill(p + 4 * n, n, 1, s)
def two_streams():
    e, f = event(), event()
    fill(p, 1, 2, s)
    ok(cuda.cudaEventRecord(e, s)); ok(cuda.cudaStreamWaitEvent(t, e, 0))
    fill(p, 2, 1, t)
    ok(cuda.cudaEventRecord(f, t)); ok(cuda.cudaStreamWaitEvent(s, f, 0))
    copy(p + 8, p, 8, D2D, s)
"""


@pytest.fixture(params=["captured", "replayed"])
def client(request: pytest.FixtureRequest, start: Start, gpu: FakeGpu) -> Iterator[Program]:
    """On a driver that captures, and on one that refuses to."""
    if request.param == "captured":
        yield start(GRAPHS)
        return
    folder = request.getfixturevalue("tmp_path")
    server = gpu.serve(folder, "--memory-per-client", "256MiB", FAKECUDA_CAPTURE="0")
    program = server.program(GRAPHS)
    yield program
    program.end()
    finish(server)


def test_a_graph_of_two_streams_keeps_their_order(client: Program) -> None:
    client.do("g = capture(two_streams)")
    assert client.get("words(p, 4)") == [0, 0, 0, 0]
    client.do("replay(g, s); synchronize()")
    assert client.get("words(p, 4)") == [2, 1, 2, 1]
    client.do("fill(p, 9, 4); replay(g, None); synchronize()")
    assert client.get("words(p, 4)") == [2, 1, 2, 1]


def test_a_launch_waits_for_its_stream_and_what_follows_waits_for_it(client: Program) -> None:
    client.do("g = capture(many); gate.close(t); replay(g, t); fill(p, 7, 1, t)")
    client.do("back = pinned(4); copy(back, p, 4, D2H, s); ok(cuda.cudaStreamSynchronize(s))")
    assert client.get("c_uint.from_address(back).value") == 0
    client.do("gate.open(); synchronize()")
    assert client.get("words(p, 900)") == [7, *range(1, 900)]


def test_a_graph_may_be_longer_than_what_a_stream_may_have_waiting(start: Start) -> None:
    client = start(GRAPHS)
    client.do("p = malloc(8000); g = capture(lambda: many(2000)); gate.close(t); replay(g, t)")
    client.do("gate.open(); synchronize()")
    assert client.get("words(p, 2000)") == list(range(2000))


def test_a_graph_that_is_destroyed_while_it_runs_runs_to_its_end(client: Program) -> None:
    client.do("g = capture(two_streams); fill(p, 0, 4, s); gate.close(s); replay(g, s)")
    client.do(
        "d = threading.Thread(target=cuda.cudaGraphExecDestroy, args=(g,)); d.start();"
        "gate.open(); d.join(); synchronize()"
    )
    assert client.get("words(p, 4)") == [2, 1, 2, 1]
    assert client.get("cuda.cudaGraphLaunch(g, s)") == 1


def test_a_graph_outlives_the_worker(start: Start, cuda: CudaServer) -> None:
    client = start(GRAPHS)
    client.do("g = capture(two_streams); replay(g, s); synchronize(); fill(p, 0, 4); synchronize()")
    starts = cuda.count("starting another worker")
    cuda.worker().kill()
    assert wait_until(lambda: cuda.count("starting another worker") > starts)
    client.do("replay(g, s); synchronize()")
    assert client.get("words(p, 4)") == [2, 1, 2, 1]


def test_nothing_is_left_of_a_capture_that_a_frame_ends(gpu: FakeGpu, tmp_path: Path) -> None:
    """It names a function that the client does not have, which ends the session."""
    calls = tmp_path / "calls"
    server = gpu.serve(tmp_path, "--memory-per-client", "64MiB", FAKECUDA_LOG=str(calls))
    calls.write_text("")
    client = server.ring()
    frame = encode(MESSAGES["launch"], 999, 1, 1, 1, 1, 1, 1, 0, 0, b"")
    client.post("graph_frames", 1, len(frame).to_bytes(4, "little") + frame)
    client.post("graph_launch", 1, 0)
    assert "this client has no function 999" in client.wait_dead()
    assert wait_until(lambda: server.sessions() == [])
    log = calls.read_text()
    assert log.count("cuStreamBeginCapture 0") == log.count("cuStreamEndCapture 0") == 1
    assert log.count("cuGraphDestroy 0") == 1
    assert log.count("cuStreamDestroy 0") == log.count("cuStreamCreateWithPriority 0") == 2
    client.close()
    finish(server)


EXTERNAL = 1  # cudaEventRecordExternal, cudaEventWaitExternal


def test_each_launch_records_and_awaits_a_graphs_external_events(client: Program) -> None:
    client.do(f"""
done, go, u = event(), event(), stream(NON_BLOCKING)
def external():
    ok(cuda.cudaStreamWaitEvent(s, go, {EXTERNAL}))
    fill(p, 6, 1, s)
    ok(cuda.cudaEventRecordWithFlags(done, s, {EXTERNAL}))
    fill(p + 4, 7, 1, s)
g = capture(external)
def query(e): return cuda.cudaEventQuery(e)
""")
    assert client.get("words(p, 2), query(done)") == ([0, 0], 0)
    for _ in range(2):
        client.do("fill(p, 1, 2); synchronize(); gate.close(u); ok(cuda.cudaEventRecord(go, u))")
        client.do(
            "replay(g, s); ok(cuda.cudaStreamWaitEvent(t, done, 0)); copy(p + 8, p, 4, D2D, t)"
        )
        assert client.get("query(done)") == 600
        client.do(
            "gate.open(); ok(cuda.cudaEventSynchronize(done)); ok(cuda.cudaStreamSynchronize(t))"
        )
        assert client.get("query(done), words(p + 8)") == (0, [6])
        assert client.get("words(p, 2)") == [6, 7]
    client.do("ok(cuda.cudaEventDestroy(go)); fresh = event()")
    assert client.get("fresh.value == go.value") is False


def test_external_events_are_for_captures_alone(client: Program) -> None:
    assert client.get(f"cuda.cudaEventRecordWithFlags(event(), s, {EXTERNAL})") == 1
    assert client.get(f"cuda.cudaStreamWaitEvent(s, event(), {EXTERNAL})") == 1


def test_what_a_graph_keeps_lives_until_its_last_launch_is_done(client: Program) -> None:
    client.do("""
destroyed, holder = threading.Event(), c_void_p()
@ctypes.CFUNCTYPE(None, c_void_p)
def destroy(_): destroyed.set()
ok(cuda.cudaUserObjectCreate(byref(holder), None, destroy, 1, 1))
graph, g, MOVE = c_void_p(), c_void_p(), 1
ok(cuda.cudaStreamBeginCapture(s, 0)); fill(p, 3, 1, s)
ok(cuda.cudaStreamEndCapture(s, byref(graph)))
ok(cuda.cudaGraphRetainUserObject(graph, holder, 1, MOVE))
ok(cuda.cudaGraphInstantiateWithFlags(byref(g), graph, ctypes.c_ulonglong(0)))
gate.close(s); replay(g, s)
ok(cuda.cudaGraphDestroy(graph)); ok(cuda.cudaGraphExecDestroy(g))
""")
    assert client.get("destroyed.is_set()") is False
    client.do("gate.open()")
    assert client.get("destroyed.wait(20), words(p)") == (True, [3])
