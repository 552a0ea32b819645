"""The registry: modules by where they came from, each described when it is first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from .arch import Arch
from .cache import LayoutCache, default_folder
from .elf import ELF_MAGIC, read_elf
from .errors import ArchError, CubinError
from .fatbin import choose_entry, read_fatbin, unpack
from .layout import Global, Kernel, Layout, read_layout
from .library import Span, read_build_id, read_span


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """The code of one fatbin for one device: its kernels by mangled name.

    `arch` is what the code was compiled for. `relocatable` code must be linked before it is loaded.
    """

    kernels: Mapping[str, Kernel]
    globals: tuple[Global, ...]
    arch: Arch
    relocatable: bool
    _image: Callable[[], bytes]

    @property
    def keeps_state(self) -> bool:
        """Whether kernels can leave data in it, so that two clients must not share one copy.

        Single bytes do not count: nvcc emits them as tags that nothing writes to.
        """
        return any(variable.size > 1 for variable in self.globals)

    def image(self) -> bytes:
        """Give the unpacked cubin, for `cuModuleLoadData`; read from its file again each time."""
        return self._image()


class Registry:
    """Describes modules for one device, `sm` as in `sm_90`; safe to use from several threads."""

    def __init__(self, sm: str, cache_dir: Path | None = None) -> None:
        self.device = Arch.parse(sm)
        self._cache = LayoutCache(cache_dir or default_folder())
        self._modules: dict[tuple[str, Span], Module] = {}
        self._libraries: dict[tuple[int, int, int, int], str] = {}
        self._lock = Lock()

    def module_from_file(self, path: str | Path, offset: int, size: int) -> Module:
        """Describe the fatbin or cubin at `offset` of a file, `size` bytes long.

        The answer is kept in memory and on disk, by the library's build-id or else by content.
        CubinError when the bytes are bad, ArchError when nothing in them runs on the device.
        """
        path, span = Path(path), Span(offset, size)
        library = self._library(path) or _digest(read_span(path, span))
        with self._lock:
            known = self._modules.get((library, span))
        if known is not None:
            return known
        module = self._describe(library, path, span)
        with self._lock:  # two threads may both have described it: all get the first one's
            return self._modules.setdefault((library, span), module)

    def module_from_bytes(self, blob: bytes) -> Module:
        """Describe a fatbin or cubin that a client brought in memory; nothing is kept of it.

        CubinError when the bytes are bad, ArchError when nothing in them runs on the device.
        """
        arch, image = extract_cubin(blob, self.device, "module in memory")
        layout = read_layout(image, "module in memory")
        return _module(arch, layout, lambda: image)

    def _library(self, path: Path) -> str | None:
        """Name a library's build, remembered for as long as its file is the same."""
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            raise CubinError(f"{path}: cannot be read ({error})") from None
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._libraries:
            self._libraries[key] = read_build_id(path) or ""
        return self._libraries[key] or None

    def _describe(self, library: str, path: Path, span: Span) -> Module:
        where = f"{path} at {span.offset}"

        def image() -> bytes:
            return extract_cubin(read_span(path, span), self.device, where)[1]

        device, name = f"{library}-{self.device}", f"{span.offset}-{span.size}"
        found = self._cache.load(device, name)
        if found is None:
            arch, cubin = extract_cubin(read_span(path, span), self.device, where)
            found = arch, read_layout(cubin, where)
            self._cache.store(device, name, *found)
        return _module(*found, image)


def extract_cubin(blob: bytes, device: Arch, where: str) -> tuple[Arch, bytes]:
    """Give the cubin that `blob`, a fatbin or a bare cubin, holds for `device`, and its arch."""
    if blob[: len(ELF_MAGIC)] != ELF_MAGIC:
        entry = choose_entry(read_fatbin(blob, where), device, where)
        return entry.arch, unpack(entry)
    arch = read_elf(blob, where).arch
    if not arch.runs_on(device):
        raise ArchError(f"{where}: a cubin for {arch} does not run on {device}")
    return arch, blob


def _module(arch: Arch, layout: Layout, image: Callable[[], bytes]) -> Module:
    return Module(layout.kernels, layout.globals, arch, layout.relocatable, image)


def _digest(blob: bytes) -> str:
    return blake2b(blob, digest_size=20).hexdigest()
