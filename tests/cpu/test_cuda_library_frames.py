"""Frames of cuFFT, cuSOLVER and cuSPARSE as a hostile or unlucky client may send them to a lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from carried_calls import carried
from cuda_server import finish
from library_server import Libraries, build_gpu_with_libraries
from ring import MESSAGES, RingClient

from mnemosyne.protocol.carried import NUMBER_OF
from mnemosyne.protocol.frames import encode

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
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libraries]:
    """One server for all bad frames; another client must not notice anything."""
    folder = tmp_path_factory.mktemp("hostile")
    server = build_gpu_with_libraries(folder).serve(folder, FAKE_LIBRARY_LOG=str(folder / "calls"))
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
        ("cufft_run", NUMBER_OF["cufftCreate"], 0, 0, [7]), "carries no call of cufftCreate"),
    "a function of another library": (
        ("cusparse_run", *carried("cufftXtExec", PLAN, N, N, 1)[1:]), "no call of cufftXtExec"),
    "no sizes of a plan": (
        carried("cufftXtMakePlanMany", PLAN, 1, b"", b"", 1, 1, 1, b"", 1, 1, 1, 1, 1), "n has 0"),
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
