"""Native results kept on disk: only machine, PyTorch, driver or program change them.

A file is written whole under another name and then renamed, so that runs can share the folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import platformdirs


def default_folder() -> Path:
    """``$MNEMOSYNE_CACHE_DIR``, or the user's cache folder."""
    chosen = os.environ.get("MNEMOSYNE_CACHE_DIR")
    return Path(chosen or platformdirs.user_cache_dir("mnemosyne")) / "gpu-check"


class NativeCache:
    """Results by program and arguments, for one ``machine`` (what the results depend on, in words).

    With ``fresh``, what lies there from earlier is not read.
    """

    def __init__(self, folder: Path, machine: str, fresh: bool) -> None:
        self._folder = folder
        self._machine = machine
        self._fresh = fresh

    def load(self, sources: Sequence[Path], arguments: Sequence[str]) -> Any:
        """What ``store`` kept, or None when there is nothing sound."""
        if self._fresh:
            return None
        try:
            kept = json.loads(self._path(sources, arguments).read_text())
        except (OSError, ValueError):
            return None
        return kept["result"] if isinstance(kept, dict) and "result" in kept else None

    def store(self, sources: Sequence[Path], arguments: Sequence[str], result: Any) -> None:
        """Keep a result; a folder that cannot be written is an error of whoever chose it."""
        path = self._path(sources, arguments)
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = {"machine": self._machine, "arguments": list(arguments), "result": result}
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
            json.dump(kept, file)
        os.replace(file.name, path)

    def _path(self, sources: Sequence[Path], arguments: Sequence[str]) -> Path:
        digest = blake2b(digest_size=16)
        for part in (self._machine, *arguments, *(path.read_text() for path in sources)):
            digest.update(f"{len(part)} {part}".encode())
        return self._folder / f"{digest.hexdigest()}.json"
