"""What a cubin says about its kernels and its writable variables.

How this works: a function symbol with the entry bit is a kernel. `.nv.info.<kernel>` holds its
parameters and limits, `.nv.info` registers and stack by symbol index, and the size of
`.nv.shared.<kernel>` is its static shared memory. Bytes in, values out.

Source: `cuobjdump -elf` and `-res-usage`; scripts/compare-cuobjdump compares every kernel with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import prod
from operator import attrgetter
from struct import Struct

import msgpack

from .attributes import Attribute, read_records
from .demangle import demangle_one
from .elf import SHT_CUDA_INFO, Elf, Section, Symbol, read_elf
from .errors import CubinError

_STT_OBJECT, _STT_FUNC = 1, 2
_STO_CUDA_ENTRY = 0x10
_GLOBAL_SECTIONS = (".nv.global", ".nv.global.init")
_READ_ONLY = re.compile(r"\$str(\$\d+)?|__unnamed_\d+|__cudart_\w+|mrg32k3aM\w+|precalc_xorwow_\w+")
"""Tables and strings that nvcc and cuRAND put into `.nv.global.init`; no kernel writes to them."""
_RESERVED_SHARED = ".nv.shared.reserved.0"
_RESERVED_BYTES = 1024

_MOST_THREADS = 1 << 32  # far more than any device allows

_PAIR = Struct("<II")  # symbol index, value
_PARAM = Struct("<IHHI")  # index, ordinal, offset, size << 18 | other bits
_PARAM_V2 = Struct("<IHHHH")  # index, ordinal, offset, size, other bits
_BLOCK = Struct("<III")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel. `params` holds (offset, size) in bytes, in order; all other sizes are bytes too.

    `param_bytes` is the whole parameter buffer, `stack` the least stack of a thread, and
    `max_threads` the most threads of a block that `__launch_bounds__` allows (None: not bounded).
    """

    name: str
    params: tuple[tuple[int, int], ...]
    param_bytes: int
    registers: int
    static_shared: int
    stack: int
    max_threads: int | None

    @property
    def demangled(self) -> str:
        """The C++ name, or the mangled one where that is none."""
        return demangle_one(self.name)


class Kernels(Mapping[str, Kernel]):
    """Kernels by mangled name, kept packed and made when they are asked for.

    So they are no load for the garbage collector: with 24,000 objects, which are the kernels of
    libtorch_cuda.so, each of its full passes took 15 ms (measured), whatever ran at that moment.
    """

    def __init__(self, packed: dict[str, bytes]) -> None:
        self.packed = packed

    @classmethod
    def pack(cls, kernels: Iterable[Kernel]) -> Kernels:
        """Keep these kernels."""
        return cls({kernel.name: msgpack.packb(_FIELDS(kernel)) for kernel in kernels})

    def __getitem__(self, name: str) -> Kernel:
        return Kernel(*msgpack.unpackb(self.packed[name], use_list=False))

    def __iter__(self) -> Iterator[str]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)


_FIELDS = attrgetter(*(field.name for field in fields(Kernel)))


@dataclass(frozen=True, slots=True)
class Global:
    """A variable that kernels can write (`__device__`): its size in bytes and its section."""

    name: str
    size: int
    section: str


@dataclass(frozen=True, slots=True)
class Layout:
    """All that is kept of a cubin; `relocatable` code (`nvcc -rdc`) must be linked to be loaded."""

    kernels: Kernels
    globals: tuple[Global, ...]
    relocatable: bool


def read_layout(image: bytes, where: str = "cubin") -> Layout:
    """Describe the kernels and variables of an ELF cubin; bad bytes raise CubinError."""
    elf = read_elf(image, where)
    symbols = tuple(elf.symbols(frozenset((_STT_OBJECT, _STT_FUNC))))
    reader = _KernelReader(elf)
    kernels = Kernels.pack(
        reader.kernel(symbol)
        for symbol in symbols
        if symbol.kind == _STT_FUNC and symbol.other & _STO_CUDA_ENTRY and symbol.section
    )
    return Layout(kernels, tuple(_globals(elf, symbols)), elf.type == "ET_REL")


