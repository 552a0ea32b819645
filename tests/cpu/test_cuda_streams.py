"""Streams and events on the CUDA device: what waits for what, and what does not.

Kernels fill a word; which value is left tells their order. A gate holds a stream back, so that
what does not wait for it has happened before it opens.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cuda_server import CudaServer, Program

Start = Callable[..., Program]
READY, NOT_READY = 0, 600

STREAMS = """
p, gate = malloc(4096), Gate()
null, blocking, other, apart = None, stream(), stream(), stream(NON_BLOCKING)
side = stream(NON_BLOCKING)
def query(s): return cuda.cudaStreamQuery(s)
def peek(at=p):
    # Past everything that waits in other streams.
    back = pinned(4)
    copy(back, at, 4, D2H, side)
    ok(cuda.cudaStreamSynchronize(side))
    return c_uint.from_address(back).value
def both(first, second):
    # Work in the first stream behind a gate, then in the second: what the second says meanwhile,
    # the word meanwhile, and in the end.
    ok(cuda.cudaMemset(c_void_p(p), 0, size_t(4)))
    synchronize()
    gate.close(first)
    fill(p, 1, 1, first)
    fill(p, 2, 1, second)
    meanwhile = query(second), peek()
    gate.open()
    synchronize()
    return *meanwhile, words(p)[0]
"""


@pytest.fixture(scope="module")
def client(cuda: CudaServer) -> Program:
    return cuda.program(STREAMS)


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        ("null", "blocking", True),
        ("blocking", "null", True),
        ("null", "apart", False),
        ("apart", "null", False),
        ("blocking", "other", False),
        ("blocking", "apart", False),
    ],
)
def test_streams_wait_for_the_null_stream_and_it_for_them_unless_non_blocking(
    client: Program, first: str, second: str, waits: bool
) -> None:
    if waits:
        assert client.get(f"both({first}, {second})") == (NOT_READY, 0, 2)
        return
    client.do(f"ok(cuda.cudaMemset(c_void_p(p), 0, size_t(4))); synchronize(); gate.close({first})")
    client.do(f"fill(p, 1, 1, {first}); fill(p, 2, 1, {second})")
    client.do(f"ok(cuda.cudaStreamSynchronize({second}))")
    assert client.get(f"query({second}), query({first}), peek()") == (READY, NOT_READY, 2)
    client.do("gate.open(); synchronize()")
    assert client.get("words(p)") == [1]


def test_work_between_two_of_the_null_streams_keeps_its_place(client: Program) -> None:
    client.do("""
gate.close(null)
for n in range(200):
    fill(p, 3 * n, 1, (blocking, null, other)[n % 3])
    copy(p + 4 + 4 * n, p, 4, D2D, null)
gate.open()
""")
    assert client.get("words(p + 4, 200)") == [3 * n for n in range(200)]


def test_the_null_stream_is_done_when_what_it_waits_for_is(client: Program) -> None:
    client.do("synchronize(); gate.close(blocking); fill(p, 5, 1, blocking)")
    assert client.get("query(null), query(other), query(apart)") == (NOT_READY, READY, READY)
    client.do("""
done = []
def wait(): done.append(cuda.cudaStreamSynchronize(null)); done.append(peek())
t = threading.Thread(target=wait); t.start()
ok(cuda.cudaStreamSynchronize(other))
""")
    assert client.get("done") == []
    client.do("gate.open(); t.join()")
    assert client.get("done, query(null)") == ([0, 5], READY)


def test_a_null_stream_that_was_never_used_waits_for_blocking_streams_too(start: Start) -> None:
    client = start("s, gate = stream(), Gate()\ndef query(s): return cuda.cudaStreamQuery(s)\n")
    assert client.get("query(None), query(s)") == (READY, READY)
    client.do("gate.close(s)")
    assert client.get("query(None), query(s)") == (NOT_READY, NOT_READY)
    client.do("ok(cuda.cudaStreamDestroy(s))")
    assert client.get("query(None)") == NOT_READY
    client.do("gate.open(); synchronize()")
    assert client.get("query(None)") == READY


def test_a_stream_waits_for_an_event_of_another_stream(client: Program) -> None:
    client.do("""
