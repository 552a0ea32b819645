"""`python -m mnemosyne.cubin`: what it prints and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin, library
from typer.testing import CliRunner

from mnemosyne.cubin.cli import app

KERNEL = FakeKernel(shared=1024 + 64, registers=24)
LINE = "24\t64\t0:8,8:8,16:4\t_Z3addPfS_i\tadd(float*, float*, int)"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMOSYNE_CACHE_DIR", str(tmp_path / "cache"))


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_every_kind_of_file_lists_the_same_kernel(tmp_path: Path) -> None:
    image = cubin(FakeCubin([KERNEL]))
    other = fatbin(entry(cubin(FakeCubin(sm=80)), 80))
    blobs = {
        "a.cubin": image,
        "a.fatbin": fatbin(entry(image)),
        "a.so": library([other, fatbin(entry(image))]),
    }
    for name, blob in blobs.items():
        (tmp_path / name).write_bytes(blob)
        code, out, _err = run("--sm", "sm_90", tmp_path / name)
        heading, line = out.splitlines()
        assert (code, heading[0]) == (0, "#")
        assert line.startswith(f"{name}@")
        assert line.endswith(LINE)


def test_folder_of_cubins_lists_those_of_the_device(tmp_path: Path) -> None:
    (tmp_path / "x.1.sm_80.cubin").write_bytes(cubin(FakeCubin(sm=80)))
    (tmp_path / "x.2.sm_90.cubin").write_bytes(cubin(FakeCubin([KERNEL])))
    _code, out, _err = run("--sm_version", "sm_90", tmp_path)
    assert out.splitlines()[1:] == [f"x.2.sm_90.cubin@0\t{LINE}"]


def test_json_is_one_list(tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(cubin(FakeCubin([KERNEL, FakeKernel("_Z1bv", (), 0)])))
    _code, out, _err = run("--sm", "sm_90", "--format", "json", tmp_path / "a.cubin")
    first, second = json.loads(out)
    assert first["params"] == [[0, 8], [8, 8], [16, 4]]
    assert (first["registers"], first["shared"], second["demangled"]) == (24, 64, "b()")


@pytest.mark.parametrize("form", ["text", "json"])
def test_errors_are_one_line_and_exit_code_2(tmp_path: Path, form: str) -> None:
    (tmp_path / "bad").write_bytes(b"nonsense")
    (tmp_path / "old.cubin").write_bytes(cubin(FakeCubin(sm=70)))
    (tmp_path / "plain.so").write_bytes(library([]))
    (tmp_path / "empty").mkdir()
    for name in ("bad", "old.cubin", "plain.so", "empty", "missing"):
        code, out, err = run("--sm", "sm_90", "--format", form, tmp_path / name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
    assert run("--sm", "ninety", tmp_path / "bad")[0] == 2


def test_reader_that_leaves_early_sees_no_traceback(tmp_path: Path) -> None:
    kernels = [FakeKernel(f"_Z1kILi{n}EEvv", (), 0) for n in range(3000)]
    (tmp_path / "a.cubin").write_bytes(cubin(FakeCubin(kernels)))
    command = [sys.executable, "-m", "mnemosyne.cubin", "--sm", "sm_90", tmp_path / "a.cubin"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_package_imports_neither_torch_nor_the_rest() -> None:
    code = (
        "import sys, mnemosyne.cubin as _;"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'cuda', 'asyncio')"
        " or m.startswith('mnemosyne.') and not m.startswith('mnemosyne.cubin')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
