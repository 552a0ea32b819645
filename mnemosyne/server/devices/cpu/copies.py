"""Copies and fills on the CPU device. All of them are checked, and done when they return."""

from __future__ import annotations

import torch

from mnemosyne._native import REPLY_BYTES
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Handlers, Outputs

_REPLY_OVERHEAD = 16  # the array, the status and the length of the bytes


def _copy_inline(s: CpuSession, dst: int, data: bytes, stream: int) -> Outputs:
    s.check_stream(stream)
    s.memory.write(dst, data)
    return None


def _copy_fetch(s: CpuSession, src: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    if not 0 <= count <= REPLY_BYTES - _REPLY_OVERHEAD:
        raise CallError(INVALID_VALUE, f"{count} bytes do not fit into a reply")
    return (s.memory.read(src, count),)


def _copy_from_host(s: CpuSession, dst: int, offset: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    s.memory.copy(dst, _host_address(s, offset, count), count)
    return None


def _copy_to_host(s: CpuSession, offset: int, src: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    s.memory.copy(_host_address(s, offset, count), src, count)
    return None


def _host_address(s: CpuSession, offset: int, count: int) -> int:
    if offset < 0 or count < 0 or offset + count > s.layout.host_bytes:
        raise CallError(INVALID_VALUE, f"{count} bytes at {offset} lie outside the host slot")
    return s.layout.host_base + offset


def _copy_device(s: CpuSession, dst: int, src: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    s.memory.copy(dst, src, _not_negative(count))
    return None


def _copy_device_2d(
    s: CpuSession, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int,
    stream: int,
) -> Outputs:  # fmt: skip
    s.check_stream(stream)
    target = _plane(s.memory, dst, dpitch, width, height)
    target.copy_(_plane(s.memory, src, spitch, width, height))
    return None


def _memset(s: CpuSession, pointer: int, value: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    s.memory.fill(pointer, value, _not_negative(count))
    return None


def _memset_words(s: CpuSession, pointer: int, value: int, count: int, stream: int) -> Outputs:
    s.check_stream(stream)
    words = s.memory.view(pointer, torch.int32, (_not_negative(count),), (1,))
    words.fill_(value - (1 << 32) if value >> 31 else value)
    return None


def _memset_2d(
    s: CpuSession, pointer: int, pitch: int, value: int, width: int, height: int, stream: int
) -> Outputs:
    s.check_stream(stream)
    _plane(s.memory, pointer, pitch, width, height).fill_(value & 0xFF)
    return None


def _plane(memory: CpuMemory, pointer: int, pitch: int, width: int, height: int) -> torch.Tensor:
    """``height`` rows of ``width`` bytes, ``pitch`` apart."""
    if width < 0 or height < 0 or (pitch < width and height > 1):
        raise CallError(INVALID_VALUE, f"rows of {width} bytes at a pitch of {pitch}")
    return memory.view(pointer, torch.uint8, (height, width), (pitch, 1))


def _not_negative(count: int) -> int:
    if count < 0:
        raise CallError(INVALID_VALUE, f"a count of {count} bytes")
    return count


HANDLERS: Handlers = {
    "copy_inline": _copy_inline,
    "copy_fetch": _copy_fetch,
    "copy_from_host": _copy_from_host,
    "copy_to_host": _copy_to_host,
    "copy_device": _copy_device,
    "copy_device_2d": _copy_device_2d,
    "cudaMemsetAsync": _memset,
    "cudaMemset2DAsync": _memset_2d,
    "memset_words": _memset_words,
}
