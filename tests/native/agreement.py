"""Whether C++ takes exactly the frames that Python takes (tests/native/unpack.cpp)."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import msgpack

from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.frames import decode


def expect_same_of_cpp(program: Path, frames: list[bytes]) -> int:
    """Gives how many frames the lane read; AssertionError with the frame that is read otherwise."""
    data = b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
    done = subprocess.run([program], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    verdicts = done.stdout.decode()
    assert len(verdicts) == 2 * len(frames)
    for at, frame in enumerate(frames):
        lane, value = verdicts[2 * at : 2 * at + 2]
        assert lane in ("-", "y" if _is_legal(frame) else "n"), f"lane {lane}: {frame.hex()}"
        if (expected := _is_plain_value(frame)) is not None:
            assert value == ("y" if expected else "n"), f"value {value}: {frame.hex()}"
    return len(frames) - verdicts[::2].count("-")


def _is_legal(frame: bytes) -> bool:
    try:
        decode(frame)
    except ProtocolError:
        return False
    return True


def _is_plain_value(frame: bytes) -> bool | None:
    """None where a limit is Python's alone."""
    try:
        return _is_plain(msgpack.unpackb(frame, raw=True))
    except msgpack.exceptions.StackError:
        return None
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        return None if "exceeds max" in str(error) else False


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_plain(element) for element in value)
    return type(value) in (int, float, bytes)
