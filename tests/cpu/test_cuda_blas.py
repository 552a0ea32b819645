"""cuBLAS in the CUDA lane, with a fake library behind it: what goes there and what comes back."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import FakeGpu
from cuda_server import CudaServer, finish
from fakecuda.blas import build_blas
from ring import MESSAGES, RingClient

from mnemosyne.api import Field, Kind

HANDLE, STREAM = 48, 16
HOST, DEVICE = 0, 1
INVALID_VALUE, NOT_SUPPORTED = 7, 15
SQUARE = [0, 2, 2, 2, []]


@pytest.fixture(scope="module")
def server(gpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaServer]:
    folder = tmp_path_factory.mktemp("blas")
    running = gpu.serve(folder, "--clients", "2", **build_blas(folder, gpu.driver))
    yield running
    finish(running)


class Client(RingClient):
    """A session with a handle on a stream of its own, and four floats at ``p``."""

    def __init__(self, server: CudaServer) -> None:
        super().__init__(server.socket)
        status, self.p = self.call("malloc", 4096)
        assert status == 0
        self.post("cudaStreamCreateWithPriority", STREAM, 1, 0)
        self.post("cublasCreate_v2", HANDLE)
        self.post("copy_inline", self.p, struct.pack("<4f", 1, 2, 3, 4), STREAM)
        self.configure(HOST)

    def configure(self, mode: int, workspace: int = 0, size: int = 0, count: int = 0) -> None:
        self.post("blas_configure", HANDLE, STREAM, 0, mode, workspace, size, count)

    def blas(self, name: str, *values: Any) -> list[Any]:
        return self.call(f"cublas{name}", HANDLE, *values)

    def fetch(self, offset: int, form: str) -> tuple[Any, ...]:
        status, data = self.call("copy_fetch", self.p + offset, struct.calcsize(form), STREAM)
        assert status == 0
        return struct.unpack(form, data)


@pytest.fixture
def client(server: CudaServer) -> Iterator[Client]:
    one = Client(server)
    yield one
    assert one.dead == ""
    one.close()


def test_results_come_in_the_reply_or_go_to_device_memory(client: Client) -> None:
    assert client.blas("Sasum_v2", 4, client.p, 3, 0) == [0, struct.pack("<f", 12)]
    assert client.blas("Zdotu_v2", 3, client.p, 1, client.p, 1, 0) == [
        0, struct.pack("<2d", 3, 6),
    ]  # fmt: skip
    client.configure(DEVICE)
    assert client.blas("Sasum_v2", 2, client.p, 3, client.p + 64) == [0]
    assert client.fetch(64, "<f") == (6,)


def test_a_pointer_mode_of_the_host_sends_no_result_to_an_address_of_the_hosts(
    client: Client,
) -> None:
    """The handle says host, the frame has an address: it is one of the device's all the same."""
    client.configure(HOST)
    assert client.blas("Sasum_v2", 4, client.p, 3, client.p + 64) == [0]
    assert client.fetch(64, "<f") == (12,)


def test_a_result_of_an_unknown_type_is_refused(client: Client) -> None:
    status, *text = client.blas("DotEx", 2, client.p, 77, 1, client.p, 77, 1, 0, 77, 0)
    assert status == NOT_SUPPORTED
    assert text == ["cublasDotEx: a result of an unknown type"]


def test_scalars_that_change_come_back_from_the_host(client: Client) -> None:
    given = [struct.pack("<f", v) for v in (5, 3, 0, 0)]
    wanted = [struct.pack("<f", v) for v in (1, 2, 8, 2)]
    assert client.blas("Srotg_v2", *given) == [0, *wanted]
    client.configure(DEVICE)
    assert client.blas("Srotg_v2", *(client.p + 4 * i for i in range(4))) == [0]
    assert client.fetch(0, "<4f") == (1, 2, 3, 5)


def test_info_comes_with_the_librarys_own_status(client: Client) -> None:
    def solve(n: int) -> list[Any]:
        return client.blas("SgetrsBatched", 0, n, 1, client.p, 2, 0, client.p, 2, 1)

    assert solve(2) == [0, 0, 0]
    assert solve(-1) == [0, -3, INVALID_VALUE]
    client.post("cublasSgetrsBatched", HANDLE, 0, -1, 1, client.p, 2, 0, client.p, 2, 1)
    client.drain()
    code, text = client.take_error()
    assert (code, text) == (999, "cublasSgetrsBatched: status 7")


def test_a_handle_is_told_of_multiprocessors_and_workspace(client: Client) -> None:
    def told() -> list[bytes]:
        return [client.blas(name, 1, client.p, 1, 0)[1] for name in ("Isamax_v2", "Isamin_v2")]

    client.configure(HOST, client.p + 1024, 1024, 17)
    assert told() == [struct.pack("<i", 17), struct.pack("<i", 1)]
    client.configure(HOST)
    assert told() == [bytes(4), bytes(4)]


def test_algorithms_are_the_librarys(client: Client) -> None:
    status, made = client.call("lt_algo_init", 68, 0, 0, 0, 0, 0, 7)
    assert (status, made) == (0, struct.pack("<8Q", 7, 0, 68, *[0] * 5))
    status, changed = client.call("lt_algo_set", made, 1, struct.pack("<i", 18))
    assert (status, changed) == (0, struct.pack("<8Q", 7, 18, 68, *[0] * 5))
    assert client.call("lt_algo_get", changed, 1, 4) == [0, struct.pack("<i", 18), 8]
    assert client.call("lt_algo_get", changed, 1, 0) == [0, b"", 8]
    checked = client.call("lt_algo_check", [68, 0, []], *[SQUARE] * 4, changed)
    assert checked == [0, [[changed, 4096, 0.5]]]
    bad = struct.pack("<8Q", 99, *[0] * 7)
    assert client.call("lt_algo_check", [68, 0, []], *[SQUARE] * 4, bad)[0] == INVALID_VALUE
    assert client.call("lt_algo_set", made, 9, b"????")[0] == INVALID_VALUE
    for short in (b"", made[:-1]):
        assert client.call("lt_algo_get", short, 1, 4)[0] == INVALID_VALUE
    assert client.call("lt_algo_get", made, 1, 1 << 40)[0] == INVALID_VALUE


ROUTINES = [m for m in MESSAGES.values() if m.lane and m.name.startswith("cublas")]


def test_every_routine_reaches_its_function(client: Client) -> None:
    """The fake library has them all; a result that it does not write is 0, and nobody else's."""

    def value(field: Field) -> Any:
        if field.kind is Kind.SCALAR:
            return bytes(int(field.size) if field.size.isdigit() else 4)
        return {Kind.BLAS: HANDLE, Kind.PTR: client.p}.get(field.kind, 0)

    assert len(ROUTINES) > 150
    for routine in ROUTINES:
        status, *outputs = client.call(routine.name, *map(value, routine.fields))
        assert (routine.name, status) == (routine.name, 0)
        results = [field for field in routine.fields if field.kind is Kind.RESULT]
        assert len(outputs) == (len(results) or len(outputs))
        assert all(set(data) <= {0} for data in outputs if results)
