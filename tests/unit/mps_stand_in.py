"""A stand-in for the program that starts and ends NVIDIA's MPS."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.checks import mps

_PROGRAM = """#!/bin/sh
if [ "$1" = -d ]; then
  echo start "$CUDA_MPS_PIPE_DIRECTORY" >> {notes}
  exit {status}
fi
read word
echo "$word" "$CUDA_MPS_PIPE_DIRECTORY" >> {notes}
"""


def fake_mps(folder: Path, monkeypatch: pytest.MonkeyPatch, starts: bool = True) -> Path:
    """Comes first on the path; notes how it is called in the file that is returned."""
    notes, program = folder / "notes", folder / mps.CONTROL
    program.write_text(_PROGRAM.format(notes=notes, status=0 if starts else 1))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return notes
