"""The golden frames: Python writes and reads the kept bytes (tests/native: so does C++)."""

from __future__ import annotations

from collections.abc import Iterator

import golden
import pytest

from mnemosyne.api import SPEC, Kind
from mnemosyne.protocol import ProtocolError, control
from mnemosyne.protocol.frames import decode

FRAMES = [frame for text, frame in golden.kept("frames.txt") if not text.startswith("reply ")]
BODIES = [body for _, body in golden.kept("control.txt")]


@pytest.mark.parametrize(
    ("file", "lines"),
    [("frames.txt", golden.frame_lines), ("control.txt", golden.control_lines)],
)
def test_the_wire_is_as_it_was(file: str, lines: object) -> None:
    """Where it is meant to change: raise PROTOCOL_VERSION, then scripts/write-golden-frames."""
    kept, written = (golden.FOLDER / file).read_text().splitlines(), list(lines())  # type: ignore[operator]
    for old, new in zip(kept, written, strict=True):
        assert new == old


def test_kept_frames_are_read_as_the_values_they_were_made_of() -> None:
    for frame, (message, values) in zip(FRAMES, golden.frame_values(), strict=True):
        found, got = decode(frame)
        assert (found, repr(got)) == (message, repr(values))  # not-a-number equals nothing


def test_kept_control_messages_are_read_as_the_values_they_were_made_of() -> None:
    assert [control.decode(body) for body in BODIES] == list(golden.control_values())


def test_every_message_and_every_edge_occurs() -> None:
    seen: dict[object, list[object]] = {}
    possible: dict[object, list[object]] = {}
    for message, values in golden.frame_values():
        for field, value in zip(message.fields, values, strict=True):
            kind = field.ctype if field.kind is Kind.INT else field.kind
            seen.setdefault(kind, []).append(value)
            possible[kind] = golden.edges_of(message, field)
    assert {message.name for message, _ in golden.frame_values()} == {
        message.name for message in SPEC.messages.values()
    }
    for kind, edges in possible.items():
        assert all(repr(edge) in map(repr, seen[kind]) for edge in edges), kind


def _cuts(data: bytes) -> Iterator[bytes]:
    """Every truncation; of long data every one near its ends."""
    ends = range(len(data))
    for end in ends if len(data) < 2000 else [*ends[:600], *ends[600:-600:997], *ends[-600:]]:
        yield data[:end]


def test_every_truncation_of_a_frame_is_a_protocol_error() -> None:
    for frame in FRAMES:
        for cut in _cuts(frame):
            with pytest.raises(ProtocolError):
                decode(cut)


def test_every_truncation_of_a_control_message_is_a_protocol_error() -> None:
    for body in BODIES:
        for cut in _cuts(body):
            with pytest.raises(ProtocolError):
                control.decode(cut)


def test_anything_after_a_frame_is_a_protocol_error() -> None:
    for frame in FRAMES:
        with pytest.raises(ProtocolError):
            decode(frame + b"\0")


def _short_stream() -> tuple[list[control.Control], bytes]:
    messages = [m for m in golden.control_values() if len(control.encode(m)) < 70]
    return messages, b"".join(map(control.encode, messages))


def test_control_messages_come_through_every_single_cut_and_every_piece_length() -> None:
    sent, data = _short_stream()
    for cut in range(len(data) + 1):
        reader = control.Reader()
        assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == sent
    for length in range(1, len(data) + 1):
        reader = control.Reader()
        pieces = (data[at : at + length] for at in range(0, len(data), length))
        assert [message for piece in pieces for message in reader.feed(piece)] == sent


def test_two_short_messages_come_through_every_chunking() -> None:
    sent = [control.Close(1, ""), control.Shutdown("")]
    data = b"".join(map(control.encode, sent))
    assert len(data) < 16
    for cuts in range(1 << (len(data) - 1)):
        reader, received, start = control.Reader(), [], 0
        for at in range(1, len(data) + 1):
            if at == len(data) or cuts >> (at - 1) & 1:
                received += reader.feed(data[start:at])
                start = at
        assert received == sent


def test_a_stream_that_ends_early_gives_the_whole_messages_before() -> None:
    sent, data = _short_stream()
    ends, total = [], 0
    for message in sent:
        total += len(control.encode(message))
        ends.append(total)
    for cut in range(len(data)):
        whole = sum(end <= cut for end in ends)
        assert control.Reader().feed(data[:cut]) == sent[:whole]


@pytest.mark.parametrize("lie", [0, 1, 2**16, 2**26, 2**32 - 1])
def test_a_control_message_of_another_length_than_it_says_is_refused_or_awaited(lie: int) -> None:
    body = control.encode(control.Close(1, "gone"))[4:]
    data = lie.to_bytes(4, "little") + body
    if len(body) < lie <= control.MAX_CONTROL:
        assert control.Reader().feed(data) == []
        return
    with pytest.raises(ProtocolError):
        control.Reader().feed(data)
