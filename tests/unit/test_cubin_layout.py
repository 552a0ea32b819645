"""Cubins: parameters, limits and variables of kernels, and bytes that lie."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from cubin_images import INFO, STRTAB, SYMTAB, FakeCubin, FakeKernel, cubin, elf, hval, sval
from hypothesis import given
from hypothesis import strategies as st

from mnemosyne.cubin import CubinError, Kernel, demangle, read_layout


def test_kernel_is_described_in_full() -> None:
    fake = FakeKernel(shared=1024 + 320, stack=16, registers=40, block=(128, 2, 1))
    (kernel,) = read_layout(cubin(FakeCubin([fake]))).kernels.values()
    params = ((0, 8), (8, 8), (16, 4))
    assert kernel == Kernel("_Z3addPfS_i", params, 20, 40, 320, 16, 256)
    assert kernel.demangled == "add(float*, float*, int)"


def test_kernel_without_parameters_or_limits() -> None:
    fake = FakeKernel("_Z4nonev", (), 0)
    assert read_layout(cubin(FakeCubin([fake]))).kernels["_Z4nonev"] == Kernel(
        "_Z4nonev", (), 0, 32, 0, 0, None
    )


def test_large_parameters_come_in_the_newer_record() -> None:
    fake = FakeKernel(params=((0, 32000), (32000, 8)), param_bytes=32008, wide=True)
    (kernel,) = read_layout(cubin(FakeCubin([fake]))).kernels.values()
    assert kernel.params == ((0, 32000), (32000, 8))


def test_shared_memory_counts_in_full_where_nothing_is_reserved() -> None:
    fake = FakeCubin([FakeKernel(shared=320)], sm=80, reserved=False)
    assert read_layout(cubin(fake)).kernels["_Z3addPfS_i"].static_shared == 320


def test_only_entry_functions_are_kernels() -> None:
    fake = FakeCubin([FakeKernel("_Z1av"), FakeKernel("_Z6helperi", entry=False)])
    assert list(read_layout(cubin(fake)).kernels) == ["_Z1av"]


def test_variables_are_those_that_kernels_can_write() -> None:
    variables = [
        ("tag", 1, ".nv.global"),
        ("counter", 4, ".nv.global"),
        ("start", 8, ".nv.global.init"),
        ("$str$7", 20, ".nv.global.init"),
        ("__unnamed_3", 387, ".nv.global.init"),
        ("limits", 64, ".nv.constant3"),
    ]
    found = read_layout(cubin(FakeCubin(variables=variables))).globals
    assert [(v.name, v.size, v.section) for v in found] == variables[:3]


def test_relocatable_code_is_told_apart() -> None:
    assert read_layout(cubin(FakeCubin(type=1))).relocatable
    assert not read_layout(cubin()).relocatable


INFO_FAULTS = {
    "gap": sval(0x17, struct.pack("<IHHI", 0, 1, 0, 8 << 18)) + hval(0x19, 8),
    "outside": sval(0x17, struct.pack("<IHHI", 0, 0, 4, 8 << 18)) + hval(0x19, 8),
    "no buffer": sval(0x17, struct.pack("<IHHI", 0, 0, 0, 8 << 18)),
    "format": struct.pack("<BBH", 9, 0x19, 8),
    "cut record": struct.pack("<BBH", 4, 0x17, 12) + bytes(8),
    "cut header": b"\x03\x19",
}


@pytest.mark.parametrize("fault", INFO_FAULTS)
def test_malformed_info_is_an_error_that_names_the_kernel(fault: str) -> None:
    fake = FakeKernel(info=INFO_FAULTS[fault])
    with pytest.raises(CubinError, match="_Z3addPfS_i"):
        read_layout(cubin(FakeCubin([fake])))


def test_kernel_without_info_is_an_error() -> None:
    image = cubin().replace(b".nv.info._Z3addPfS_i", b".nv.info._Z3subPfS_i")
    with pytest.raises(CubinError, match=r"no \.nv\.info section"):
        read_layout(image)


def test_other_elf_files_are_refused() -> None:
    with pytest.raises(CubinError, match="no 64-bit cubin"):
        read_layout(elf([]))


def test_every_truncation_is_an_error() -> None:
    image = cubin(FakeCubin([FakeKernel(), FakeKernel("_Z1bv", (), 0)]))
    for length in range(len(image)):
        with pytest.raises(CubinError):
            read_layout(image[:length])


@given(st.data())
def test_damaged_cubins_raise_nothing_else(data: st.DataObject) -> None:
    fake = FakeCubin([FakeKernel(shared=2000)], variables=[("v", 4, ".nv.global")])
    image = bytearray(cubin(fake))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CubinError):
        _check_promises(list(read_layout(bytes(image)).kernels.values()))


@given(st.lists(st.integers(1, 64), max_size=40), st.booleans())
def test_any_parameters_come_back(sizes: list[int], wide: bool) -> None:
    params, end = [], 0
    for size in sizes:
        params.append((end, size))
        end += size
    fake = FakeKernel(params=params, param_bytes=end)
    image = cubin(FakeCubin([replace(fake, wide=wide)]))
    (kernel,) = read_layout(image).kernels.values()
    assert (list(kernel.params), kernel.param_bytes) == (params, end)
    _check_promises([kernel])


def _check_promises(kernels: list[Kernel]) -> None:
    """A caller may rely on this: no parameter reaches past the buffer."""
    for kernel in kernels:
        assert all(offset + size <= kernel.param_bytes for offset, size in kernel.params)


def test_names_are_demangled_or_left() -> None:
    static = "_ZN46_INTERNAL_1f0d42c5_10_Sorting_cu_8a70c1de_12344sortEPf"
    hidden = "_ZN43_GLOBAL__N__1f0d42c5_10_Sorting_cu_8a70c1de4sortEPf"
    names = ["_Z3addPfS_i", "plain_c", "_Znonsense", "", static, hidden]
    readable = ["add(float*, float*, int)", "plain_c", "_Znonsense", ""]
    assert demangle(names) == [*readable, "sort(float*)", "(anonymous namespace)::sort(float*)"]


def _image(names: bytes, symbols: bytes, *more: tuple[str, int, bytes, int]) -> bytes:
    """A cubin with these string and symbol tables."""
    tables = [(".strtab", STRTAB, names, 0), (".symtab", SYMTAB, symbols, 0)]
    return elf([*tables, *more], machine=190, type_=2, abi=(0x41, 8), flags=6 << 24 | 90 << 8)


def test_names_that_overlap_without_end_are_an_error() -> None:
    """Each of them is short work, all of them together are hours."""
    names = b"\0" + b"a" * 100_000 + b"\0"
    symbols = b"".join(struct.pack("<IBBHQQ", 1 + i, 1, 0, 0, 0, 0) for i in range(90_000))
    with pytest.raises(CubinError, match="too many names overlap"):
        read_layout(_image(names, symbols))


def test_records_that_all_kernels_share_are_an_error() -> None:
    info = struct.pack("<BBH", 1, 0x3E, 0) * 100_000
    symbols = struct.pack("<IBBHQQ", 1, 0x12, 0x10, 4, 0, 0) * 5000
    section = (".nv.info._Z1kv", INFO, info, 0)
    with pytest.raises(CubinError, match=r"\.nv\.info sections overlap"):
        read_layout(_image(b"\0_Z1kv\0" + bytes(100_000), symbols, section))


def test_impossibly_large_blocks_are_an_error() -> None:
    fake = FakeKernel("_Z1kv", (), 0, block=(1 << 31, 1 << 31, 1 << 31))
    with pytest.raises(CubinError, match="blocks of"):
        read_layout(cubin(FakeCubin([fake])))
