"""The records of `.nv.info` sections, in which ptxas tells the driver about kernels.

How this works: a record starts with a format byte, an attribute byte and a 16-bit number. In the
format SVAL the number counts the bytes of the value that follows; otherwise it is the value itself.

Source: `cuobjdump -elf` prints names, formats and values; the numbers were read beside its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from .errors import CubinError

_RECORD = Struct("<BBH")


class Format(IntEnum):
    """EIFMT_*: where a record's value is."""

    NVAL = 1
    BVAL = 2
    HVAL = 3
    SVAL = 4


class Attribute(IntEnum):
    """EIATTR_*: what a record says; records of other kinds are skipped."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    MAX_STACK_SIZE = 0x23
    REGCOUNT = 0x2F
    CUDA_API_VERSION = 0x37
    CTA_PER_CLUSTER = 0x3D
    EXPLICIT_CLUSTER = 0x3E
    MAX_CLUSTER_RANK = 0x3F
    KPARAM_INFO_V2 = 0x45
    NUM_BARRIERS = 0x4C


def read_records(data: memoryview, where: str) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (attribute, the 16-bit number, SVAL bytes or none) for each record of a section."""
    position, end = 0, len(data)
    while position < end:
        if position + _RECORD.size > end:
            raise CubinError(f"{where}: record at {position} is cut off")
        form, attribute, number = _RECORD.unpack_from(data, position)
        if not Format.NVAL <= form <= Format.SVAL:
            raise CubinError(f"{where}: record at {position} has format {form}")
        position += _RECORD.size
        stop = position + (number if form == Format.SVAL else 0)
        if stop > end:
            raise CubinError(f"{where}: record at {position - 4} is cut off")
        yield attribute, number, data[position:stop]
        position = -(-stop // 4) * 4
