"""Faults on the CUDA device: whose work was on the GPU gets the error, everybody else goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from cuda_server import CudaServer, Program
from fakecuda.kernels import kernels_fatbin
from ring import RingClient
from servers import wait_until

from mnemosyne._native import fnv1a

Start = Callable[..., Program]
RESTARTS = "starting another worker"

#: Everything a session may have: memory, pinned memory, streams, events, a function that was used.
OWN = """
import hashlib, random
size = 5 << 20
p, q, s, b, e = malloc(size), malloc(100), stream(NON_BLOCKING), stream(), event()
data = random.Random(1).randbytes(size)
put(p, data)
at = pinned(5000)
ctypes.memmove(at, data, 5000)
fill(q, 11, 1, s)
ok(cuda.cudaEventRecord(e, s))
synchronize()
def intact():
    return get(p, size) == data and ctypes.string_at(at, 5000) == data[:5000] and words(q) == [11]
def works():
    fill(q, 12, 1, s)
    ok(cuda.cudaEventRecord(e, s))
    ok(cuda.cudaStreamWaitEvent(b, e, 0))
    copy(q + 4, q, 4, D2D, b)
    copy(at, p + 100, 1000, D2H, b)
    ok(cuda.cudaStreamSynchronize(b))
    ok(cuda.cudaEventSynchronize(e))
    fill(q, 11)
    arrived = ctypes.string_at(at, 1000)
    ctypes.memmove(at, data, 1000)
    return words(q + 4) == [12] and arrived == data[100:1100]
"""
#: Code, and what the program is told.
FAULT = "(lambda code: (code, error_text(code)))(launch({!r}) or cuda.cudaDeviceSynchronize())"


@pytest.fixture(autouse=True)
def ready(cuda: CudaServer) -> Iterator[None]:
    """A fault is over for a test only when another worker is ready."""
    restarts = cuda.count(RESTARTS)
    yield
    assert wait_until(cuda.accepts, 60)
    assert cuda.count(RESTARTS) > restarts


@pytest.mark.parametrize(
    ("kernel", "code", "says"),
    [
        (
            "fake_illegal", 700,
            "an illegal memory access was encountered: mnemosyne: the GPU reported "
            "CUDA_ERROR_ILLEGAL_ADDRESS while it executed this program's work",
        ),
        (
            "fake_assert", 710,
            "device-side assert triggered: mnemosyne: the GPU reported "
            "CUDA_ERROR_ASSERT while it executed this program's work",
        ),
    ],
)  # fmt: skip
def test_the_client_that_faults_is_told_and_an_idle_neighbour_goes_on(
    start: Start, kernel: str, code: int, says: str
) -> None:
    neighbour, guilty = start(OWN), start()
    assert guilty.get(FAULT.format(kernel)) == (code, says)
    assert guilty.get("cuda.cudaGetLastError(), cuda.cudaMalloc(byref(c_void_p()), 4)") == (
        code, code,
    )  # fmt: skip
    assert neighbour.get("intact()")
    assert neighbour.get("works()")
    assert neighbour.get("intact()")
    assert start().get("words(malloc(4))") == [0]


def test_all_with_work_in_flight_get_one_clear_error(start: Start) -> None:
    idle, busy, guilty = start(OWN), start(), start()
    busy.do("gate = Gate(); gate.close(stream(NON_BLOCKING)); synchronized = []")
    busy.start("cuda.cudaDeviceSynchronize()")
    expected = (
        "an illegal memory access was encountered: mnemosyne: the GPU reported "
        "CUDA_ERROR_ILLEGAL_ADDRESS while it executed this program's work and others', so it is "
        "not known whose fault it is"
    )
    assert guilty.get(FAULT.format("fake_illegal")) == (700, expected)
    assert busy.result() == 700
    assert busy.get("error_text(700)") == expected
    assert idle.get("intact() and works()")


def test_a_client_that_dies_with_its_fault_costs_nobody_else(
    cuda: CudaServer, start: Start
) -> None:
    neighbour, guilty = start(OWN), start()
    guilty.start("launch('fake_sleep', c_int(50_000)), launch('fake_illegal')")
    guilty.result()
    guilty.kill()
    assert cuda.ended(guilty)
    assert neighbour.get("intact() and works()")


def test_idle_sessions_outlive_a_killed_worker(cuda: CudaServer, start: Start) -> None:
    neighbour, busy = start(OWN), start()
    busy.do("gate = Gate(); gate.close()")
    cuda.worker().send_signal(signal.SIGKILL)
    code = busy.get("cuda.cudaDeviceSynchronize()")
    assert code == 46  # cudaErrorDevicesUnavailable
    assert "the server's worker died while it executed" in busy.get(f"error_text({code})")
    assert neighbour.get("intact() and works()")


def fault(client: RingClient) -> str:
    """Faults by frames alone; why the session is over."""
    image = kernels_fatbin()
    module = ["/nonexistent", 0, len(image), fnv1a(image)]
    client.post("module_bytes", fnv1a(image).to_bytes(8, "little"), len(image), 0, image)
    status, function, *_ = client.call("kernel", module, "fake_illegal")
    assert status == 0
    client.post("launch", function, 1, 1, 1, 1, 1, 1, 0, 0, b"")
    return client.wait_dead()


def test_ten_faults_in_a_row_do_not_end_the_server(cuda: CudaServer, start: Start) -> None:
    neighbour = start(OWN)
    for _ in range(10):
        client = cuda.ring()
        assert fault(client).startswith("the GPU reported CUDA_ERROR_ILLEGAL_ADDRESS")
        client.close()
    assert neighbour.get("intact() and works()")