e = event()
gate.close(apart)
fill(p, 6, 1, apart)
ok(cuda.cudaEventRecord(e, apart))
ok(cuda.cudaStreamWaitEvent(blocking, e, 0))
copy(p + 8, p, 4, D2D, blocking)
fill(p, 7, 1, other)
ok(cuda.cudaStreamSynchronize(other))
""")
    assert client.get("cuda.cudaEventQuery(e), query(blocking), peek()") == (
        NOT_READY, NOT_READY, 7,
    )  # fmt: skip
    client.do("gate.open(); ok(cuda.cudaEventSynchronize(e))")
    assert client.get("cuda.cudaEventQuery(e), words(p), words(p + 8)") == (READY, [6], [6])
    assert client.get("cuda.cudaEventDestroy(e)") == 0


def test_a_thread_that_waits_for_an_event_does_not_stop_launches_of_another(
    client: Program,
) -> None:
    client.do("""
e, done = event(), []
gate.close(apart)
ok(cuda.cudaEventRecord(e, apart))
t = threading.Thread(target=lambda: done.append(cuda.cudaEventSynchronize(e))); t.start()
for n in range(1, 101): fill(p, n, 1, other)
ok(cuda.cudaStreamSynchronize(other))
""")
    assert client.get("done, peek()") == ([], 100)
    client.do("gate.open(); t.join()")
    assert client.get("done") == [0]


def test_synchronising_the_device_waits_for_all_streams(client: Program) -> None:
    client.do("""
gates = [Gate() for _ in range(3)]
for g, s in zip(gates, (apart, blocking, null)): g.close(s)
done = []
t = threading.Thread(target=lambda: done.append(cuda.cudaDeviceSynchronize())); t.start()
""")
    for n in range(3):
        client.do("t.join(0.05)")
        assert client.get("done") == [], n
        client.do(f"gates[{n}].open()")
    client.do("t.join()")
    assert client.get("done, query(apart), query(blocking), query(null)") == ([0], 0, 0, 0)


def test_time_between_events_is_that_of_the_work_between(client: Program) -> None:
    client.do("""
start, end, ms = event(), event(), c_float()
ok(cuda.cudaEventRecord(start, apart))
sleep(30_000, apart)
ok(cuda.cudaEventRecord(end, apart))
""")
    assert client.get("cuda.cudaEventElapsedTime(byref(ms), start, end)") in (READY, NOT_READY)
    client.do("ok(cuda.cudaEventSynchronize(end))")
    assert client.get("cuda.cudaEventElapsedTime(byref(ms), start, end)") == 0
    assert 30 <= client.get("ms.value") < 60_000
    client.do("quick = c_void_p(); ok(cuda.cudaEventCreateWithFlags(byref(quick), 2))")
    client.do("ok(cuda.cudaEventRecord(quick, apart)); synchronize()")
    assert client.get("cuda.cudaEventElapsedTime(byref(ms), start, quick)") == 400


def test_an_event_made_after_one_that_was_destroyed_has_not_been_recorded(
    client: Program,
) -> None:
    client.do("""
