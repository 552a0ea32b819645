"""Fatbins: what they hold, which entry a device gets, and bytes that lie."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
import zstandard
from cubin_images import ELF, EXACT, FAMILY, LZ4, PTX, ZSTD, entry, fatbin
from hypothesis import given
from hypothesis import strategies as st

from mnemosyne.cubin import Arch, ArchError, CubinError, choose_entry, read_fatbin, unpack

PAYLOAD = b"cubin " * 100


@pytest.mark.parametrize("flags", [0, LZ4, ZSTD])
def test_entry_unpacks_to_what_was_packed(flags: int) -> None:
    (only,) = read_fatbin(fatbin(entry(PAYLOAD, flags=flags)))
    assert unpack(only).rstrip(b"\0") == PAYLOAD


def test_entries_keep_their_order_kind_and_arch() -> None:
    blob = fatbin(
        entry(b"a" * 8, 75),
        entry(b"b" * 8, 90, PTX),
        entry(b"c" * 8, 90, ELF, EXACT),
        entry(b"d" * 8, 103, ELF, FAMILY),
    )
    found = [(str(e.arch), e.kind) for e in read_fatbin(blob + b"what follows in the section")]
    assert found == [("sm_75", ELF), ("sm_90", PTX), ("sm_90a", ELF), ("sm_103f", ELF)]


@pytest.mark.parametrize(
    ("archs", "device", "chosen"),
    [
        (["sm_80", "sm_90"], "sm_90", "sm_90"),
        (["sm_90", "sm_90a"], "sm_90", "sm_90a"),
        (["sm_90a", "sm_90"], "sm_90", "sm_90a"),
        (["sm_80", "sm_86"], "sm_89", "sm_86"),
        (["sm_80", "sm_86"], "sm_80", "sm_80"),
        (["sm_100", "sm_100a", "sm_100f"], "sm_103", "sm_100f"),
        (["sm_100", "sm_103f"], "sm_103", "sm_103f"),
        (["sm_120", "sm_120a"], "sm_121", "sm_120"),
    ],
)
def test_device_gets_nearest_and_most_specific_code(
    archs: list[str], device: str, chosen: str
) -> None:
    entries = read_fatbin(fatbin(*(_for(arch) for arch in archs)))
    assert str(choose_entry(entries, Arch.parse(device)).arch) == chosen


def _for(arch: str) -> bytes:
    flags = {"a": EXACT, "f": FAMILY}.get(arch[-1], 0)
    return entry(b"x" * 8, int(arch[3:].rstrip("af")), ELF, flags)


def test_error_names_what_is_there_when_nothing_fits() -> None:
    blob = fatbin(_for("sm_80"), _for("sm_100a"), entry(b"ptx", 90, PTX))
    with pytest.raises(ArchError, match=r"sm_90, it has sm_80, sm_100a, sm_90 \(PTX\)$"):
        choose_entry(read_fatbin(blob), Arch.parse("sm_90"))


@pytest.mark.parametrize("text", ["", "90", "sm90", "sm_9", "sm_90b", "compute_90", "sm_99999"])
def test_arch_names_are_checked(text: str) -> None:
    with pytest.raises(CubinError, match="is no architecture"):
        Arch.parse(text)


@pytest.mark.parametrize("flags", [0, LZ4, ZSTD])
def test_every_truncation_is_an_error(flags: int) -> None:
    blob = fatbin(entry(PAYLOAD, flags=flags))
    for length in range(len(blob)):
        with pytest.raises(CubinError):
            read_fatbin(blob[:length])


@pytest.mark.parametrize("flags", [LZ4, ZSTD])
@pytest.mark.parametrize("claimed", [0, 1, len(PAYLOAD) - 1, len(PAYLOAD) + 1, 1 << 30, 1 << 62])
def test_entry_that_lies_about_its_size_is_an_error(flags: int, claimed: int) -> None:
    (only,) = read_fatbin(fatbin(entry(PAYLOAD, flags=flags, claimed=claimed)))
    with pytest.raises(CubinError):
        unpack(only)


def test_zstd_frame_cannot_claim_more_than_its_header() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    lying = bytearray(fatbin(entry(bomb, flags=0)))
    struct.pack_into("<I", lying, 16 + 16, len(bomb))
    struct.pack_into("<QQQ", lying, 16 + 40, ZSTD, 0, 1000)
    (only,) = read_fatbin(lying)
    with pytest.raises(CubinError, match="larger than its header says"):
        unpack(only)


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_else(blob: bytes) -> None:
    _read_all(blob)
    _read_all(fatbin(blob))


@given(st.sampled_from([0, LZ4, ZSTD]), st.data())
def test_damaged_fatbins_raise_nothing_else(flags: int, data: st.DataObject) -> None:
    blob = bytearray(fatbin(entry(PAYLOAD, flags=flags), entry(PAYLOAD, 80, flags=flags)))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    _read_all(bytes(blob))


def _read_all(blob: bytes) -> None:
    with suppress(CubinError):
        for found in read_fatbin(blob):
            unpack(found)
