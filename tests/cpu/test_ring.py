"""Frames as a hostile or unlucky client may send them, over a real ring to a real worker."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from conftest import wait_until
from logged_server import LoggedServer, logged_server
from ring import MESSAGES, RingClient, random_value

from mnemosyne._native import fnv1a
from mnemosyne.api import Kind, Message
from mnemosyne.protocol.frames import decode, encode

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedServer]:
    with logged_server(tmp_path_factory.mktemp("frames")) as running:
        yield running


@pytest.fixture
def client(server: LoggedServer) -> Iterator[RingClient]:
    one = server.client()
    yield one
    one.close()


Starter = Callable[[], RingClient]


@pytest.fixture
def others(server: LoggedServer) -> Iterator[Starter]:
    """Starts further clients."""
    started: list[RingClient] = []

    def start() -> RingClient:
        started.append(server.client())
        return started[-1]

    yield start
    for one in started:
        one.close()


def malloc(client: RingClient, size: int) -> int:
    status, pointer = client.call("malloc", size)
    assert status == 0
    return int(pointer)


def fetch(client: RingClient, pointer: int, size: int) -> bytes:
    status, data = client.call("copy_fetch", pointer, size, 0)
    assert status == 0
    return bytes(data)


def test_data_goes_in_and_out(client: RingClient) -> None:
    pointer = malloc(client, 4096)
    assert client.welcome.device_base <= pointer
    client.post("copy_inline", pointer, b"0123456789", 0)
    client.post("copy_device", pointer + 5, pointer, 10, 0)  # overlapping
    client.post("cudaMemsetAsync", pointer, 0x141, 2, 0)
    assert fetch(client, pointer, 15) == b"AA234" + b"0123456789"
    client.host[100:104] = b"host"
    client.post("copy_from_host", pointer + 1, 100, 4, 0)
    client.post("copy_to_host", 200, pointer, 6, 0)
    client.drain()
    assert client.host[200:206] == b"Ahost0"
    assert client.take_error() == (0, "")


def test_rows_are_copied_and_filled_at_their_pitch(client: RingClient) -> None:
    pointer = malloc(client, 4096)
    client.post("cudaMemsetAsync", pointer, ord("."), 64, 0)
    client.post("cudaMemset2DAsync", pointer, 8, ord("x"), 3, 4, 0)
    client.post("copy_device_2d", pointer + 32, 4, pointer, 8, 3, 4, 0)
    assert fetch(client, pointer, 48) == b"xxx....." * 4 + b"xxx." * 4
    client.post("copy_device_2d", pointer, 8, pointer + 64, 8, 0, 4, 0)  # no bytes at all
    assert client.call("cudaStreamSynchronize", 0) == [0]
    assert client.take_error() == (0, "")


def test_a_late_error_is_kept_until_it_is_taken_and_the_first_one_wins(client: RingClient) -> None:
    client.post("copy_inline", 4096, b"x", 0)
    client.post("cudaStreamDestroy", 7777)
    client.drain()
    code, text = client.take_error()
    assert code == 700
    assert "0x1000" in text
    assert client.call("cudaDeviceSynchronize") == [0]


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("malloc", (1 << 50,), 2),
        ("malloc", (0,), 1),
        ("free", (4096,), 1),
        ("host_alloc", (1 << 50,), 2),
        ("copy_fetch", (4096, 4, 0), 700),
        ("copy_fetch", (0, 1 << 20, 0), 1),
        ("cudaStreamSynchronize", (99,), 400),
        ("cudaEventSynchronize", (99,), 400),
        ("occupancy", (99, 128, 0, 0), 98),
        ("cublasSgemm_v2", (99, 0, 0, 1, 1, 1, b"\0" * 4, 0, 1, 0, 1, b"\0" * 4, 0, 1), 1),
        ("lt_heuristic", ([12345, 0, []], *[[0, 4, 4, 4, []]] * 4, [], 1), 15),
        ("cudnn_heuristic", (99, 0, [4, []]), 1001),
        ("cudnn_execute", (99, 0, 1, [], 0), 1001),
        ("cudnn_plan_destroy", (99,), 2000),
    ],
)
def test_refusals_carry_cudas_code_and_one_line(
    client: RingClient, name: str, values: tuple[object, ...], code: int
) -> None:
    status, text = client.call(name, *values)
    assert status == code
    assert text.startswith(f"{name}: ")
    assert "\n" not in text


def test_memory_of_a_neighbour_is_out_of_reach(client: RingClient, others: Starter) -> None:
    neighbour = others()
    secret = malloc(neighbour, 4096)
    neighbour.post("copy_inline", secret, b"secret", 0)
    neighbour.drain()
    assert client.call("copy_fetch", secret, 6, 0)[0] == 700
    client.post("copy_inline", secret, b"broken", 0)
    client.drain()
    assert client.take_error()[0] == 700
    assert fetch(neighbour, secret, 6) == b"secret"


def test_new_chunks_are_clean(client: RingClient) -> None:
    size = 32 * MIB
    first = malloc(client, size)
    client.post("cudaMemsetAsync", first, 0xFF, size, 0)
    client.post("free", first)
    assert malloc(client, size) == first
    assert fetch(client, first, 8) == bytes(8)
    assert fetch(client, first + size - 8, 8) == bytes(8)


BROKEN = {
    "no msgpack": lambda c: c.put(b"\xc1"),
    "no array": lambda c: c.put(b"\x05"),
    "unknown message": lambda c: c.put(b"\x91\xcd\xff\xff"),
    "too few fields": lambda c: c.put(b"\x91\x01"),
    "wrong kind": lambda c: c.put(b"\x92\x01\xa1x"),
    "size beyond the head": lambda c: c.put(b"\x91\x01", size=4096),
    "no such reply slot": lambda c: c.put(encode(MESSAGES["malloc"], 1), reply=64),
    "head runs away": lambda c: c.move_head(1 << 40),
    "head goes back": lambda c: (c.call("malloc", 1), c.move_head(0)),
    "head is odd": lambda c: c.move_head(3),
    "arguments too short": lambda c: c.put(encode(MESSAGES["kernel"], ["x"], "k")),
    "module bytes out of order": lambda c: c.post("module_bytes", b"12345678", 10, 5, b"x"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_frame_ends_that_session_alone(
    server: LoggedServer, client: RingClient, others: Starter, case: str
) -> None:
    neighbour = others()
    BROKEN[case](client)
    assert "the server ended this session" in client.wait_dead()
    assert neighbour.call("cudaDeviceSynchronize") == [0]
    assert not neighbour.dead
    assert server.says("broke the protocol")


FLAT = [m for m in MESSAGES.values() if all(f.kind is not Kind.LIST for f in m.fields)]


@pytest.mark.parametrize("messages", [FLAT, list(MESSAGES.values())], ids=["flat", "all"])
def test_random_frames_of_the_right_form_never_hurt_a_neighbour(
    client: RingClient, others: Starter, messages: list[Message]
) -> None:
    neighbour, rng = others(), random.Random(7)
    for _ in range(40):
        one = others()
        pointers = [malloc(one, 8192)]
        one.post("cublasCreate_v2", 16)
        one.post("cudaEventCreateWithFlags", 32, 0)
        for _ in range(100):
            message = rng.choice(messages)
            fields = [random_value(rng, f, pointers) for f in message.fields]
            one.put(encode(message, *fields))
            decode(encode(message, *fields))
        one.drain()
        one.close()
        assert neighbour.call("cudaDeviceSynchronize") == [0]


def test_a_busy_client_does_not_starve_another(client: RingClient, others: Starter) -> None:
    busy, n = others(), 192
    size, one = n * n * 4, struct.pack("<f", 1)
    a, b, c = (malloc(busy, size) for _ in range(3))
    busy.post("cublasCreate_v2", 16)
    for _ in range(3000):
        busy.post("cublasSgemm_v2", 16, 0, 0, n, n, n, one, a, n, b, n, bytes(4), c, n)
    started = time.monotonic()
    for _ in range(5):
        assert client.call("cudaDeviceSynchronize") == [0]
    waited = time.monotonic() - started
    assert busy.completed < busy.head, "the busy client was not busy"
    assert waited < 0.5
    busy.drain()


def test_unknown_modules_are_asked_for_and_bounded(client: RingClient) -> None:
    blob = random.Random(1).randbytes(1000)
    module = ["/nonexistent/library.so", 0, len(blob), fnv1a(blob)]
    assert client.call("kernel", module, "k")[0] == -1
    assert client.call("kernel", ["/dev/zero", 0, 100, 5], "k")[0] == -1
    name = fnv1a(blob).to_bytes(8, "little")
    client.post("module_bytes", name, len(blob), 0, blob[:600])
    client.post("module_bytes", name, len(blob), 600, blob[600:])
    status, text = client.call("kernel", module, "k")
    assert (status, "fatbin" in text) == (200, True)
    for _ in range(2):  # the same module again, with nothing else held by now
        assert client.call("module_bytes", b"12345678", 1 << 30, 0, b"") == [0]
    assert client.call("module_bytes", name, 1, 0, b"")[0] == 801


def test_a_session_outlives_its_worker(server: LoggedServer, client: RingClient) -> None:
    pointer, other = malloc(client, 3 * MIB), malloc(client, 40 * MIB)
    client.post("copy_inline", pointer + 77, b"kept", 0)
    client.post("copy_inline", other + MIB, b"too", 0)
    client.post("cudaStreamCreateWithPriority", 5, 1, 0)
    client.drain()
    server.kill_worker()
    assert fetch(client, pointer + 77, 4) == b"kept"
    assert fetch(client, other + MIB, 3) == b"too"
    assert client.call("cudaStreamSynchronize", 5) == [0]
    client.post("free", other)
    third = malloc(client, MIB)
    assert third not in (pointer, other)
    client.drain()
    assert client.take_error() == (0, "")


def test_work_in_flight_when_the_worker_dies_is_an_error(
    server: LoggedServer, client: RingClient, others: Starter
) -> None:
    idle = others()
    pointer = malloc(idle, 100)
    assert wait_until(lambda: idle.completed == idle.head)
    server.worker().suspend()
    client.post("cudaStreamSynchronize", 0)
    server.kill_worker()
    assert "worker died" in client.wait_dead()
    assert fetch(idle, pointer, 4) == bytes(4)


def test_a_client_that_hangs_up_while_it_is_ended_is_ended_once(
    server: LoggedServer, client: RingClient, others: Starter
) -> None:
    """The supervisor hears both at once; it must not take another client's files for that one's."""
    supervisor = psutil.Process(server.process.pid)
    for _ in range(3):
        leaving = others()
        supervisor.suspend()
        assert wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED)
        leaving.close()
        leaving.put(b"\xc1")
        leaving.wait_dead()
        supervisor.resume()
        others().close()
    assert client.call("cudaDeviceSynchronize") == [0]
    assert not server.says("Traceback"), server.log.read_text()
