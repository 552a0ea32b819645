"""cuFFT, cuSOLVER and cuSPARSE on the CUDA device: how a library is called for a client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from carried_calls import carried
from cuda_server import CudaServer, FakeGpu, Program, finish
from fakecuda.kernels import build_kernels
from fakecuda.libraries import build_driver_with_libraries
from ring import MESSAGES, RingClient
from servers import wait_until

from mnemosyne.protocol.carried import NUMBER_OF
from mnemosyne.protocol.frames import encode

PRELUDE = """
from ctypes import c_double, c_longlong as ll, c_byte
def numbers(*values): return (ll * len(values))(*values)
def plan():
    made = c_int()
    ok(cuda.cufftCreate(byref(made)))
    return made
def make(p, batch=2):
    work = size_t()
    ok(cuda.cufftXtMakePlanMany(p, 2, numbers(6, 8), numbers(7, 9), ll(1), ll(63), 4, None, ll(3),
                                ll(4), 4, ll(batch), byref(work), 4))
    return work.value
def handle(name):
    made = c_void_p()
    ok(getattr(cuda, name)(byref(made)))
    return made
DATA = bytes(range(16))
"""


@dataclass
class Libraries:
    """A server whose libraries write down how they are called, and what starts clients of it."""

    server: CudaServer
    log: Path
    started: list[Program]

    def start(self, extra: str = "") -> Program:
        self.started.append(self.server.program(PRELUDE + extra))
        return self.started[-1]

    def calls(self) -> list[str]:
        """Since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return lines