def end(e): ok(cuda.cudaEventDestroy(e))
def elapsed(a, b): return cuda.cudaEventElapsedTime(byref(ms), a, b)
ms, first, old = c_float(), event(), event()
gate.close(apart)
ok(cuda.cudaEventRecord(first, other)); ok(cuda.cudaStreamSynchronize(other))
ok(cuda.cudaEventRecord(old, apart)); end(old)
""")
    assert client.get("cuda.cudaEventQuery(old), cuda.cudaEventRecord(old, None)") == (400, 400)
    client.do("new = event(); ok(cuda.cudaStreamWaitEvent(other, new, 0)); fill(p, 3, 1, other)")
    assert client.get("new.value == old.value, cuda.cudaEventQuery(new)") == (True, READY)
    assert client.get("cuda.cudaEventSynchronize(new), elapsed(first, new)") == (0, 400)
    client.do("ok(cuda.cudaStreamSynchronize(other))")
    client.do("ok(cuda.cudaEventRecord(new, apart)); ok(cuda.cudaStreamWaitEvent(other, new, 0))")
    assert client.get("cuda.cudaEventQuery(new), query(other)") == (NOT_READY, NOT_READY)
    client.do("gate.open(); ok(cuda.cudaEventSynchronize(new))")
    assert client.get("elapsed(first, new)") == 0
    client.do("quick = c_void_p(); end(new); ok(cuda.cudaEventCreateWithFlags(byref(quick), 2))")
    assert client.get("quick.value != new.value") is True  # it has other flags


def test_streams_and_events_are_destroyed_while_their_work_goes_on(client: Program) -> None:
    client.do("""
for n in range(3): fill(p + 4 * n, 0, 1, null)
synchronize()
ended = [stream(), stream(NON_BLOCKING), stream()]
gates = [Gate() for _ in ended]
for n, (s, g) in enumerate(zip(ended, gates)):
    e = event()
    g.close(s)
    fill(p + 4 * n, 10 + n, 1, s)
    ok(cuda.cudaEventRecord(e, s))
    ok(cuda.cudaStreamWaitEvent(other, e, 0))
    ok(cuda.cudaEventDestroy(e))
    ok(cuda.cudaStreamDestroy(s))
ok(cuda.cudaMemsetAsync(c_void_p(p + 100), 1, size_t(4), apart))
ok(cuda.cudaStreamSynchronize(apart))
""")
    assert client.get("peek(p), peek(p + 100), query(ended[0])") == (0, 0x01010101, 400)
    assert client.get("query(other), query(null)") == (NOT_READY, NOT_READY)
    client.do("for g in gates: g.open()")
    assert client.get("words(p, 3)[::2]") == [10, 12]  # the null stream has waited for these
    client.do("synchronize()")
    assert client.get("words(p, 3)") == [10, 11, 12]
    client.do("ok(cuda.cudaStreamDestroy(stream()))")


def test_streams_come_and_go_by_the_thousand(client: Program) -> None:
    client.do("""
row = malloc(4 * 2500)
for n in range(2500):
    s = stream(n % 2)
    fill(row + 4 * n, n, 1, s)
    ok(cuda.cudaStreamDestroy(s))
