"""Builds small fatbins, cubins and libraries, field by field, for the registry's tests.

The layouts are written out here a second time, on purpose: a reader that shares its tables with
this writer would agree with it whatever they say.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import lz4.block
import zstandard

PTX, ELF = 1, 2
LZ4, ZSTD, EXACT, FAMILY = 0x2000, 0x8000, 0x100000, 0x200000
NOBITS, PROGBITS, SYMTAB, STRTAB, INFO = 8, 1, 2, 3, 0x70000000


@dataclass
class FakeKernel:
    """What one kernel of a fake cubin is to say about itself."""

    name: str = "_Z3addPfS_i"
    params: Sequence[tuple[int, int]] = ((0, 8), (8, 8), (16, 4))
    param_bytes: int = 20
    registers: int = 32
    shared: int | None = None
    stack: int = 0
    block: tuple[int, int, int] | None = None
    entry: bool = True
    wide: bool = False
    info: bytes | None = None


@dataclass
class FakeCubin:
    """A cubin: kernels, and variables as (name, size, section)."""

    kernels: Sequence[FakeKernel] = field(default_factory=lambda: [FakeKernel()])
    variables: Sequence[tuple[str, int, str]] = ()
    sm: int = 90
    abi: int = 8
    type: int = 2
    reserved: bool = True


def sval(attribute: int, payload: bytes) -> bytes:
    return struct.pack("<BBH", 4, attribute, len(payload)) + payload


def hval(attribute: int, value: int) -> bytes:
    return struct.pack("<BBH", 3, attribute, value)


def kernel_info(kernel: FakeKernel) -> bytes:
    """Give the `.nv.info.<kernel>` bytes; parameters come last first, as ptxas writes them."""
    if kernel.info is not None:
        return kernel.info
    data = sval(0x37, struct.pack("<I", 130))
    for ordinal, (offset, size) in reversed(list(enumerate(kernel.params))):
        if kernel.wide:
            data += sval(0x45, struct.pack("<IHHHH", 0, ordinal, offset, size, 0x500))
        else:
            data += sval(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))
    data += struct.pack("<BBBB", 2, 0x4C, 1, 0) + struct.pack("<BBH", 1, 0x3E, 0)
    if kernel.block:
        data += sval(0x05, struct.pack("<III", *kernel.block))
    return data + hval(0x19, kernel.param_bytes)


def cubin(fake: FakeCubin | None = None) -> bytes:
    """Build an ELF cubin."""
    fake = fake or FakeCubin()
    sections: list[tuple[str, int, bytes, int]] = []
    symbols, facts = [(0, 0, 0, 0, 0, 0)], b""
    names = b"\0"
    variable_sections = sorted({section for _name, _size, section in fake.variables})
    for number, section in enumerate(variable_sections):
        sections.append((section, NOBITS, b"", 64 + number))
    for name, size, section in fake.variables:
        index = 4 + variable_sections.index(section)
        symbols.append((len(names), 1, 0, index, 0, size))
        names += name.encode() + b"\0"
    for kernel in fake.kernels:
        index = len(symbols)
        symbols.append((len(names), 0x12, 0x10 if kernel.entry else 0, 4, 0, 128))
        names += kernel.name.encode() + b"\0"
        facts += sval(0x2F, struct.pack("<II", index, kernel.registers))
        facts += sval(0x12, struct.pack("<II", index, kernel.stack))
        sections.append((f".nv.info.{kernel.name}", INFO, kernel_info(kernel), 0))
        if kernel.shared is not None:
            sections.append((f".nv.shared.{kernel.name}", NOBITS, b"", kernel.shared))
    sections.append((".nv.info", INFO, facts, 0))
    if fake.reserved:
        sections.append((".nv.shared.reserved.0", NOBITS, b"", 0))
    table = b"".join(struct.pack("<IBBHQQ", *symbol) for symbol in symbols)
    head = [(".strtab", STRTAB, names, 0), (".symtab", SYMTAB, table, 0)]
    flags = 6 << 24 | fake.sm << 8 | 4 if fake.abi == 8 else fake.sm << 16 | 0x500 | fake.sm
    return elf(head + sections, machine=190, type_=fake.type, abi=(0x41, fake.abi), flags=flags)


def elf(
    sections: Sequence[tuple[str, int, bytes, int]],
    machine: int = 62,
    type_: int = 3,
    abi: tuple[int, int] = (0, 0),
    flags: int = 0,
) -> bytes:
    """Build an ELF file of (name, type, bytes, size when it is NOBITS); section 1 names them."""
    names, body, headers = b"\0.shstrtab\0", b"", [bytes(64)]
    named = [(len(names) + sum(len(s[0]) + 1 for s in sections[:i])) for i in range(len(sections))]
    names += b"".join(s[0].encode() + b"\0" for s in sections)
    for name, (_, kind, data, size) in zip(
        [1, *named], [("", STRTAB, names, 0), *sections], strict=True
    ):
        offset, length = 64 + len(body), size if kind == NOBITS else len(data)
        link, each = (2, 24) if kind == SYMTAB else (0, 0)
        fields = name, kind, 0, 0, offset, length, link, 0, 8, each
        headers.append(struct.pack("<IIQQQQIIQQ", *fields))
        body += data + bytes(-len(data) % 8)
    ident = b"\x7fELF" + bytes([2, 1, 1, *abi]) + bytes(7)
    rest = (type_, machine, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(headers), 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *rest) + body + b"".join(headers)


def entry(
    payload: bytes, sm: int = 90, kind: int = ELF, flags: int = 0, claimed: int | None = None
) -> bytes:
    """Build one fatbin entry; `flags` say how it is packed, `claimed` lies about its size."""
    packed = payload
    if flags & ZSTD:
        packed = zstandard.ZstdCompressor().compress(payload)
    elif flags & LZ4:
        packed = lz4.block.compress(payload, store_size=False)
    compressed = bool(flags & (ZSTD | LZ4))
    padded = packed + bytes(-len(packed) % 8)
    unpacked = len(payload) if claimed is None else claimed
    fields = (kind, 0x101, 64, len(padded), len(packed) if compressed else 0, 0, 8, 1, sm, 0, 0)
    header = struct.pack("<HHIQIIHHIII", *fields)
    return header + struct.pack("<QQQ", flags | 0x11, 0, unpacked if compressed else 0) + padded


def fatbin(*entries: bytes) -> bytes:
    """Build a fatbin."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(
    fatbins: Sequence[bytes], section: str = ".nv_fatbin", build_id: bytes | None = b"\x12\x34"
) -> bytes:
    """Build a shared library whose fatbins lie one after the other, each aligned to 16 bytes."""
    data = b"".join(blob + bytes(-len(blob) % 16) for blob in fatbins)
    sections = [(".text", PROGBITS, b"\xc3", 0), (section, PROGBITS, data, 0)]
    image = bytearray(elf(sections))
    if build_id is not None:
        note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU") + build_id
        note += bytes(-len(note) % 4)
        struct.pack_into("<Q", image, 32, len(image))  # e_phoff
        struct.pack_into("<H", image, 56, 1)  # e_phnum
        image += struct.pack("<IIQQQQQQ", 4, 4, len(image) + 56, 0, 0, len(note), len(note), 4)
        image += note
    return bytes(image)