@pytest.fixture(scope="module")
def gpu_with_libraries(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    folder = tmp_path_factory.mktemp("libraries")
    return FakeGpu(build_driver_with_libraries(folder), build_kernels(folder))


@pytest.fixture
def libraries(gpu_with_libraries: FakeGpu, tmp_path: Path) -> Iterator[Libraries]:
    log = tmp_path / "calls"
    options = ("--clients", "3", "--memory-per-client", "64MiB")
    server = gpu_with_libraries.serve(tmp_path, *options, FAKE_LIBRARY_LOG=str(log))
    running = Libraries(server, log, [])
    yield running
    for program in running.started:
        program.kill()
    assert server.ended(*running.started), server.log.read_text()
    finish(server)


def test_arguments_arrive_as_the_program_gave_them(libraries: Libraries) -> None:
    client = libraries.start("p = plan()\n")
    assert client.get("make(p)") == 1006
    client.do("ok(cuda.cufftSetWorkArea(p, c_void_p(malloc(512)))); synchronize()")
    assert libraries.calls()[:2] == [
        "create 1",
        "plan 1 rank 2 n 6 8 in 7 step 1 63 type 4 out none step 3 4 type 4 batch 2 as 4",
    ]
    client.do("h, params = handle('cusolverDnCreate'), handle('cusolverDnCreateParams')")
    client.do("device, host = size_t(), size_t()")
    client.do(
        "ok(cuda.cusolverDnXpotrf_bufferSize(h, params, 0, ll(7), 1, None, ll(7), 1, "
        "byref(device), byref(host)))"
    )
    assert client.get("device.value, host.value") == (70, 140)
    for given in ("params", "None"):
        client.do(
            f"ok(cuda.cusolverDnXpotrf(h, {given}, 1, ll(7), 1, c_void_p(48), ll(7), 1, None, "
            "device, host_memory := ctypes.create_string_buffer(140), host, c_void_p(64)))"
        )
    client.do(
        "N = None; ok(cuda.cusolverDnSgesvd(h, c_byte(65), c_byte(78), *[1] * 2, N, 1, N, N, "
        "1, N, 1, N, 1, N, N)); synchronize()"
    )
    assert [line for line in libraries.calls() if "->" not in line] == [
        "stream 0x1010",
        "potrf as set uplo 1 n 7 A 0x30 room 70 140 info 0x40",
        "potrf by default uplo 1 n 7 A 0x30 room 70 140 info 0x40", "gesvd A N",
    ]  # fmt: skip
    client.do("rest = (c_double * 3)()")
    client.do(
        "ok(cuda.cusolverDnSgesvdaStridedBatched(h, 1, 1, 1, 1, N, 1, ll(1), N, ll(1), N, 1, "
        "ll(1), N, 1, ll(1), N, 1, N, rest, 3))"
    )
    assert client.get("list(rest)") == [0.5, 1.5, 2.5]


def test_a_library_works_in_the_stream_of_the_clients_handle(libraries: Libraries) -> None:
    client = libraries.start(
        "p, a, b, s, gate = plan(), malloc(16), malloc(16), stream(1), Gate()\n"
    )
    client.do("make(p); put(a, bytes(16)); put(b, bytes(16)); synchronize()")
    client.do("ok(cuda.cufftSetStream(p, s))")
    client.do("gate.close(s); fill(a, 0x03020100, 4, s)")
    run = "ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(b), -1))"
    client.do(run)
    assert client.get("cuda.cudaStreamQuery(s)") == 600  # not ready: it waits behind the gate
    client.do("gate.open(); ok(cuda.cudaStreamSynchronize(s))")
    assert client.get("words(b, 4)") == [0x03020100] * 4
    client.do(run + "; ok(cuda.cufftSetStream(p, None)); " + run + "; synchronize()")
    calls = [line.split()[0] for line in libraries.calls()]
    assert calls == ["create", "plan", "stream", "exec", "exec", "stream", "exec"]


def test_a_plans_work_area_is_set_where_it_has_changed(libraries: Libraries) -> None:
    client = libraries.start("p, a = plan(), malloc(64)\nb = a + 16\n")
    client.do("""make(p)
def run(area):
    ok(cuda.cufftSetWorkArea(p, c_void_p(area)))
    ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(b), 1))
for area in (a + 32, a + 32, a + 48): run(area)
synchronize()""")
    a = client.get("a")
    assert [line for line in libraries.calls() if line.split()[0] in ("area", "exec")] == [
        f"area 1 {a + 32:#x}", "exec 1 1", "exec 1 1", f"area 1 {a + 48:#x}", "exec 1 1",
    ]  # fmt: skip
    assert client.get("cuda.cufftSetWorkArea(12345, None)") == 1  # CUFFT_INVALID_PLAN


def test_calls_run_between_the_launches_around_them(libraries: Libraries) -> None:
    client = libraries.start("p, a = plan(), malloc(32)\nmake(p)\n")
    client.do("""for i in range(1000):
    fill(a, i, 4)
    ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(a + 16), 1))
    fill(a, 0, 4)
    if i % 100 == 0: assert words(a, 8) == [0] * 4 + [i] * 4""")
    assert client.get("words(a, 8)") == [0] * 4 + [999] * 4
    assert [line.split()[0] for line in libraries.calls()].count("exec") == 1000


def test_what_is_only_settings_is_sent_when_it_is_used_and_used_again(libraries: Libraries) -> None:
    client = libraries.start("h, N = handle('cusolverDnCreate'), None\n")
    client.do("""def svd(*tolerances):
    info = handle('cusolverDnCreateGesvdjInfo')
    for one in tolerances: ok(cuda.cusolverDnXgesvdjSetTolerance(info, c_double(one)))
    ok(cuda.cusolverDnSgesvdjBatched(h, 1, 1, 1, N, 1, N, N, 1, N, 1, N, 1, N, info, 1))
    return info
def end(info): ok(cuda.cusolverDnDestroyGesvdjInfo(info))
end(svd(0.5)); end(svd(0.5)); end(svd(0.25)); end(svd()); end(svd(0.5))
both = svd(0.5), svd(0.5)
ok(cuda.cusolverDnXgesvdjSetTolerance(both[0], c_double(0.125)))
end(both[0]); end(both[1]); end(svd(0.5, 0.125)); end(handle('cusolverDnCreateGesvdjInfo'))
synchronize()""")
    assert [line.split(" ->")[0] for line in libraries.calls()[1:]] == [
        "gesvdj", "tolerance 0.5", "stream 0x1010", "svd to 0.5", "svd to 0.5",
        "gesvdj", "tolerance 0.25", "svd to 0.25", "gesvdj", "svd to 0", "svd to 0.5",
        "svd to 0.5", "gesvdj", "tolerance 0.5", "svd to 0.5", "tolerance 0.125", "svd to 0.125",
    ]  # fmt: skip
    assert client.get("cuda.cusolverDnDestroyGesvdjInfo(both[0])") == 1  # NOT_INITIALIZED
    assert client.get("cuda.cusolverDnXgesvdjSetTolerance(both[0], c_double(1))") == 1


def test_scalars_are_where_the_pointer_mode_says(libraries: Libraries) -> None:
    client = libraries.start("h, d = handle('cusparseCreate'), handle('cusparseCreateMatDescr')\n")
    client.do("""def sum(alpha, beta):
    N = None
    return cuda.cusparseScsrgeam2(h, 4, 5, alpha, d, 0, N, N, N, beta, d, 0, N, N, N, d, N, N, N, N)
def count(n):
    N = None
    return cuda.cusparseXcsrgeam2Nnz(h, 4, 5, d, 0, N, N, d, 0, N, N, d, N, n, N)
n = c_int()
ok(sum(byref(c_float(1.5)), byref(c_float(-2)))); ok(count(byref(n)))
ok(cuda.cusparseSetPointerMode(h, 1))
ok(sum(c_void_p(48), c_void_p(64))); ok(count(c_void_p(80)))
ok(cuda.cusparseSetPointerMode(h, 0))
ok(sum(byref(c_float(3)), byref(c_float(4)))); synchronize()""")
    assert client.get("n.value") == 77
    assert [line for line in libraries.calls() if "->" not in line][1:] == [
        "sum of 4 5 by 1.5 -2", "mode 1", "sum of 4 5 in device memory",
        "count into device memory 0x50", "mode 0", "sum of 4 5 by 3 4",
    ]  # fmt: skip


def test_what_a_handle_finds_out_is_called_as_what_only_runs(libraries: Libraries) -> None:
    client = libraries.start("""N, s, size = None, stream(1), size_t(100)
h, d, product = map(handle, ('cusparseCreate', 'cusparseCreateMatDescr',
                             'cusparseSpGEMM_createDescr'))
m = c_void_p()
ok(cuda.cusparseCreateCsr(byref(m), ll(4), ll(4), ll(2), N, N, N, 2, 2, 0, 0))
ok(cuda.cusparseSetStream(h, s))
def estimate(alpha, beta, buffer):
    return cuda.cusparseSpGEMM_workEstimation(h, 0, 0, alpha, m, m, beta, m, 0, 0, product,
                                              byref(size), buffer)
def count():
    at = c_void_p(80) if cuda.mode else byref(c_int())
    ok(cuda.cusparseXcsrgeam2Nnz(h, 4, 5, d, 0, N, N, d, 0, N, N, d, N, at, N))
""")
    client.do("cuda.mode = 0; ok(estimate(byref(c_float(1.5)), byref(c_float(-2)), N)); count()")
    assert client.get("size.value") == 101
    client.do("cuda.mode = 1; ok(cuda.cusparseSetPointerMode(h, 1)); count()")
    assert client.get("estimate(c_void_p(48), c_void_p(64), c_void_p(32))") == 7
    assert client.get("size.value") == 101
    assert [line for line in libraries.calls() if "->" not in line] == [
        "stream 0x1010", "estimate by 1.5 -2 of 100", "mode 1",
        "count into device memory 0x50", "estimate in device memory into 0x20",
    ]  # fmt: skip


def test_the_program_gets_the_status_of_the_library(libraries: Libraries) -> None:
    client = libraries.start("p = plan()\nmake(p)\n")
    assert client.get("[cuda.cufftXtExec(p, None, None, code) for code in (8, 13)]") == [8, 13]
    assert client.get("cuda.cudaDeviceSynchronize()") == 0
    assert client.get("cuda.cufftXtExec(12345, None, None, 1)") == 1  # CUFFT_INVALID_PLAN
    assert client.get("cuda.cufftSetStream(p, c_void_p(12345))") == 1
    assert client.get("cuda.cufftSetStream(12345, None)") == 1


def test_a_captured_stream_refuses_a_librarys_work(libraries: Libraries) -> None:
    client = libraries.start("p, s, graph = plan(), stream(1), c_void_p()\nmake(p)\n")
    client.do("ok(cuda.cufftSetStream(p, s)); ok(cuda.cudaStreamBeginCapture(s, 1))")
    assert client.get("cuda.cufftXtExec(p, None, None, 1)") == 5  # CUFFT_INTERNAL_ERROR
    assert client.get("cuda.cudaStreamEndCapture(s, byref(graph))") == 901
    client.do("synchronize()")
    assert [line.split()[0] for line in libraries.calls()] == ["create", "plan"]


def test_a_fault_that_a_library_hides_is_noticed(libraries: Libraries) -> None:
    client, neighbour = libraries.start("p, a = plan(), malloc(32)\n"), libraries.start()
    client.do("make(p); synchronize()")
    neighbour.do("a = malloc(4); fill(a, 7); synchronize()")
    client.do("launch('fake_illegal'); cuda.cufftXtExec(p, c_void_p(a), c_void_p(a + 16), 1)")
    assert client.get("cuda.cudaDeviceSynchronize()") == 700
    assert wait_until(libraries.server.accepts, 60)
    assert neighbour.get("words(a)") == [7]


def test_a_client_that_ends_takes_its_handles_with_it(libraries: Libraries) -> None:
    first, second = libraries.start("p = plan()\n"), libraries.start("p, q = plan(), plan()\n")
    first.do("h = handle('cusolverDnCreate'); make(p)")
    second.do("make(p); make(q); ok(cuda.cufftDestroy(p)); synchronize()")
    libraries.calls()
    first.kill()
    assert libraries.server.ended(first)
    gone = libraries.calls()
    assert [line.split()[:2] for line in gone] == [["destroy", "1"], ["destroy", "solver"]]
    assert second.get("make(q)") == 1006
    assert second.get("cuda.cufftXtExec(p, None, None, 1)") == 1


def test_handles_are_made_again_in_another_worker(libraries: Libraries) -> None:
    client, guilty = libraries.start(), libraries.start()
    client.do("p, a, b, area = plan(), malloc(16), malloc(16), malloc(16)")
    client.do("ok(cuda.cufftSetAutoAllocation(p, 1)); ok(cuda.cufftSetAutoAllocation(p, 0))")
    client.do("make(p, 5); put(a, DATA); put(b, bytes(16))")
    run = "ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(b), 1)); synchronize()"
    client.do("ok(cuda.cufftSetWorkArea(p, c_void_p(area))); " + run)
    libraries.calls()
    assert guilty.get("launch('fake_illegal') or cuda.cudaDeviceSynchronize()") == 700
    assert wait_until(libraries.server.accepts, 60)
    client.do("ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(b), 1)); synchronize()")
    assert client.get("get(b, 16) == DATA")
    assert [line for line in libraries.calls() if "destroy" not in line] == [
        "create 1", "allocate 1 0",
        "plan 1 rank 2 n 6 8 in 7 step 1 63 type 4 out none step 3 4 type 4 batch 5 as 4",
        "stream 1", f"area 1 {client.get('area'):#x}", "exec 1 1",
    ]  # fmt: skip


PLAN, SOLVER, SPARSE, MATRIX, N = 1, 2, 3, 4, 0
POTRF = [SOLVER, N, 0, 7, 1, N, 7, 1, N, 70]  # and the bytes of host memory, and the info
SVD = [SOLVER, 1, 1, 1, 1, N, 1, 1, N, 1, N, 1, 1, N, 1, 1, N, 1, N]  # and of how many


def attacker(libraries: Libraries) -> RingClient:
    """A session with a handle of each kind."""
    ring = libraries.server.ring()
    for name, number in (
        ("cufftCreate", PLAN), ("cusolverDnCreate", SOLVER), ("cusparseCreate", SPARSE),
        ("cusparseCreateMatDescr", MATRIX),
    ):  # fmt: skip
        message, *fields = carried(name, number)
        assert ring.call(message, *fields) == [0]
    return ring


@pytest.fixture(scope="module")
def hostile(
    gpu_with_libraries: FakeGpu, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Libraries]:
    """One server for all bad frames; another client must not notice anything."""
    folder = tmp_path_factory.mktemp("hostile")
    server = gpu_with_libraries.serve(folder, FAKE_LIBRARY_LOG=str(folder / "calls"))
    running = Libraries(server, folder / "calls", [])
    neighbour = running.start("p, a = plan(), malloc(32)\nmake(p); put(a, DATA)\n")
    yield running
    neighbour.do("ok(cuda.cufftXtExec(p, c_void_p(a), c_void_p(a + 16), 1))")
    assert neighbour.get("get(a + 16, 16) == DATA")
    neighbour.kill()
    assert server.ended(neighbour)
    finish(server)


REFUSED: dict[str, tuple[tuple[Any, ...], int]] = {
    "no such handle": (carried("cufftXtExec", 99, N, N, 1), 1),
    "a handle of another type": (carried("cufftXtExec", SOLVER, N, N, 1), 1),
    "no handle": (carried("cufftXtExec", 0, N, N, 1), 1),
    "parameters that do not exist": (carried("cusolverDnXpotrf", SOLVER, 9, *POTRF[2:], 0, N), 1),
    "no such stream": (carried("cufftXtExec", PLAN, N, N, 1, stream=99), 1),
    "host memory without end": (carried("cusolverDnXpotrf", *POTRF, 2**64 - 1, N), 2),
    "too much host memory": (carried("cusolverDnXpotrf", *POTRF, (1 << 30) + 1, N), 2),
    "a long reply": (carried("cusolverDnSgesvdaStridedBatched", *SVD, 1100), 2),
    "a function that the library lacks": (carried("cusolverDnXpotrs", SOLVER, *[N] * 11), 9),
    "what the library refuses": (carried("cufftXtExec", PLAN, N, N, 8), 8),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_has_a_status_and_one_line_and_the_session_goes_on(
    hostile: Libraries, case: str
) -> None:
    ring = attacker(hostile)
    (message, *fields), status = REFUSED[case]
    found, *text = ring.call(message, *fields)
    assert found == status
    assert all("\n" not in line for line in text)
    ring.post(message, *fields)
    ring.drain()
    assert ring.take_error()[0] == 999
    message, *fields = carried("cusolverDnXpotrf_bufferSize", SOLVER, N, 0, 7, 1, N, 7, 1)
    assert ring.call(message, *fields) == [0, 70, 140]
    ring.close()


NOT_DECLARED = "arguments are not as declared"
EXEC_FRAME = encode(MESSAGES["cufft_run"], *carried("cufftXtExec", PLAN, N, N, 1)[1:])


def a_sum(alpha: bytes | int, beta: bytes | int) -> tuple[Any, ...]:
    matrix = [MATRIX, 0, N, N, N]
    return carried("cusparseScsrgeam2", SPARSE, 4, 5, alpha, *matrix, beta, *matrix, MATRIX,
                   *[N] * 4)  # fmt: skip


BROKEN: dict[str, tuple[tuple[Any, ...], str]] = {
    "a function that no library has": (("cufft_run", 1000, 0, 0, []), "no library has a function"),
    "a function of the greatest number": (
        ("cufft_run", 2**32 - 1, 0, 0, []), "no library has a function"),
    "a function that makes a handle": (
        ("cufft_run", NUMBER_OF["cufftCreate"], 0, 0, [7]), "cufftCreate: it does not run"),
    "too few arguments": (carried("cufftXtExec", PLAN, N, N), NOT_DECLARED),
    "too many arguments": (carried("cufftXtExec", PLAN, N, N, 1, 1), NOT_DECLARED),
    "a number out of range": (carried("cufftXtExec", PLAN, N, N, 2**31), "is out of range"),
    "a letter out of range": (
        carried("cusolverDnSgesvd", SOLVER, 128, 78, *[1] * 13), "128 is out of range"),
    "bytes for a pointer": (carried("cufftXtExec", PLAN, b"12345678", N, 1), NOT_DECLARED),
    "a list for a pointer": (carried("cufftXtExec", PLAN, [N], N, 1), NOT_DECLARED),
    "a negative pointer": (carried("cufftXtExec", PLAN, -1, N, 1), NOT_DECLARED),
    "a scalar of no bytes": (a_sum(b"", bytes(4)), NOT_DECLARED),
    "a scalar too long": (a_sum(bytes(4), bytes(41)), NOT_DECLARED),
    "scalars in two memories": (a_sum(bytes(4), 64), "scalars in two memories"),
    "a call in a graph": (
        ("graph_frames", 0, len(EXEC_FRAME).to_bytes(4, "little") + EXEC_FRAME),
        "cufft_run cannot be in a graph"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_frame_that_cannot_be_meant_ends_that_session_alone(
    hostile: Libraries, case: str
) -> None:
    ring = attacker(hostile)
    message, *fields = a_sum(bytes(4), bytes(4))
    assert ring.call(message, *fields) == [0]
    frame, complaint = BROKEN[case]
    ring.post(*frame)
    reason = ring.wait_dead()
    assert reason.startswith("the server ended this session")
    assert complaint in reason
    ring.close()