synchronize()
""")
    assert client.get("words(row, 2500)") == list(range(2500))


def test_thousands_of_launches_in_flight_hold_up_nobody_else(
    cuda: CudaServer, client: Program
) -> None:
    client.do("gate.close(apart)")
    client.do("for n in range(3000): fill(p + 4 * (n % 1000), n, 1, apart)")
    client.do("after = event(); ok(cuda.cudaEventRecord(after, apart))")
    neighbour = cuda.program()
    neighbour.do("p = malloc(4); fill(p, 9)")
    assert neighbour.get("words(p)") == [9]
    neighbour.end()
    assert client.get("cuda.cudaEventQuery(after)") == NOT_READY
    client.do("gate.open(); ok(cuda.cudaEventSynchronize(after))")
    assert client.get("words(p, 1000)") == list(range(2000, 3000))


def test_a_client_killed_with_thousands_of_launches_in_flight_ends(start: Start) -> None:
    one = start()
    one.do("p = malloc(4); sleep(300_000)")
    one.do("for n in range(3000): fill(p, n)")
    one.kill()  # the fixture waits for the end of its session


def test_much_work_of_a_killed_client_is_waited_for(cuda: CudaServer, start: Start) -> None:
    """Longer than a worker that stands still would be: its GPU goes on, so it is not replaced."""
    restarts = cuda.count("starting another worker")
    one, neighbour = start(), start()
    one.do("for n in range(900): sleep(14_000)")
    neighbour.do("p = malloc(4)")
    one.kill()
    assert cuda.ended(one)
    assert neighbour.get("(fill(p, 9), words(p))[1]") == [9]
    assert cuda.count("starting another worker") == restarts


@pytest.mark.parametrize("blocking", [False, True])
def test_launches_wait_for_their_end_when_the_environment_says_so(
    start: Start, blocking: bool
) -> None:
    one = start("import os; os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n" if blocking else "")
    one.do("p, s = malloc(4), stream(NON_BLOCKING)")
    one.do("sleep(200_000, s)")
    assert one.get("cuda.cudaStreamQuery(s)") == (READY if blocking else NOT_READY)
    one.do("fill(p, 3, 1, s); ok(cuda.cudaStreamSynchronize(s))")
    assert one.get("words(p)") == [3]


HOST_FUNCTIONS = """
p, gate, started, may_end, ran = malloc(4096), Gate(), threading.Event(), threading.Event(), []
s, apart, blocking = stream(NON_BLOCKING), stream(NON_BLOCKING), stream()
holding_the_lock = ctypes.PyDLL(None)  # of the interpreter, which the function needs
@ctypes.CFUNCTYPE(None, c_void_p)
def slow(name): started.set(); may_end.wait(20); ran.append((name, peek()))
@ctypes.CFUNCTYPE(None, c_void_p)
def quick(name): ran.append(name)
@ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
def callback(where, code, data): ran.append((where, code, data))
def put_function(function, data, where=s):
    ok(holding_the_lock.cudaLaunchHostFunc(where, function, c_void_p(data)))
back = pinned(4)
def peek():
    copy(back, p, 4, D2H, apart)
    ok(cuda.cudaStreamSynchronize(apart))
    return c_uint.from_address(back).value
def query(s): return cuda.cudaStreamQuery(s)
"""


def test_a_host_function_runs_between_the_work_before_it_and_the_work_after_it(
    start: Start,
) -> None:
    client = start(HOST_FUNCTIONS)
    client.do("gate.close(s); fill(p, 1, 1, s); put_function(slow, 7); put_function(quick, 8)")
    client.do("ok(holding_the_lock.cudaStreamAddCallback(s, callback, c_void_p(9), 0))")
    assert client.get("started.is_set(), query(s), query(apart)") == (False, NOT_READY, READY)
    client.do("""
gate.open(); assert started.wait(20)
def go_on(): fill(p, 2, 1, s); synchronize()
after = threading.Thread(target=go_on); after.start()
fill(p + 4, 5, 1, apart); ok(cuda.cudaStreamSynchronize(apart))
""")
    assert client.get("ran, query(s), after.is_alive(), peek()") == ([], NOT_READY, True, 1)
    client.do("may_end.set(); after.join(20)")
    assert client.get("ran[0], ran[1], ran[2] == (s.value, 0, 9)") == ((7, 1), 8, True)
    assert client.get("words(p), query(s)") == ([2], READY)


def test_the_null_stream_waits_for_the_functions_of_blocking_streams(start: Start) -> None:
    client = start(HOST_FUNCTIONS)
    client.do("put_function(slow, 1, blocking); assert started.wait(20)")
    assert client.get("query(None), query(blocking), query(s)") == (NOT_READY, NOT_READY, READY)
    client.do("ok(cuda.cudaStreamDestroy(blocking))")
    assert client.get("query(None)") == NOT_READY
    client.do("may_end.set(); put(p, bytes(4))")
    assert client.get("ran") == [(1, 0)]
    client.do("synchronize()")  # the copy may be under way when the call returns
    assert client.get("query(None)") == READY


def test_a_forked_child_waits_for_no_function(start: Start) -> None:
    client = start(HOST_FUNCTIONS)
    client.do("put_function(slow, 1); assert started.wait(20)")
    client.do("""
import os
child = os.fork()
if child == 0: os._exit(cuda.cudaDeviceSynchronize() * 10 + query(s))
may_end.set()
""")
    assert client.get("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 33
