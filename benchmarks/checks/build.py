"""Builds the native parts in place when they are missing or older than their sources."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from benchmarks.checks.programs import ROOT, telling_line

COMMAND = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


class BuildFailed(Exception):
    """One line that says why."""


def build_if_stale() -> None:
    library = built_library()
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("*.*")]
    if library is None or any(s.stat().st_mtime > library.stat().st_mtime for s in sources):
        print("building the native parts ...", flush=True)
        done = subprocess.run([sys.executable, *COMMAND], capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildFailed(f"pip install failed: {telling_line(done.stdout + done.stderr)}")


def built_library() -> Path | None:
    """libclient.so as an earlier build left it."""
    try:
        native = importlib.util.find_spec("mnemosyne._native")
    except ModuleNotFoundError:
        return None
    if native is None or native.origin is None:
        return None
    library = Path(native.origin).with_name("libclient.so")
    return library if library.exists() else None
