"""The registry: what a fatbin in a file or in memory holds for one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from .arch import Arch
from .cache import LayoutCache, default_folder
from .elf import ELF_MAGIC, read_elf
from .errors import ArchError, CubinError
from .fatbin import choose_entry, read_fatbin, unpack
from .layout import Global, Kernel, Layout, read_layout
from .library import Span, read_span


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """The code of one fatbin for one device: its kernels by mangled name.

    `arch` is what the code was compiled for. `relocatable` code must be linked before it is loaded.
    `digest` is the SHA-256 of the fatbin.
    """

    kernels: Mapping[str, Kernel]
    globals: tuple[Global, ...]
    arch: Arch
    relocatable: bool
    digest: str
    _images: list[Callable[[], bytes]]  # by the files that have it

    @property
    def keeps_state(self) -> bool:
        """Whether kernels can leave data in it, so that two clients must not share one copy.

        Single bytes do not count: nvcc emits them as tags that nothing writes to.
        """
        return any(variable.size > 1 for variable in self.globals)

    def image(self) -> bytes:
        """Give the unpacked cubin, for `cuModuleLoadData`; read from its file again each time.

        CubinError when the file is gone or holds other bytes now.
        """
        *others, last = self._images
        for image in others:
            with suppress(CubinError):
                return image()
        return last()

    def found_again(self, same: Module) -> None:
        """Remember that another file has it, too."""
        self._images.extend(same._images)


class Registry:
    """Describes modules for one device, `sm` as in `sm_90`; safe to use from several threads."""

    def __init__(self, sm: str, cache_dir: Path | None = None) -> None:
        self.device = Arch.parse(sm)
        self._cache = LayoutCache(cache_dir or default_folder())

    def module_from_file(self, path: str | Path, offset: int, size: int) -> Module:
        """Describe the fatbin or cubin at `offset` of a file, `size` bytes long.

        Its layout is kept on disk, by the bytes themselves: two libraries may claim one build-id.
        CubinError when the bytes are bad, ArchError when nothing in them runs on the device.
        """
        path, span = Path(path), Span(offset, size)
        return self.module_from_span(path, span, read_span(path, span))

    def module_from_span(self, path: Path, span: Span, blob: bytes) -> Module:
        """Describe a part of a file that has been read; errors are those of `module_from_file`."""
        where, digest = f"{path} at {span.offset}", _digest(blob)

        def image() -> bytes:
            again = read_span(path, span)
            if _digest(again) != digest:
                raise CubinError(f"{where}: other bytes than when the module was described")
            return extract_cubin(again, self.device, where)[1]

        return _module(*self._describe(digest, blob, where), digest, image)

    def module_from_bytes(self, blob: bytes) -> Module:
        """Describe a fatbin or cubin that a client brought in memory; nothing is kept of it.

        CubinError when the bytes are bad, ArchError when nothing in them runs on the device.
        """
        arch, image = extract_cubin(blob, self.device, "module in memory")
        layout = read_layout(image, "module in memory")
        return _module(arch, layout, _digest(blob), lambda: image)

    def _describe(self, digest: str, blob: bytes, where: str) -> tuple[Arch, Layout]:
        found = self._cache.load(str(self.device), digest)
        if found is None:
            arch, cubin = extract_cubin(blob, self.device, where)
            found = arch, read_layout(cubin, where)
            self._cache.store(str(self.device), digest, *found)
        return found


def extract_cubin(blob: bytes, device: Arch, where: str) -> tuple[Arch, bytes]:
    """Give the cubin that `blob`, a fatbin or a bare cubin, holds for `device`, and its arch."""
    if blob[: len(ELF_MAGIC)] != ELF_MAGIC:
        entry = choose_entry(read_fatbin(blob, where), device, where)
        return entry.arch, unpack(entry)
    arch = read_elf(blob, where).arch
    if not arch.runs_on(device):
        raise ArchError(f"{where}: a cubin for {arch} does not run on {device}")
    return arch, blob


def _module(arch: Arch, layout: Layout, digest: str, image: Callable[[], bytes]) -> Module:
    return Module(layout.kernels, layout.globals, arch, layout.relocatable, digest, [image])


def _digest(blob: bytes) -> str:
    return sha256(blob).hexdigest()