def _globals(elf: Elf, symbols: tuple[Symbol, ...]) -> Iterator[Global]:
    names = {i: s.name for i, s in enumerate(elf.sections) if s.name in _GLOBAL_SECTIONS}
    for symbol in symbols:
        section = names.get(symbol.section)
        if symbol.kind != _STT_OBJECT or section is None:
            continue
        if section != ".nv.global.init" or not _READ_ONLY.fullmatch(symbol.name):
            yield Global(symbol.name, symbol.size, section)


class _KernelReader:
    """Reads kernels one by one, over tables that all kernels of a cubin share."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._sections = {section.name: section for section in elf.sections}
        self._left = len(elf.image)  # of the bytes that all kernels' sections can have
        self._by_symbol = _symbol_records(elf, self._sections.get(".nv.info"))
        # From sm_90 on, .nv.shared.<kernel> includes the kilobyte that the system reserves.
        self._reserved = _RESERVED_BYTES if _RESERVED_SHARED in self._sections else 0

    def kernel(self, symbol: Symbol) -> Kernel:
        section = self._sections.get(f".nv.info.{symbol.name}")
        where = f"{self._elf.where}, kernel {symbol.name}"
        if section is None or section.type != SHT_CUDA_INFO:
            raise CubinError(f"{where}: has no .nv.info section")
        self._left -= section.size
        if self._left < 0:
            raise CubinError(f"{where}: .nv.info sections overlap")
        params, param_bytes, max_threads = _read_info(self._elf.data(section), where)
        facts = self._by_symbol
        return Kernel(
            name=symbol.name,
            params=_in_order(params, param_bytes, where),
            param_bytes=param_bytes,
            registers=facts.get((Attribute.REGCOUNT, symbol.index), 0),
            static_shared=self._static_shared(symbol.name),
            stack=facts.get((Attribute.MIN_STACK_SIZE, symbol.index), 0),
            max_threads=max_threads,
        )

    def _static_shared(self, name: str) -> int:
        section = self._sections.get(f".nv.shared.{name}")
        return max(section.size - self._reserved, 0) if section else 0


def _symbol_records(elf: Elf, section: Section | None) -> dict[tuple[int, int], int]:
    """Read `.nv.info`: value by (attribute, symbol index)."""
    if section is None:
        return {}
    wanted = (Attribute.REGCOUNT, Attribute.MIN_STACK_SIZE)
    found = {}
    for attribute, _number, data in read_records(elf.data(section), f"{elf.where}, .nv.info"):
        if attribute in wanted and len(data) == _PAIR.size:
            symbol, value = _PAIR.unpack(data)
            found[attribute, symbol] = value
    return found


_Params = dict[int, tuple[int, int]]


def _read_info(data: memoryview, where: str) -> tuple[_Params, int, int | None]:
    """Read `.nv.info.<kernel>`: parameters by ordinal, bytes of them all, threads of a block."""
    params: _Params = {}
    param_bytes, max_threads = 0, None
    for attribute, number, value in read_records(data, where):
        if attribute == Attribute.KPARAM_INFO and len(value) == _PARAM.size:
            _index, ordinal, offset, bits = _PARAM.unpack(value)
            params[ordinal] = offset, bits >> 18
        elif attribute == Attribute.KPARAM_INFO_V2 and len(value) == _PARAM_V2.size:
            _index, ordinal, offset, size, _bits = _PARAM_V2.unpack(value)
            params[ordinal] = offset, size
        elif attribute == Attribute.CBANK_PARAM_SIZE:
            param_bytes = number
        elif attribute == Attribute.MAX_THREADS and len(value) == _BLOCK.size:
            max_threads = prod(_BLOCK.unpack(value))
            if max_threads > _MOST_THREADS:
                raise CubinError(f"{where}: blocks of {max_threads} threads")
    return params, param_bytes, max_threads


def _in_order(params: _Params, param_bytes: int, where: str) -> tuple[tuple[int, int], ...]:
    """Order by ordinal; a gap, or a parameter outside the buffer, raises CubinError."""
    if any(ordinal not in params for ordinal in range(len(params))):
        raise CubinError(f"{where}: parameters {sorted(params)} have a gap")
    ordered = tuple(params[ordinal] for ordinal in range(len(params)))
    if any(offset + size > param_bytes for offset, size in ordered):
        raise CubinError(f"{where}: a parameter lies outside its {param_bytes} bytes")
    return ordered
