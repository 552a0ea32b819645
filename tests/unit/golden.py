"""The golden frames: for every message a fixed set of values, and the bytes they are on the wire.

How this works: values follow from the specification alone, the edges of each kind in turn. A line
of the kept files is ``name | values | bytes``. The values are tokens that C++ reads too: a decimal
integer, ``r`` and the bits of a double, ``b`` and bytes, ``t`` and text, ``[n`` and n values. Bytes
are in hex; a long run of one byte is ``5a*65536.``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import astuple, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from mnemosyne.api import SPEC, Field, Kind, Message
from mnemosyne.protocol import control
from mnemosyne.protocol.frames import encode, encode_reply

FOLDER = Path(__file__).parents[1] / "golden"
FRAMES_PER_MESSAGE = 8
SHORT = 32  # runs of fewer bytes are written out

UNSIGNED = [
    0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1,
    2**63, 2**64 - 1,
]  # fmt: skip
SIGNED = [-1, -32, -33, -128, -129, -(2**15), -(2**15) - 1, -(2**31), -(2**31) - 1, -(2**63)]
INTEGERS = {
    "int": (-(2**31), 2**31 - 1),
    "unsigned int": (0, 2**32 - 1),
    "long long": (-(2**63), 2**63 - 1),
    "size_t": (0, 2**64 - 1),
}
REAL = [0.0, -0.0, 1.0, -1.5, 1e-310, float("inf"), float("nan")]
BYTES = [b"", b"\0", b"\xff\xc1", b"a" * 31, b"b" * 32, b"c" * 255, b"d" * 256, b"e" * 65536]
TEXT = ["", "k", "ä€\U0001f600", "a" * 31, "b" * 32, "c" * 255, "d" * 256, "e" * 65536]
LIST_OF_LANES: list[list[Any]] = [
    [], [0], [[]], [68, -1, [[1, b"\0" * 4], [2, b""]]], [[[[[2**64 - 1]]]], b"y", -(2**63)],
    list(range(15)), list(range(16)), list(range(300)),
]  # fmt: skip
LIST = [*LIST_OF_LANES, ["/usr/lib/libcuda.so", 2**40, 16, 7], ["x", ["ä", []]]]
EDGES: dict[Kind, list[Any]] = {
    Kind.REAL: REAL,
    Kind.SCALAR: [b"\0", b"\xff" * 4, bytes(8), bytes(range(40)), *UNSIGNED],
    Kind.BYTES: BYTES,
    Kind.TEXT: TEXT,
    Kind.LIST: LIST,
}
_CONTROL: dict[str, list[Any]] = {
    "int": [*UNSIGNED, *SIGNED],
    "str": TEXT[:7],
    "bytes": BYTES[:7],
    "list": LIST,
}


def frame_values() -> Iterator[tuple[Message, list[Any]]]:
    """Every message with FRAMES_PER_MESSAGE sets of values, every edge of a kind in turn."""
    turns = dict.fromkeys(Kind, 0)
    for message in SPEC.messages.values():
        for _ in range(FRAMES_PER_MESSAGE if message.fields else 1):
            yield message, [_next_edge(message, field, turns) for field in message.fields]


def _next_edge(message: Message, field: Field, turns: dict[Kind, int]) -> Any:
    edges = edges_of(message, field)
    turns[field.kind] += 1
    return edges[turns[field.kind] % len(edges)]


def edges_of(message: Message, field: Field) -> list[Any]:
    """The edges that this field can have; a list that a lane reads has no text in it."""
    if field.kind is Kind.INT:
        low, high = INTEGERS[field.ctype]
        return [number for number in [*UNSIGNED, *SIGNED] if low <= number <= high]
    if field.kind is Kind.LIST and message.lane:
        return LIST_OF_LANES
    return EDGES.get(field.kind, UNSIGNED)


def control_values() -> Iterator[control.Control]:
    """Every control message with several sets of values."""
    turn = 0
    for cls in control.Control.__args__:
        for _ in range(4):
            values = []
            for field in fields(cls):
                edges = _CONTROL.get(str(field.type), LIST)
                turn += 1
                values.append(edges[turn % len(edges)])
            yield cls(*values)


def reply_values() -> list[list[Any]]:
    """Replies ``[status, *outputs]``: each as a handler, an error or a query answers."""
    integers = [[0, value] for value in (*UNSIGNED, *SIGNED)]
    reals = [[0, value] for value in REAL]
    errors = [[code, text] for code, text in zip((1, 700, -1), TEXT[:3], strict=True)]
    return [
        [0],
        *integers,
        *reals,
        *errors,
        *([0, blob] for blob in BYTES),
        [0, 1, LIST[3], LIST[8]],
    ]


def frame_lines() -> Iterator[str]:
    """The lines of frames.txt."""
    numbers = {message.name: number for number, message in SPEC.messages.items()}
    for message, values in frame_values():
        yield line(message.name, [numbers[message.name], *values], encode(message, *values))
    for reply in reply_values():
        yield line("reply", reply, encode_reply(*reply))


def control_lines() -> Iterator[str]:
    """The lines of control.txt; bytes without the length prefix."""
    for message in control_values():
        name, values = type(message).__name__, [message.KIND, *astuple(message)]
        yield line(name, values, control.encode(message)[4:])


def line(name: str, values: list[Any], data: bytes) -> str:
    return f"{name} | {' '.join(tokens(values))} | {to_hex(data)}"


def tokens(value: Any) -> Iterator[str]:
    """One value as tokens."""
    if isinstance(value, list):
        yield f"[{len(value)}"
        for element in value:
            yield from tokens(element)
    elif isinstance(value, float):
        yield f"r{struct.pack('>d', value).hex()}"
    elif isinstance(value, str):
        yield f"t{to_hex(value.encode())}"
    elif isinstance(value, bytes):
        yield f"b{to_hex(value)}"
    else:
        yield str(value)


def to_hex(data: bytes) -> str:
    return "".join(_run(byte, len(list(same))) for byte, same in groupby(data))


def _run(byte: int, count: int) -> str:
    return f"{byte:02x}" * count if count < SHORT else f"{byte:02x}*{count}."


def from_hex(text: str) -> bytes:
    return bytes.fromhex(re.sub(r"(\w\w)\*(\d+)\.", lambda run: run[1] * int(run[2]), text))


def kept(file: str) -> list[tuple[str, bytes]]:
    """The lines of a kept file, and each one's bytes."""
    lines = (FOLDER / file).read_text().splitlines()
    return [(text, from_hex(text.split(" | ")[2])) for text in lines]


def write() -> None:
    """Writes the kept files anew."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "frames.txt").write_text("".join(f"{text}\n" for text in frame_lines()))
    (FOLDER / "control.txt").write_text("".join(f"{text}\n" for text in control_lines()))
