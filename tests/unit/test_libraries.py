"""Calls of libraries as a session sees them: their form, their handles, what is kept of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from carried_calls import carried
from test_session_walk import PLACE, Chunks

from mnemosyne.api.rows import Library
from mnemosyne.api.spec import Spec
from mnemosyne.codegen.libraries import render_functions
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.carried import NUMBER_OF
from mnemosyne.server import libraries
from mnemosyne.server.errors import (
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    CallError,
    LibraryError,
)
from mnemosyne.server.journal import KeptJournal
from mnemosyne.server.libraries import LibraryCall
from mnemosyne.server.session import Deferred, Effects, Outputs, Session

PLAN, MATRIX, HANDLE = 0x50, 0x60, 0x70
MAKE_PLAN = [PLAN, 1, struct.pack("<q", 8), b"", 1, 8, 4, b"", 1, 8, 4, 3, 4]
CSR = [MATRIX, 4, 4, 0, 0, 0, 0, 2, 2, 0, 0]


class Device:
    """A session, and what is executed for it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.fails: Exception | None = None
        self.handlers = libraries.handlers(self.run)
        self.kept = KeptJournal()
        self.session = self.new_session()

    def new_session(self) -> Session:
        return Session(1, PLACE, Effects(Chunks({}), lambda offset, size: None, lambda: 0.0))

    def run(self, s: Session, c: LibraryCall) -> Outputs:
        if self.fails:
            raise self.fails
        self.done.append((c.call.name, c.values))
        return libraries.nothing(s, c)

    def call(self, function: str, *arguments: Any, stream: int = 0) -> Any:
        message, *fields = carried(function, *arguments, stream=stream)
        outputs = self.handlers[message](self.session, *fields)
        self.kept.apply(self.session.journal.take())
        return outputs

    def restored(self) -> list[str]:
        """What another worker executes."""
        self.done.clear()
        self.session = self.new_session()
        libraries.restore(self.session, self.kept.entries(), self.run)
        return [name for name, _ in self.done]


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.mark.parametrize(
    ("function", "arguments", "complaint"),
    [
        ("cufftCreate", [], "cufftCreate: 0 arguments, expected 1"),
        ("cufftCreate", [1, 2], "2 arguments, expected 1"),
        ("cufftCreate", [-1], "plan is no handle"),
        ("cufftCreate", [b"1"], "plan is no handle"),
        ("cufftXtExec", [1, 0, 0, 2**31], "direction is no int"),
        ("cufftXtExec", [1, 0, [], 0], "output is no ptr"),
        ("cufftXtMakePlanMany", [*MAKE_PLAN[:2], b"1234", *MAKE_PLAN[3:]], "n has 4"),
        ("cufftXtMakePlanMany", [*MAKE_PLAN[:2], b"", *MAKE_PLAN[3:]], "n has 0 bytes"),
        (
            "cusparseSpGEMM_compute",
            [HANDLE, 0, 0, bytes(4), 1, 2, 64, 3, 0, 0, 4, 0, 0],
            "scalars in two memories",
        ),
        ("cufftXtMakePlanMany", [PLAN, -1, *MAKE_PLAN[2:]], "n has 8 bytes"),
        ("cusolverDnXgesvdjSetTolerance", [1, 2], "tolerance is no real"),
        ("cusolverDnXgesvdjSetTolerance", [1, b"1"], "tolerance is no real"),
        ("cusolverDnSgesvd", [1, 128, *[0] * 14], "jobu is no int"),
        ("cusparseSpMV", [1, 0, b"", *[0] * 7], "alpha is no scalar"),
        ("cusparseSpMatSetAttribute", [1, 0, b"1234", 3], "data has 4 bytes"),
    ],
)
def test_what_is_not_as_the_specification_says_ends_the_client(
    device: Device, function: str, arguments: list[Any], complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        device.call(function, *arguments)


@pytest.mark.parametrize(
    ("message", "function"),
    [
        ("cufft_call", "cusolverDnCreate"), ("cufft_call", ""), ("cufft_call", "cufftXtExec"),
        ("cufft_run", NUMBER_OF["cusolverDnSgesvd"]), ("cufft_run", NUMBER_OF["cufftCreate"]),
        ("cufft_run", len(NUMBER_OF)),
    ],
)  # fmt: skip
def test_a_message_carries_calls_of_its_own_alone(
    device: Device, message: str, function: str | int
) -> None:
    area = [0] if message.endswith("_run") else []
    with pytest.raises(ProtocolError, match=f"{message}: it carries no call '{function}'"):
        device.handlers[message](device.session, function, 0, *area, [1])


def expect_code(device: Device, code: int, function: str, *arguments: Any, **where: int) -> None:
    with pytest.raises(CallError) as caught:
        device.call(function, *arguments, **where)
    assert caught.value.code == code


def test_handles_are_of_a_type_and_exist_once(device: Device) -> None:
    device.call("cufftCreate", PLAN)
    device.call("cusolverDnCreate", HANDLE)
    expect_code(device, INVALID_VALUE, "cufftCreate", PLAN)
    expect_code(device, INVALID_VALUE, "cusparseCreate", PLAN)
    expect_code(device, INVALID_VALUE, "cusparseCreate", 0)
    expect_code(device, INVALID_RESOURCE_HANDLE, "cufftDestroy", HANDLE)
    expect_code(device, INVALID_RESOURCE_HANDLE, "cufftDestroy", 0)
    expect_code(device, INVALID_RESOURCE_HANDLE, "cusparseDestroy", HANDLE)
    expect_code(device, INVALID_RESOURCE_HANDLE, "cufftCreate", 0x99, stream=5)
    device.call("cufftDestroy", PLAN)
    expect_code(device, INVALID_RESOURCE_HANDLE, "cufftDestroy", PLAN)
    assert set(device.session.objects) == {HANDLE}


def test_some_handles_may_be_null(device: Device) -> None:
    device.call("cusolverDnCreate", HANDLE)
    sizes = [0, 4, 4, 0, 0, 4, 0, 0, 0]
    assert device.call("cusolverDnXgeqrf_bufferSize", HANDLE, *sizes) == (0, 0)
    assert device.done[-1][1]["params"] is None
    expect_code(device, INVALID_RESOURCE_HANDLE, "cusolverDnXgeqrf_bufferSize", HANDLE, 0x99,
                *sizes[1:])  # fmt: skip
    expect_code(device, INVALID_RESOURCE_HANDLE, "cusolverDnXgeqrf_bufferSize", 0, *sizes)


def test_what_comes_back_is_in_the_order_of_the_parameters(device: Device) -> None:
    device.call("cusparseCreateCsr", *CSR)
    assert device.call("cusparseSpMatGetSize", MATRIX) == (0, 0, 0)
    device.call("cusparseCreate", HANDLE)
    device.call("cusparseCreateBsrsv2Info", 0x71)
    assert device.call("cusparseXbsrsv2_zeroPivot", HANDLE, 0x71, 0) == (bytes(4),)
    assert device.call("cusparseXbsrsv2_zeroPivot", HANDLE, 0x71, 64) == ()


def test_a_call_that_fails_has_no_effect(device: Device) -> None:
    device.fails = LibraryError(2, "no memory")
    with pytest.raises(LibraryError):
        device.call("cufftCreate", PLAN)
    assert (device.session.objects, device.kept.entries()) == ({}, [])
    device.fails = None
    device.call("cufftCreate", PLAN)
    device.fails = LibraryError(4, "a bad size")
    with pytest.raises(LibraryError):
        device.call("cufftXtMakePlanMany", *MAKE_PLAN)
    device.fails = None
    assert device.restored() == ["cufftCreate"]


def test_a_call_that_is_deferred_takes_effect_when_it_is_done(device: Device) -> None:
    deferred = libraries.handlers(lambda s, c: Deferred(lambda: 7, lambda result: (result,)))
    outputs = deferred["cufft_call"](device.session, "cufftCreate", 0, [PLAN])
    assert isinstance(outputs, Deferred)
    assert device.session.objects == {}
    assert outputs.finish(outputs.work()) == (7,)
    assert set(device.session.objects) == {PLAN}


def test_handles_are_made_and_set_again_from_the_journal(device: Device) -> None:
    device.call("cufftCreate", PLAN)
    device.call("cufftSetAutoAllocation", PLAN, 1)
    device.call("cufftXtMakePlanMany", *MAKE_PLAN)
    device.call("cufftSetAutoAllocation", PLAN, 0)
    device.call("cufftXtExec", PLAN, 0, 0, 1)
    device.call("cusparseCreateCsr", *CSR)
    for attribute in (0, 1, 0):
        device.call("cusparseSpMatSetAttribute", MATRIX, attribute, b"\1\0\0\0", 4)
    device.call("cusolverDnCreate", HANDLE)
    device.call("cusolverDnDestroy", HANDLE)
    assert device.restored() == [
        "cufftCreate", "cufftXtMakePlanMany", "cufftSetAutoAllocation", "cusparseCreateCsr",
        "cusparseSpMatSetAttribute", "cusparseSpMatSetAttribute",
    ]  # fmt: skip
    assert device.done[2][1]["autoAllocate"] == 0
    assert [values["attribute"] for _, values in device.done[4:]] == [1, 0]
    assert set(device.session.objects) == {PLAN, MATRIX}


def test_what_a_handle_has_found_out_is_not_restored(device: Device) -> None:
    for create, number in (
        ("cusparseCreate", HANDLE), ("cusparseCreateMatDescr", 0x72),
        ("cusparseCreateBsrsv2Info", 0x71),
    ):  # fmt: skip
        device.call(create, number)
    analysis = [HANDLE, 0, 0, 1, 0, 0x72, 0, 0, 0, 2, 0x71, 0, 0]
    device.call("cusparseSbsrsv2_analysis", *analysis)
    with pytest.raises(ValueError, match="a bsrsv2Info_t has found out cannot be restored"):
        device.restored()


@pytest.mark.parametrize("words", ["@h x.d n", "@h x.d y.d", "@h " + "n " * 24])
def test_a_routine_that_a_lane_cannot_call_is_no_part_of_a_specification(words: str) -> None:
    library = Library("cufft", "cufftResult", {"h": "cufftHandle"})
    with pytest.raises(ValueError, match="cufftNew: the lane cannot pass its arguments"):
        render_functions(Spec(tuple(library.calls(("cufftNew", "", words))), (), ()))
