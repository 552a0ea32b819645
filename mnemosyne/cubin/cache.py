"""Layouts kept on disk, so that a later process need not unpack and parse the cubin again.

One small file per module, written whole under another name and then renamed, so that processes can
share the folder. A file carries a checksum and the number of this format: whatever is not exactly
what we wrote is ignored and written again. A folder that cannot be written costs one log line.
"""

from __future__ import annotations

import logging
import os
import tempfile
from hashlib import blake2b
from pathlib import Path

import msgpack
import platformdirs

from .arch import Arch
from .errors import CubinError
from .layout import Global, Kernels, Layout

_MAGIC = b"mnemosyne-layout-1\n"  # raise the number when the fields below change
_DIGEST_BYTES = 16
_log = logging.getLogger(__name__)


def default_folder() -> Path:
    """`$MNEMOSYNE_CACHE_DIR`, or the user's cache folder."""
    chosen = os.environ.get("MNEMOSYNE_CACHE_DIR")
    return Path(chosen or platformdirs.user_cache_dir("mnemosyne")) / "registry"


class LayoutCache:
    """Layouts by device and the digest of the module's bytes, both safe in a file name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complained = False

    def load(self, device: str, digest: str) -> tuple[Arch, Layout] | None:
        """Give what `store` kept, or None when there is nothing sound."""
        try:
            data = self._path(device, digest).read_bytes()
        except OSError:
            return None
        return _decode(data)

    def store(self, device: str, digest: str, arch: Arch, layout: Layout) -> None:
        """Keep a layout; a failure is logged once and otherwise ignored."""
        path = self._path(device, digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, _encode(arch, layout))
        except OSError as error:
            if not self._complained:
                _log.debug("layouts are not cached in %s: %s", self._folder, error)
            self._complained = True

    def _path(self, device: str, digest: str) -> Path:
        return self._folder / device / f"{digest}.msgpack"


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _encode(arch: Arch, layout: Layout) -> bytes:
    variables = [(g.name, g.size, g.section) for g in layout.globals]
    body: bytes = msgpack.packb((str(arch), layout.relocatable, layout.kernels.packed, variables))
    return _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _decode(data: bytes) -> tuple[Arch, Layout] | None:
    body = memoryview(data)[len(_MAGIC) + _DIGEST_BYTES :]
    digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
    if data[: len(_MAGIC) + _DIGEST_BYTES] != _MAGIC + digest:
        return None
    try:
        arch, relocatable, kernels, variables = msgpack.unpackb(body, use_list=False)
        variables = tuple(Global(*fields) for fields in variables)
        return Arch.parse(arch), Layout(Kernels(kernels), variables, relocatable)
    except (ValueError, TypeError, CubinError):  # the checksum holds, so another format wrote it
        return None
