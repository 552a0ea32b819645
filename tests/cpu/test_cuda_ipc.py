"""Memory and events of another client on the CUDA device: what waits, and what outlives what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cuda_server import CudaServer, FakeGpu, Program, finish
from servers import wait_until

Start = Callable[..., Program]
NOT_READY, INVALID_VALUE, INVALID_RESOURCE_HANDLE = 600, 1, 400

SHARING = """
from ctypes import Structure
class Handle(Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
def raw(handle): return ctypes.string_at(byref(handle), 64)
def from_raw(data): return Handle.from_buffer_copy(data)
def memory_handle(p):
    handle = Handle()
    ok(cuda.cudaIpcGetMemHandle(byref(handle), c_void_p(p)))
    return raw(handle)
def open_memory(data):
    p = c_void_p()
    ok(cuda.cudaIpcOpenMemHandle(byref(p), from_raw(data), 1))
    return p.value
def event_handle(e):
    handle = Handle()
    ok(cuda.cudaIpcGetEventHandle(byref(handle), e))
    return raw(handle)
def open_event(data):
    e = c_void_p()
    ok(cuda.cudaIpcOpenEventHandle(byref(e), from_raw(data)))
    return e
def shared_event():
    e = c_void_p()
    ok(cuda.cudaEventCreateWithFlags(byref(e), 6))
    return e
p = malloc(4096)
"""


def two(start: Start) -> tuple[Program, Program]:
    return start(SHARING), start(SHARING)


def replace_worker(server: CudaServer) -> None:
    """Returns when the supervisor has decided which sessions go on."""
    starts = server.count("starting another worker")
    server.worker().kill()
    assert wait_until(lambda: server.count("starting another worker") > starts)


def test_a_client_waits_for_another_ones_event_before_it_reads(start: Start) -> None:
    owner, other = two(start)
    owner.do("fill(p, 1); synchronize(); gate, e = Gate(), shared_event(); gate.close()")
    owner.do("fill(p, 2); ok(cuda.cudaEventRecord(e, None))")
    memory, event = owner.get("memory_handle(p)"), owner.get("event_handle(e)")
    other.do(f"q, f = open_memory({memory!r}), open_event({event!r})")
    assert other.get("words(q)") == [1]
    other.do("ok(cuda.cudaStreamWaitEvent(None, f, 0)); copy(p, q, 4, D2D)")
    assert other.get("cuda.cudaEventQuery(f)") == NOT_READY
    owner.do("ok(cuda.cudaEventDestroy(e))")
    assert other.get("cuda.cudaStreamQuery(None)") == NOT_READY
    owner.do("gate.open(); synchronize()")
    assert other.get("words(p)") == [2]
    other.do("ok(cuda.cudaEventSynchronize(f)); ok(cuda.cudaEventDestroy(f))")


def test_an_event_that_only_another_client_records_is_not_ready_until_it_is(start: Start) -> None:
    owner, other = two(start)
    owner.do("e = shared_event()")
    assert owner.get("cuda.cudaEventQuery(e)") == 0
    other.do(f"f, gate = open_event({owner.get('event_handle(e)')!r}), Gate(); gate.close()")
    other.do("ok(cuda.cudaEventRecord(f, None))")
    assert owner.get("cuda.cudaEventQuery(e)") == NOT_READY
    other.do("gate.open(); synchronize()")
    assert owner.get("cuda.cudaEventQuery(e)") == 0


def test_memory_is_closed_when_the_work_on_it_is_done(start: Start) -> None:
    """The fake driver ends a worker that unmaps what its work still needs."""
    owner, other = two(start)
    owner.do("fill(p, 7); synchronize()")
    other.do(f"q = open_memory({owner.get('memory_handle(p)')!r}); gate = Gate(); gate.close()")
    other.do("copy(p, q, 4, D2D)")
    other.do("closing = threading.Thread(target=cuda.cudaIpcCloseMemHandle, args=(c_void_p(q),))")
    other.do("closing.start(); gate.open(); closing.join()")
    assert other.get("words(p)") == [7]
    assert other.get("cuda.cudaIpcCloseMemHandle(c_void_p(q))") == INVALID_VALUE


def test_memory_of_a_killed_client_stays_with_the_one_that_opened_it(
    start: Start, cuda: CudaServer
) -> None:
    owner, other = two(start)
    owner.do("fill(p, 9, 1024); synchronize()")
    other.do(f"q = open_memory({owner.get('memory_handle(p)')!r})")
    owner.kill()
    assert cuda.ended(owner)
    assert other.get("set(words(q, 1024))") == {9}
    assert other.get("cuda.cudaFree(c_void_p(q))") == INVALID_VALUE
    other.do("ok(cuda.cudaIpcCloseMemHandle(c_void_p(q)))")


def test_a_new_worker_has_the_memory_in_both(start: Start, cuda: CudaServer) -> None:
    owner, other = two(start)
    owner.do("fill(p, 4); synchronize()")
    other.do(f"q = open_memory({owner.get('memory_handle(p)')!r})")
    replace_worker(cuda)
    assert other.get("words(q)") == [4]
    other.do("fill(q, 5); synchronize()")
    assert owner.get("words(p)") == [5]


def test_in_a_new_worker_clients_still_wait_for_each_others_events(
    start: Start, cuda: CudaServer
) -> None:
    """Whichever of the two it opens first: each owns one event and opens one."""
    both = two(start)
    pairs = both, both[::-1]
    for owner, _ in pairs:
        owner.do("gate, r = Gate(), malloc(4096); e = shared_event(); fill(p, 1)")
        owner.do("ok(cuda.cudaEventRecord(e, None)); synchronize()")
    handles = [owner.get("event_handle(e)") for owner, _ in pairs]
    for (owner, other), event in zip(pairs, handles, strict=True):
        memory = owner.get("memory_handle(p)")
        other.do(f"q, f = open_memory({memory!r}), open_event({event!r})")
    replace_worker(cuda)
    for (owner, other), event in zip(pairs, handles, strict=True):
        owner.do("gate.close(); fill(p, 2); ok(cuda.cudaEventRecord(e, None))")
        assert owner.get("event_handle(e)") == event  # and the record has been issued
        other.do("ok(cuda.cudaStreamWaitEvent(None, f, 0)); copy(r, q, 4, D2D)")
        assert other.get("cuda.cudaStreamQuery(None)") == NOT_READY
        owner.do("gate.open(); synchronize()")
        assert other.get("words(r)") == [2]


def test_in_a_new_worker_an_event_ends_with_the_last_client_that_has_it(
    gpu: FakeGpu, tmp_path: Path
) -> None:
    """The fake driver ends a worker that uses an event which was destroyed."""
    calls = tmp_path / "calls"
    server = gpu.serve(tmp_path, "--memory-per-client", "64MiB", FAKECUDA_LOG=str(calls))
    owner, other = server.program(SHARING), server.program(SHARING)
    owner.do("e = shared_event()")
    other.do(f"f = open_event({owner.get('event_handle(e)')!r})")
    calls.write_text("")
    replace_worker(server)
    other.do("malloc(4)")  # it has the event again
    owner.do("ok(cuda.cudaEventRecord(e, None)); ok(cuda.cudaEventDestroy(e)); synchronize()")
    assert "cuEventDestroy" not in calls.read_text()
    other.do("ok(cuda.cudaEventRecord(f, None)); synchronize()")
    other.kill()
    owner.end()
    assert server.ended(owner, other)
    log = calls.read_text()
    assert log.count("cuEventDestroy 0") == log.count("cuEventCreate 0") > 0
    finish(server)


def test_what_was_recorded_before_a_new_worker_cannot_be_timed(
    start: Start, cuda: CudaServer
) -> None:
    client = start("e, f, time = event(), event(), c_float()")
    client.do("ok(cuda.cudaEventRecord(e, None)); synchronize()")
    replace_worker(cuda)
    client.do("ok(cuda.cudaEventRecord(f, None)); synchronize()")
    elapsed = "cuda.cudaEventElapsedTime(byref(time), e, f)"
    assert client.get(elapsed) == INVALID_RESOURCE_HANDLE
    client.do(f"ok(cuda.cudaEventRecord(e, None)); synchronize(); ok({elapsed})")
