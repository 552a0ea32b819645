"""cuFFT, cuSOLVER and cuSPARSE on the CUDA device: how a library is called for a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda_server import FakeGpu, finish
from library_server import Libraries, build_gpu_with_libraries
from servers import wait_until


@pytest.fixture(scope="module")
def gpu_with_libraries(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return build_gpu_with_libraries(tmp_path_factory.mktemp("libraries"))


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
        "stream 0x1010", "sizes of 7",
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


def test_a_question_that_its_arguments_decide_is_asked_once(libraries: Libraries) -> None:
    client = libraries.start("h, N = handle('cusolverDnCreate'), None\n")
    client.do("""def sizes(n, params=N):
    device, host = size_t(), size_t()
    code = cuda.cusolverDnXpotrf_bufferSize(h, params, 0, ll(n), 1, N, ll(7), 1, byref(device),
                                            byref(host))
    return code, device.value, host.value
params = handle('cusolverDnCreateParams')""")
    asked = "[sizes(7), sizes(7), sizes(8), sizes(7, params), sizes(7), sizes(7, c_void_p(5))]"
    expected = [(0, 70, 140), (0, 70, 140), (0, 80, 160), (0, 70, 140), (0, 70, 140), (1, 0, 0)]
    assert client.get(asked) == expected
    assert client.get("[sizes(-7)[0], sizes(-7)[0]]") == [3, 3]
    assert [line for line in libraries.calls() if "sizes" in line] == [
        "sizes of 7", "sizes of 8", "sizes of 7", "sizes of -7", "sizes of -7",
    ]  # fmt: skip


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
