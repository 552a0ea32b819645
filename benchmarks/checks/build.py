"""Builds the native parts in place when they are missing or older than their sources."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.checks.programs import ROOT, telling_line

COMMAND = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))

#: A build that had nothing to do leaves an old file.
TOUCH = ("-c", "from mnemosyne.cli import client_library; client_library().touch()")


class BuildFailed(Exception):
    """One line that says why."""


def build_if_stale() -> None:
    library = built_library()
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("*.*")]
    if library is None or any(s.stat().st_mtime > library.stat().st_mtime for s in sources):
        print("building the native parts ...", flush=True)
        for command in (COMMAND, TOUCH):
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
            if done.returncode != 0:
                raise BuildFailed(f"the build failed: {telling_line(done.stdout + done.stderr)}")
        os.execv(sys.executable, sys.orig_argv)  # this process knows nothing of what is new


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
