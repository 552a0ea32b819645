"""The scripts' --help: it says what a script does, and does nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir())


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_tells_and_does_nothing(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name), "--help"], cwd=tmp_path, text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: {name}" in done.stdout.lower()
    assert "wrote" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_record_calls_gives_pytest_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    test = tmp_path / "test_two.py"
    test.write_text("def test_nothing(): pass\ndef test_other(): pass\n")
    options = ["--check", "-p", "no:cacheprovider", "--collect-only", "-q", "-k", "nothing"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "record-calls"), *options, str(test)],
        cwd=tmp_path, text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_two.py::test_nothing" in done.stdout
    assert "test_other" not in done.stdout


def test_make_help_names_every_target() -> None:
    make = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "help"]
    done = subprocess.run(make, cwd=ROOT, text=True, capture_output=True, check=True)
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if ".PHONY" in line)
    named = {name for line in done.stdout.splitlines() for name in line.split("  ")[0].split()}
    assert named == set(phony.removeprefix(".PHONY:").split())
