"""Frames: what the specification allows gets through, anything else is a ProtocolError."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from golden import INTEGERS
from hypothesis import given
from hypothesis import strategies as st

from mnemosyne.api import SPEC, Field, Kind, Message
from mnemosyne.protocol import ProtocolError, control
from mnemosyne.protocol.frames import decode, encode, encode_reply

UNSIGNED = st.integers(0, 2**64 - 1)
VALUES = {
    Kind.REAL: st.floats(allow_nan=False),
    Kind.SCALAR: st.binary(min_size=1, max_size=40) | UNSIGNED,
    Kind.BYTES: st.binary(max_size=300),
    # Not st.text: its table of characters takes a second to build, which Hypothesis takes for slow.
    Kind.TEXT: st.binary(max_size=100).map(lambda data: data.decode("latin-1")),
    Kind.LIST: st.lists(st.integers(0, 100) | st.binary(max_size=20), max_size=5),
}


def values_of(fields: tuple[Field, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*map(values_for, fields))


def values_for(field: Field) -> st.SearchStrategy[Any]:
    if field.kind is Kind.INT:
        return st.integers(*INTEGERS[field.ctype])
    return VALUES.get(field.kind, UNSIGNED)


@st.composite
def frames(draw: st.DrawFn) -> tuple[Message, list[Any]]:
    message = draw(st.sampled_from(list(SPEC.messages.values())))
    return message, list(draw(values_of(message.fields)))


@given(frames())
def test_what_is_encoded_comes_back(frame: tuple[Message, list[Any]]) -> None:
    message, values = frame
    assert decode(encode(message, *values)) == (message, values)


@given(frames(), st.data())
def test_a_truncated_frame_is_refused(
    frame: tuple[Message, list[Any]], data: st.DataObject
) -> None:
    encoded = encode(frame[0], *frame[1])
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        decode(encoded[:cut])


@given(st.binary(max_size=64))
def test_any_bytes_are_a_legal_frame_or_a_protocol_error(data: bytes) -> None:
    try:
        message, values = decode(data)
    except ProtocolError:
        return
    assert len(values) == len(message.fields)


def _named(name: str) -> Message:
    return next(m for m in SPEC.messages.values() if m.name == name)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([], "not an array that starts"),
        ([0], "no message has number 0"),
        ([10_000], "no message has number 10000"),
        ([True, 1], "not an array that starts"),
        ([1], "malloc: 0 fields, expected 1"),
        ([1, 1, 1], "malloc: 2 fields, expected 1"),
        ([1, "1"], "malloc: bytes is no int"),
        ([1, 1.5], "malloc: bytes is no int"),
        ([1, True], "malloc: bytes is no int"),
        ([2, -1], "free: devPtr is no ptr"),
        ([1, -1], "malloc: bytes is no int"),
        ([14, 1, 2**31, 0], "function_attribute: attribute is no int"),
        ([11, 1, 1, -1], "event_record: flags is no int"),
        ([36, *[0] * 6, b"", *[0] * 7], "cublasSgemm_v2: alpha is no scalar"),
        ([36, *[0] * 6, b"x" * 41, *[0] * 7], "cublasSgemm_v2: alpha is no scalar"),
        ([12, [1, 2.5], "k"], "kernel: module is no list"),
        ([12, [None], "k"], "kernel: module is no list"),
        ([17, *[1] * 9, b"", ["text"]], "launch_ex: attributes is no list"),
    ],
)
def test_complaints_say_what_is_wrong(values: list[Any], complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(msgpack.packb(values))


def test_lists_nest_as_deep_as_they_may() -> None:
    deep: list[Any] = []
    for depth in range(1, 70):
        frame = msgpack.packb([12, deep, "k"])
        if depth <= 64:
            decode(frame)
        else:
            with pytest.raises(ProtocolError, match="kernel: module is no list"):
                decode(frame)
        deep = [deep]


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x91" * 100_000)


def test_a_list_longer_than_any_is_refused_before_it_is_read() -> None:
    _, (module, name) = decode(encode(_named("kernel"), [0] * 1024, "k"))
    assert (module, name) == ([0] * 1024, "k")
    for claimed in (1025, 2**20, 2**32 - 1):
        start = b"\x93\x0c\xdd" + claimed.to_bytes(4, "big")
        with pytest.raises(ProtocolError, match="exceeds max_array_len"):
            decode(start + bytes(2**20))


@pytest.mark.parametrize("value", [{1: 2}, msgpack.Timestamp(1), msgpack.ExtType(5, b"x")])
def test_kinds_of_values_that_no_frame_has_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb([12, [value], "k"]))
    with pytest.raises(ProtocolError):
        control.decode(msgpack.packb([16, 1, value]))


def test_numbers_are_stable() -> None:
    """A number that changes its message breaks every client built before."""
    assert {n: SPEC.messages[n].name for n in (1, 2, 3, 16, 50)} == {
        1: "malloc", 2: "free", 3: "host_alloc", 16: "launch", 50: "cublasGemmStridedBatchedEx",
    }  # fmt: skip


def test_a_reply_is_status_then_outputs() -> None:
    assert msgpack.unpackb(encode_reply(0, 7, b"x")) == [0, 7, b"x"]


@given(st.lists(st.integers(1, 9), max_size=8), st.binary(max_size=8))
def test_control_messages_come_through_in_any_chunking(cuts: list[int], name: bytes) -> None:
    sent = [control.Close(1, "gone"), control.Chunk(2, 3, 4), control.Refusal(name.hex())]
    data = b"".join(control.encode(message) for message in sent)
    reader, received, at = control.Reader(), [], 0
    for cut in [*cuts, len(data)]:
        received += reader.feed(data[at : at + cut])
        at += cut
    assert received == sent


def test_an_endless_control_message_is_refused_by_its_length() -> None:
    with pytest.raises(ProtocolError, match="limit"):
        control.Reader().feed(b"\xff\xff\xff\xff")


@given(st.binary(max_size=64))
def test_any_control_bytes_are_legal_or_a_protocol_error(data: bytes) -> None:
    try:
        control.decode(data)
    except ProtocolError:
        return
