"""Modules as clients name them: by file, or by bytes that they have sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin

from mnemosyne._native import fnv1a
from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.server.errors import (
    INVALID_DEVICE_FUNCTION,
    INVALID_KERNEL_IMAGE,
    NO_KERNEL_IMAGE,
    CallError,
)
from mnemosyne.server.modules import ModuleName, Modules, Upload, Uploads, image_of

IMAGE = cubin(FakeCubin([FakeKernel("first", ((0, 8),), 8), FakeKernel("second", (), 0)]))
BLOB = fatbin(entry(IMAGE))
NOWHERE = "/nonexistent/library.so"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    monkeypatch.setenv("MNEMOSYNE_CACHE_DIR", str(tmp_path / "cache"))
    return Modules("sm_90")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "kernels.fatbin"
    file.write_bytes(BLOB)
    return file


def name_of(path: Path | str, blob: bytes = BLOB) -> ModuleName:
    return ModuleName(str(path), 0, len(blob), fnv1a(blob))


def sent(blob: bytes, called: int | None = None) -> Uploads:
    """A client that has sent these bytes, by their own hash or another."""
    uploads = Uploads()
    uploads.waiting[fnv1a(blob) if called is None else called] = Upload(len(blob), bytearray(blob))
    return uploads


def refusal(modules: Modules, name: ModuleName, kernel: str, uploads: Uploads) -> int:
    with pytest.raises(CallError) as error:
        modules.kernel(name, kernel, uploads)
    return error.value.code


def test_all_clients_share_the_module_of_a_file(modules: Modules, path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: modules.kernel(name_of(path), "first", Uploads()), range(64))
        )
    assert len({id(one.module) for one in found}) == 1
    assert found[0].shared
    assert found[0].kernel.params == ((0, 8),)
    path.unlink()  # it was read, once
    assert modules.kernel(name_of(path), "second", Uploads()).module is found[0].module


def test_two_files_with_the_same_bytes_have_one_module(
    modules: Modules, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(BLOB)
    first, second = (modules.kernel(name_of(p), "first", Uploads()).module for p in (path, copy))
    assert first is second
    path.unlink()
    assert image_of(first) == IMAGE
    copy.unlink()
    with pytest.raises(CallError, match="copy") as gone:
        image_of(first)
    assert gone.value.code == MODULE_UNKNOWN


def test_what_a_client_sent_is_no_other_clients(modules: Modules) -> None:
    uploads, name = sent(BLOB), name_of(NOWHERE)
    first = modules.kernel(name, "first", uploads)
    assert not first.shared
    assert image_of(first.module).rstrip(b"\0") == IMAGE.rstrip(b"\0")
    assert modules.kernel(name, "second", uploads).module is first.module
    assert refusal(modules, name, "first", Uploads()) == MODULE_UNKNOWN
    assert modules.kernel(name, "first", sent(BLOB)).module is not first.module


def test_a_module_stays_what_its_client_sent_first(modules: Modules) -> None:
    uploads, name = sent(BLOB), name_of(NOWHERE)
    first = modules.kernel(name, "first", uploads)
    uploads.waiting.update(sent(bytes(len(BLOB)), name.hash).waiting)
    assert modules.kernel(name, "first", uploads).module is first.module
    assert not uploads.waiting


@pytest.mark.parametrize(
    ("blob", "kernel", "code"),
    [
        (BLOB, "third", INVALID_DEVICE_FUNCTION),
        (bytes(64), "first", INVALID_KERNEL_IMAGE),
        (fatbin(entry(cubin(FakeCubin(sm=80)), 80)), "first", NO_KERNEL_IMAGE),
    ],
)
def test_bytes_are_given_back_whatever_they_are(
    modules: Modules, blob: bytes, kernel: str, code: int
) -> None:
    uploads = sent(blob)
    assert refusal(modules, name_of(NOWHERE, blob), kernel, uploads) == code
    assert not uploads.waiting


@pytest.mark.parametrize("blob", [BLOB[:-1], BLOB + b"x", bytes(len(BLOB))])
def test_other_bytes_than_the_client_named_are_refused(modules: Modules, blob: bytes) -> None:
    name = name_of(NOWHERE)
    assert refusal(modules, name, "first", sent(blob, name.hash)) == INVALID_KERNEL_IMAGE


def test_bytes_that_are_not_all_there_are_waited_for(modules: Modules) -> None:
    uploads = Uploads({fnv1a(BLOB): Upload(len(BLOB), bytearray(BLOB[:-1]))})
    assert refusal(modules, name_of(NOWHERE), "first", uploads) == MODULE_UNKNOWN
    uploads.waiting[fnv1a(BLOB)].add(len(BLOB) - 1, BLOB[-1:])
    assert modules.kernel(name_of(NOWHERE), "first", uploads).kernel.name == "first"


def test_a_client_is_asked_for_the_image_of_a_file_that_is_gone(
    modules: Modules, path: Path
) -> None:
    found = modules.kernel(name_of(path), "first", Uploads())
    path.unlink()
    with pytest.raises(CallError, match="cannot be opened") as error:
        image_of(found.module)
    assert error.value.code == MODULE_UNKNOWN
    own = modules.kernel(name_of(path), "first", sent(BLOB))
    assert image_of(own.module).rstrip(b"\0") == IMAGE.rstrip(b"\0")


@pytest.mark.parametrize("change", [lambda blob: blob[:-1], lambda blob: bytes(len(blob))])
def test_a_file_that_is_another_here_is_unknown(modules: Modules, path: Path, change) -> None:  # type: ignore[no-untyped-def]
    path.write_bytes(change(BLOB))
    assert refusal(modules, name_of(path), "first", Uploads()) == MODULE_UNKNOWN
