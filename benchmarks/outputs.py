"""Whether results can be written where they are wanted, found out before anything is measured."""

from __future__ import annotations

import uuid
from pathlib import Path


def file_fault(file: Path) -> str:
    """Why nothing can be written into this file; empty if something can."""
    try:
        _try_out(file)
    except OSError as error:
        return str(error.strerror)
    return ""


def folder_fault(folder: Path) -> str:
    """Makes the folder; why nothing can be written into it, or empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return str(error.strerror)
    return file_fault(folder / f"{uuid.uuid4()}.tmp")


def _try_out(file: Path) -> None:
    existed = file.exists()
    with file.open("a"):
        pass
    if not existed:
        file.unlink()
