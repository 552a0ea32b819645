"""The modules that clients name: in a library's file, or uploaded bytes.

A client names a module by file, offset, size and the hash of its bytes. The file is read and
hashed once; if it is not the same here, the client is asked for the bytes. The hash can be forged:
it says that a client means this file, and what was uploaded under it is that client's alone. May
run in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from mnemosyne._native import fnv1a
from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.cubin import ArchError, CubinError, Kernel, Module, Registry, Span
from mnemosyne.cubin.elf import ELF_MAGIC
from mnemosyne.cubin.fatbin import Kind, read_fatbin
from mnemosyne.cubin.library import read_span
from mnemosyne.protocol import ProtocolError
from mnemosyne.server.errors import (
    INVALID_DEVICE_FUNCTION,
    INVALID_KERNEL_IMAGE,
    INVALID_VALUE,
    NO_KERNEL_IMAGE,
    CallError,
)

MAX_MODULE = 1 << 30  # bytes


@dataclass(frozen=True, slots=True)
class ModuleName:
    """Which bytes a client means."""

    path: str
    offset: int
    size: int
    hash: int

    @classmethod
    def of(cls, values: list[Any]) -> ModuleName:
        """From the ``kernel`` message. Raises ProtocolError."""
        if [type(value) for value in values] != [str, int, int, int]:
            raise ProtocolError("kernel: module is not [path, offset, size, hash]")
        name = cls(*values)
        if name.offset < 0 or not 0 < name.size <= MAX_MODULE:
            raise ProtocolError(f"kernel: a module of {name.size} bytes at {name.offset}")
        return name


@dataclass
class Upload:
    """A module whose bytes come from the client, piece by piece and in order."""

    total: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def complete(self) -> bool:
        return len(self.data) == self.total

    def add(self, offset: int, data: bytes) -> None:
        if offset != len(self.data) or offset + len(data) > self.total:
            raise CallError(INVALID_VALUE, f"module bytes at {offset}, expected {len(self.data)}")
        self.data += data


@dataclass
class Uploads:
    """What one client has sent: bytes by hash until they are used, and the modules of `kernel`."""

    waiting: dict[int, Upload] = field(default_factory=dict)
    modules: dict[tuple[int, int], Module] = field(default_factory=dict)  # by hash and size

    def take(self, name: int) -> bytes | None:
        """The bytes with this hash, once; None: they are not all there."""
        upload = self.waiting.get(name)
        if upload is None or not upload.complete:
            return None
        del self.waiting[name]
        return bytes(upload.data)


class Found(NamedTuple):
    """``shared``: all clients may use one copy of the module."""

    module: Module
    kernel: Kernel
    shared: bool


class Modules:
    """The parsed modules of all clients. May be used from any thread."""

    def __init__(self, sm: str) -> None:
        self._registry = Registry(sm)
        self._modules: dict[ModuleName, Module] = {}
        self._by_digest: dict[str, Module] = {}  # several PyTorches of one kind share theirs
        self._lock = Lock()

    def in_memory(self, data: bytes) -> Module | None:
        """The module of a client's bytes; None: what of it can run, only the driver can tell.

        That is PTX, which has no layout before it is compiled. Raises CallError.
        """
        if _is_text(data):
            return None
        try:
            return self._registry.module_from_bytes(data)
        except ArchError as error:
            if data[: len(ELF_MAGIC)] != ELF_MAGIC and _has_ptx(data):
                return None
            raise CallError(NO_KERNEL_IMAGE, str(error)) from None
        except CubinError as error:
            raise CallError(INVALID_KERNEL_IMAGE, str(error)) from None

    def kernel(self, name: ModuleName, kernel: str, uploads: Uploads) -> Found:
        """The module and its kernel. Raises CallError, with MODULE_UNKNOWN to ask for bytes."""
        try:
            own = self._uploaded(name, uploads)
            module = self._of_file(name) if own is None else own
        except ArchError as error:
            raise CallError(NO_KERNEL_IMAGE, str(error)) from None
        except CubinError as error:
            raise CallError(INVALID_KERNEL_IMAGE, str(error)) from None
        found = module.kernels.get(kernel)
        if found is None:
            raise CallError(INVALID_DEVICE_FUNCTION, f"the module has no kernel {kernel}")
        return Found(module, found, own is None and not module.keeps_state)

    def _uploaded(self, name: ModuleName, uploads: Uploads) -> Module | None:
        key, data = (name.hash, name.size), uploads.take(name.hash)
        if data is not None and key not in uploads.modules:
            if len(data) != name.size or fnv1a(data) != name.hash:
                raise CallError(INVALID_KERNEL_IMAGE, "uploaded module bytes have another hash")
            uploads.modules[key] = self._registry.module_from_bytes(data)
        return uploads.modules.get(key)

    def _of_file(self, name: ModuleName) -> Module:
        with self._lock:
            known = self._modules.get(name)
        if known is not None:
            return known
        module = self._describe(name)
        with self._lock:  # two threads may both have described it: all get the first one's
            same = self._by_digest.setdefault(module.digest, module)
            if same is not module:
                same.found_again(module)
            return self._modules.setdefault(name, same)

    def _describe(self, name: ModuleName) -> Module:
        path, span = Path(name.path), Span(name.offset, name.size)
        try:
            blob = read_span(path, span)
        except CubinError as error:
            raise CallError(MODULE_UNKNOWN, str(error)) from None
        if fnv1a(blob) != name.hash:
            raise CallError(MODULE_UNKNOWN, f"{name.path} is another file here")
        return self._registry.module_from_span(path, span, blob)


def image_of(module: Module) -> bytes:
    """What the driver loads. Raises CallError, MODULE_UNKNOWN: its file is gone or has changed."""
    try:
        return module.image()
    except CubinError as error:
        raise CallError(MODULE_UNKNOWN, str(error)) from None


def kept_bytes(data: bytes) -> bytes:
    """What the journal has of a module; see Session.keep_module. Raises CallError."""
    if not data:
        raise CallError(MODULE_UNKNOWN, "it was too large to be kept")
    return data


def _is_text(data: bytes) -> bool:
    return bool(data) and data[:4] != ELF_MAGIC and all(byte < 128 for byte in data[:64])


def _has_ptx(data: bytes) -> bool:
    return any(entry.kind == Kind.PTX for entry in read_fatbin(data))
