"""Fatbins: the container in which nvcc keeps one module's code for several architectures.

How this works: a fatbin is a 16-byte header and then entries, each a header and a payload. An entry
holds PTX text or an ELF cubin, plain or compressed. `read_fatbin` lists the entries, `choose_entry`
picks the one the driver would load on a device, `unpack` gives its bytes. Bytes in, values out.

Source: fatbinary_section.h of the CUDA toolkit for the section names; the field layout is the one
public tools describe, checked against what `cuobjdump -lelf` lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct

import lz4.block
import zstandard

from .arch import Arch, Reach
from .errors import ArchError, CubinError

FATBIN_MAGIC = 0xBA55ED50
FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAX_UNPACKED = 512 << 20
"""Largest cubin we unpack, in bytes: public CUDA 13 libraries go up to 136 MB (libnccl)."""

_HEADER = Struct("<IHHQ")  # magic, version, header bytes, bytes of all entries
_ENTRY = Struct("<HHIQI4xHHI8xQ8xQ")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What an entry holds."""

    PTX = 1
    ELF = 2


class Flag(IntFlag):
    """The bits of an entry's flags that matter here."""

    LZ4 = 0x2000
    ZSTD = 0x8000
    ARCH_SPECIFIC = 0x100000
    FAMILY_SPECIFIC = 0x200000


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `payload` as stored, `unpacked_bytes` 0 when it is stored plain."""

    kind: int
    arch: Arch
    flags: int
    payload: memoryview
    unpacked_bytes: int
    where: str


def read_fatbin(blob: bytes | memoryview, where: str = "fatbin") -> tuple[Entry, ...]:
    """List the entries of the one fatbin at the start of `blob`; bad bytes raise CubinError."""
    start, size = fatbin_span(blob, where)
    if start + size > len(blob):
        raise CubinError(f"{where}: needs {start + size} bytes, has {len(blob)}")
    return tuple(_entries(memoryview(blob)[: start + size], start, where))


def fatbin_span(header: bytes | memoryview, where: str) -> tuple[int, int]:
    """Give (header bytes, bytes of all entries) from a fatbin's first 16 bytes."""
    if len(header) < _HEADER.size:
        raise CubinError(f"{where}: {len(header)} bytes are too few for a fatbin header")
    magic, version, header_bytes, size = _HEADER.unpack_from(header)
    if magic != FATBIN_MAGIC:
        raise CubinError(f"{where}: no fatbin here (starts with {magic:#010x})")
    if version != 1 or header_bytes < _HEADER.size:
        raise CubinError(f"{where}: fatbin version {version}, header {header_bytes} is not known")
    return header_bytes, size


def _entries(blob: memoryview, position: int, where: str) -> Iterator[Entry]:
    while position < len(blob):
        here = f"{where}, entry at {position}"
        if position + _ENTRY.size > len(blob):
            raise CubinError(f"{here}: header is cut off")
        entry, position = _entry(blob, position, here)
        yield entry


def _entry(blob: memoryview, position: int, where: str) -> tuple[Entry, int]:
    fields = _ENTRY.unpack_from(blob, position)
    kind, _version, header_bytes, padded, packed, _minor, _major, sm, flags, unpacked = fields
    start = position + header_bytes
    if header_bytes < _ENTRY.size or start + padded > len(blob) or packed > padded:
        raise CubinError(f"{where}: sizes {header_bytes}+{packed}/{padded} do not fit")
    compressed = flags & (Flag.LZ4 | Flag.ZSTD)
    payload = blob[start : start + (packed if compressed else padded)]
    arch = Arch(sm // 10, sm % 10, _reach(flags))
    return Entry(kind, arch, flags, payload, unpacked, where), start + padded


def _reach(flags: int) -> Reach:
    if flags & Flag.ARCH_SPECIFIC:
        return Reach.EXACT
    return Reach.FAMILY if flags & Flag.FAMILY_SPECIFIC else Reach.PORTABLE


def choose_entry(entries: Sequence[Entry], device: Arch, where: str = "fatbin") -> Entry:
    """Pick the cubin the driver would load on `device`: nearest minor, then the most specific.

    Specific comes first because the portable twin of an `sm_90a` cubin has kernels that only trap.
    """
    fitting = [e for e in entries if e.kind == Kind.ELF and e.arch.runs_on(device)]
    if not fitting:
        raise ArchError(f"{where}: no cubin runs on {device}, it has {_describe(entries)}")
    return max(fitting, key=lambda entry: (entry.arch.minor, entry.arch.reach))


def _describe(entries: Sequence[Entry]) -> str:
    names = [f"{e.arch}{' (PTX)' if e.kind == Kind.PTX else ''}" for e in entries]
    return ", ".join(dict.fromkeys(names)) or "nothing"


def unpack(entry: Entry) -> bytes:
    """Give an entry's bytes uncompressed; never more than its header says or MAX_UNPACKED."""
    if not entry.flags & (Flag.LZ4 | Flag.ZSTD):
        return bytes(entry.payload)
    if not 0 < entry.unpacked_bytes <= MAX_UNPACKED:
        raise CubinError(f"{entry.where}: will not unpack {entry.unpacked_bytes} bytes")
    data = _unzstd(entry) if entry.flags & Flag.ZSTD else _unlz4(entry)
    if len(data) != entry.unpacked_bytes:
        raise CubinError(f"{entry.where}: {len(data)} bytes, header says {entry.unpacked_bytes}")
    return data


def _unzstd(entry: Entry) -> bytes:
    try:
        # The library allocates what the frame claims, whatever maximum it is given.
        if zstandard.frame_content_size(entry.payload) > entry.unpacked_bytes:
            raise CubinError(f"{entry.where}: zstd frame is larger than its header says")
        unpacker = zstandard.ZstdDecompressor()
        return unpacker.decompress(entry.payload, max_output_size=entry.unpacked_bytes)
    except zstandard.ZstdError as error:
        raise CubinError(f"{entry.where}: bad zstd data ({error})") from None


def _unlz4(entry: Entry) -> bytes:
    try:
        data: bytes = lz4.block.decompress(entry.payload, uncompressed_size=entry.unpacked_bytes)
    except lz4.block.LZ4BlockError as error:
        raise CubinError(f"{entry.where}: bad LZ4 data ({error})") from None
    return data
