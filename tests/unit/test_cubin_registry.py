"""The registry: modules of files and of memory, and the cache on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cubin_images import (
    EXACT,
    LZ4,
    PTX,
    ZSTD,
    FakeCubin,
    FakeKernel,
    cubin,
    entry,
    fatbin,
    library,
)

from mnemosyne.cubin import ArchError, CubinError, Registry, Span, find_spans

IMAGES = [cubin(FakeCubin([FakeKernel(f"_Z1kILi{n}EEvv", (), 0)])) for n in range(3)]
FATBINS = [
    fatbin(entry(cubin(FakeCubin(sm=80)), 80), entry(IMAGES[0], flags=ZSTD)),
    fatbin(entry(b"// ptx", 90, PTX, LZ4), entry(IMAGES[1], flags=LZ4)),
    fatbin(entry(IMAGES[2], flags=EXACT), entry(cubin(), 90)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "lib.so"
    file.write_bytes(library(FATBINS))
    return file


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry("sm_90", tmp_path / "cache")


def cache_files(registry_or_folder: Path) -> list[Path]:
    return sorted(p for p in registry_or_folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin"])
def test_fatbins_of_a_library_are_found_behind_each_other(tmp_path: Path, section: str) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(library(FATBINS, section))
    spans = find_spans(file)
    assert [file.read_bytes()[s.offset : s.offset + s.size] for s in spans] == FATBINS


def test_modules_of_a_library(path: Path, registry: Registry) -> None:
    modules = [registry.module_from_file(path, s.offset, s.size) for s in find_spans(path)]
    assert [m.kernels[name].name for m in modules for name in m.kernels] == [
        "_Z1kILi0EEvv",
        "_Z1kILi1EEvv",
        "_Z1kILi2EEvv",
    ]
    assert [str(m.arch) for m in modules] == ["sm_90", "sm_90", "sm_90a"]
    assert [m.image().rstrip(b"\0") for m in modules] == [i.rstrip(b"\0") for i in IMAGES]


def test_second_process_reads_the_cache(path: Path, tmp_path: Path) -> None:
    span, cache = find_spans(path)[0], tmp_path / "cache"
    first = Registry("sm_90", cache).module_from_file(path, span.offset, span.size)
    written = [file.stat() for file in cache_files(cache)]
    second = Registry("sm_90", cache).module_from_file(path, span.offset, span.size)
    assert dict(second.kernels) == dict(first.kernels)
    assert second.arch == first.arch
    assert [file.stat() for file in cache_files(cache)] == written  # so nothing was described


@pytest.mark.parametrize("build_id", [b"\x12\x34", None])
@pytest.mark.parametrize("processes", [1, 2])
def test_libraries_of_one_build_id_and_size_are_told_apart(
    tmp_path: Path, build_id: bytes | None, processes: int
) -> None:
    registries = [Registry("sm_90", tmp_path / "cache") for _ in range(processes)]
    for n, image in enumerate(IMAGES):
        file = tmp_path / f"lib{n}.so"
        file.write_bytes(library([fatbin(entry(image))], build_id=build_id))
        (span,) = find_spans(file)
        found = registries[n % processes].module_from_file(file, span.offset, span.size)
        assert list(found.kernels) == [f"_Z1kILi{n}EEvv"]
        assert found.image().rstrip(b"\0") == image.rstrip(b"\0")


def test_module_is_read_from_the_file_it_was_asked_of(path: Path, registry: Registry) -> None:
    span, other = find_spans(path)[0], path.with_name("other.so")
    other.write_bytes(path.read_bytes())
    first, second = (
        registry.module_from_file(file, span.offset, span.size) for file in (other, path)
    )
    other.unlink()
    assert second.image().rstrip(b"\0") == IMAGES[0].rstrip(b"\0")
    with pytest.raises(CubinError, match=r"other\.so: cannot be opened"):
        first.image()


def test_file_that_changes_is_no_image_of_its_module(path: Path, registry: Registry) -> None:
    span = find_spans(path)[0]
    module = registry.module_from_file(path, span.offset, span.size)
    path.write_bytes(library(FATBINS[1:]))
    with pytest.raises(CubinError, match="other bytes than"):
        module.image()


def test_bad_cache_files_are_written_again(path: Path, tmp_path: Path) -> None:
    span, cache = find_spans(path)[0], tmp_path / "cache"
    expected = dict(Registry("sm_90", cache).module_from_file(path, span.offset, span.size).kernels)
    (file,) = cache_files(cache)
    good = file.read_bytes()
    flipped = bytes([*good[:-1], good[-1] ^ 1])
    old = good.replace(b"layout-1", b"layout-0")
    for bad in (*(good[:n] for n in range(len(good))), flipped, old, good + b"x", b"\xff" * 99):
        file.write_bytes(bad)
        again = Registry("sm_90", cache).module_from_file(path, span.offset, span.size)
        assert dict(again.kernels) == expected
        assert file.read_bytes() == good
    assert cache_files(cache) == [file]


def test_unwritable_cache_is_no_error(path: Path, tmp_path: Path, caplog) -> None:  # type: ignore[no-untyped-def]
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    registry = Registry("sm_90", blocked)
    with caplog.at_level("DEBUG", "mnemosyne.cubin.cache"):
        for span in find_spans(path):
            assert registry.module_from_file(path, span.offset, span.size).kernels
    assert len(caplog.records) == 1


def test_modules_from_memory(registry: Registry, tmp_path: Path) -> None:
    for blob, image in zip([*FATBINS, IMAGES[0]], [*IMAGES, IMAGES[0]], strict=True):
        module = registry.module_from_bytes(blob)
        assert module.image().rstrip(b"\0") == image.rstrip(b"\0")
    assert not cache_files(tmp_path / "cache")


@pytest.mark.parametrize("abi", [7, 8])
def test_bare_cubin_must_fit_the_device(registry: Registry, abi: int) -> None:
    assert registry.module_from_bytes(cubin(FakeCubin(abi=abi))).kernels
    with pytest.raises(ArchError, match="sm_80 does not run on sm_90"):
        registry.module_from_bytes(cubin(FakeCubin(sm=80, abi=abi)))


@pytest.mark.parametrize(
    ("variables", "keeps"),
    [
        ([], False),
        ([("tag", 1, ".nv.global"), ("$str", 40, ".nv.global.init")], False),
        ([("counter", 4, ".nv.global")], True),
        ([("counter", 4, ".nv.global.init")], True),
    ],
)
def test_module_with_writable_data_keeps_state(
    registry: Registry, variables: list[tuple[str, int, str]], keeps: bool
) -> None:
    assert registry.module_from_bytes(cubin(FakeCubin(variables=variables))).keeps_state is keeps


@pytest.mark.parametrize("offset", [-1, 0, 8, 1 << 40, 1 << 70])
@pytest.mark.parametrize("size", [-1, 0, 1, 64, 1 << 20, 1 << 70])
def test_wrong_places_in_a_file_are_errors(
    path: Path, registry: Registry, offset: int, size: int
) -> None:
    with pytest.raises(CubinError):
        registry.module_from_file(path, offset, size)


def test_things_that_are_no_library_are_errors(tmp_path: Path, registry: Registry) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    for name in ("pipe", "text", "empty", "missing", ".", "nul\0"):
        with pytest.raises(CubinError):
            find_spans(tmp_path / name)
        with pytest.raises(CubinError):
            registry.module_from_file(tmp_path / name, 0, 5)


def test_truncations_of_a_library_are_errors(tmp_path: Path) -> None:
    blob, file = library(FATBINS[:1], build_id=None), tmp_path / "lib.so"
    for length in range(0, len(blob), 7):
        file.write_bytes(blob[:length])
        with pytest.raises(CubinError):
            find_spans(file)


def test_bare_files_are_one_span(tmp_path: Path) -> None:
    for blob in (FATBINS[0], IMAGES[0]):
        (tmp_path / "file").write_bytes(blob)
        assert find_spans(tmp_path / "file") == [Span(0, len(blob))]
