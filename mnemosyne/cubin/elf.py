"""Sections and symbols of an ELF cubin, and nothing that is not needed to describe its kernels.

pyelftools reads and checks the ELF header. The two tables are read with `struct`: a cubin with
1,300 kernels has 4,000 sections, and pyelftools takes 14 us for each (measured), `struct` under 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from struct import Struct

from elftools.elf.elffile import ELFFile

from .arch import Arch, Reach
from .errors import CubinError

ELF_MAGIC = b"\x7fELF"
SHT_SYMTAB = 2
SHT_CUDA_INFO = 0x70000000
_SHN_LORESERVE = 0xFF00

_TIMES_READ = 4  # of a string table; those of public CUDA 13 libraries are read once (measured)

_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")


@dataclass(frozen=True, slots=True)
class Section:
    """One section header; `offset` and `size` in bytes, `link` as its type means it."""

    name: str
    type: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """One symbol: `kind` is its STT_*, `other` its whole st_other byte, `section` an index."""

    index: int
    kind: int
    other: int
    section: int
    size: int
    name: str


@dataclass(frozen=True, slots=True)
class Elf:
    """An ELF cubin: `type` as pyelftools names it (`ET_EXEC` or, from `nvcc -rdc`, `ET_REL`)."""

    image: memoryview
    type: str
    arch: Arch
    sections: tuple[Section, ...]
    where: str

    def data(self, section: Section) -> memoryview:
        """Give a section's bytes; CubinError when the file ends before it does."""
        return _slice(self.image, section.offset, section.size, f"{self.where}, {section.name}")

    def symbols(self, kinds: frozenset[int]) -> Iterator[Symbol]:
        """Yield the symbols of these STT_* kinds."""
        table = next((s for s in self.sections if s.type == SHT_SYMTAB), None)
        if table is None:
            return
        if table.link >= len(self.sections) or table.size % _SYMBOL.size:
            raise CubinError(f"{self.where}: symbol table is malformed")
        names = _Names(self.data(self.sections[table.link]), self.where)
        for index, fields in enumerate(_SYMBOL.iter_unpack(self.data(table))):
            name, info, other, section, _value, size = fields
            if info & 15 in kinds:
                yield Symbol(index, info & 15, other, section, size, names.at(name))


def read_elf(image: bytes, where: str) -> Elf:
    """Read an ELF cubin's section table; anything but a 64-bit CUDA ELF raises CubinError."""
    elf = _open(image, where)
    if elf["e_machine"] != "EM_CUDA" or elf.elfclass != 64 or not elf.little_endian:
        raise CubinError(f"{where}: an ELF file, but no 64-bit cubin")
    count, names = elf["e_shnum"], elf["e_shstrndx"]
    if elf["e_shentsize"] != _SECTION.size or not names < count < _SHN_LORESERVE:
        raise CubinError(f"{where}: section table is malformed")
    view = memoryview(image)
    table = _slice(view, elf["e_shoff"], count * _SECTION.size, f"{where}, section table")
    headers = list(_SECTION.iter_unpack(table))
    strings = _slice(view, headers[names][4], headers[names][5], f"{where}, section names")
    texts = _Names(strings, where)
    sections = tuple(
        Section(texts.at(name), kind, offset, size, link)
        for name, kind, _flags, _address, offset, size, link, _info, _align, _entry in headers
    )
    return Elf(view, str(elf["e_type"]), _arch(elf), sections, where)


def _open(image: bytes, where: str) -> ELFFile:
    try:
        return ELFFile(BytesIO(image))
    except Exception as error:  # pyelftools lets construct, struct and seek errors through
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CubinError(f"{where}: no ELF file ({text})") from None


def _arch(elf: ELFFile) -> Arch:
    """Read e_flags, whose layout changed with ABI version 8; only the older one marks `sm_90a`.

    Source: e_flags of cubins that ptxas 12.9 and 13.0 make for each architecture.
    """
    flags = elf["e_flags"]
    old = elf["e_ident"]["EI_ABIVERSION"] < 8
    major, minor = divmod((flags if old else flags >> 8) & 0xFF, 10)
    return Arch(major, minor, Reach.EXACT if old and flags & 0x800 else Reach.PORTABLE)


def _slice(view: memoryview, offset: int, size: int, where: str) -> memoryview:
    if offset + size > len(view):
        raise CubinError(f"{where}: ends at {offset + size}, the file at {len(view)}")
    return view[offset : offset + size]


class _Names:
    """A string table. Names may overlap in it, so what is read of it in all is bounded."""

    def __init__(self, table: memoryview, where: str) -> None:
        self._table = bytes(table)
        self._where = where
        self._left = _TIMES_READ * len(table)

    def at(self, start: int) -> str:
        """The name that starts here; CubinError when there is none or it is no text."""
        end = self._table.find(b"\0", start)
        if start >= len(self._table) or end < 0:
            raise CubinError(f"{self._where}: a name at {start} is outside the string table")
        self._left -= end - start
        if self._left < 0:
            raise CubinError(f"{self._where}: too many names overlap")
        name = self._table[start:end].decode(errors="replace")
        if not name.isprintable() or "\ufffd" in name:  # it goes into messages and listings
            raise CubinError(f"{self._where}: the name at {start} is not text")
        return name
