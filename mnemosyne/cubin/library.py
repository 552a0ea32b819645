"""Files that hold fatbins: where they lie in a shared library.

Beside the cache, only this part of the package opens files. They are read and never mapped, because
a mapped file that someone shortens kills its reader.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from elftools.elf.elffile import ELFFile

from .elf import ELF_MAGIC
from .errors import CubinError
from .fatbin import FATBIN_MAGIC, FATBIN_SECTIONS, HEADER_BYTES, fatbin_span

MAX_SPAN = 256 << 20
"""Largest fatbin or cubin file we read, in bytes; public CUDA 13 libraries go up to 57 MB."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a fatbin, or a bare cubin, lies in a file, in bytes."""

    offset: int
    size: int


def read_span(path: Path, span: Span) -> bytes:
    """Read a part of a regular file; CubinError when it is not there or too large."""
    if not 0 < span.size <= MAX_SPAN or span.offset < 0:
        raise CubinError(f"{path}: will not read {span.size} bytes at {span.offset}")
    with open_regular(path) as file:
        return _read(file, span, path)


def find_spans(path: Path) -> list[Span]:
    """List the fatbins of a shared library; of a bare fatbin or cubin the whole file."""
    with open_regular(path) as file:
        start = _read(file, Span(0, min(4, _size(file))), path)
        if start == FATBIN_MAGIC.to_bytes(4, "little"):
            return [Span(0, _size(file))]
        if start != ELF_MAGIC:
            raise CubinError(f"{path}: neither a library, a fatbin nor a cubin")
        elf = _elf(file, path)
        if elf["e_machine"] == "EM_CUDA":
            return [Span(0, _size(file))]
        return [span for part in _fatbin_sections(elf, path) for span in _split(file, part, path)]


def find_torch_library() -> Path:
    """Find libtorch_cuda.so of the installed PyTorch, without importing it."""
    spec = find_spec("torch")
    for folder in (spec and spec.submodule_search_locations) or []:
        library = Path(folder) / "lib" / "libtorch_cuda.so"
        if library.exists():
            return library
    raise CubinError("no PyTorch with CUDA is installed here: name a PATH")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, never waiting as a pipe would; CubinError when that fails."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CubinError(f"{path}: cannot be opened ({reason})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CubinError(f"{path}: not a regular file")
    return os.fdopen(descriptor, "rb")


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: BinaryIO, span: Span, path: Path) -> bytes:
    try:
        data = os.pread(file.fileno(), span.size, span.offset)
    except (OSError, OverflowError) as error:
        raise CubinError(f"{path}: cannot be read at {span.offset} ({error})") from None
    if len(data) != span.size:
        raise CubinError(f"{path}: ends before {span.offset + span.size}")
    return data


def _elf(file: BinaryIO, path: Path) -> ELFFile:
    try:
        return ELFFile(file)
    except Exception as error:  # pyelftools lets construct, struct and seek errors through
        raise CubinError(f"{path}: malformed ELF file ({type(error).__name__})") from None


def _fatbin_sections(elf: ELFFile, path: Path) -> list[Span]:
    try:
        sections = [s for s in elf.iter_sections("SHT_PROGBITS") if s.name in FATBIN_SECTIONS]
        return [Span(s["sh_offset"], s["sh_size"]) for s in sections]
    except Exception as error:  # see _elf
        raise CubinError(f"{path}: malformed ELF file ({type(error).__name__})") from None


def _split(file: BinaryIO, section: Span, path: Path) -> Iterator[Span]:
    """Walk the fatbins of a section; between two there may be zeros that align the next."""
    position, end = section.offset, section.offset + section.size
    while position + HEADER_BYTES <= end:
        header = _read(file, Span(position, HEADER_BYTES), path)
        if not any(header[:8]):
            position += 8
            continue
        size = sum(fatbin_span(header, f"{path} at {position}"))
        yield Span(position, size)
        position += size
