"""The modules that clients name: in a library's file, or uploaded bytes.

A client names a module by file, offset, size and the hash of its bytes. The file is read and
hashed once; if it is not the same here, the client is asked for the bytes. May run in any thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from mnemosyne._native import fnv1a
from mnemosyne.api.messages import MODULE_UNKNOWN
from mnemosyne.cubin import ArchError, CubinError, Kernel, Module, Registry
from mnemosyne.cubin.elf import ELF_MAGIC
from mnemosyne.cubin.fatbin import Kind, read_fatbin
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


class Modules:
    """The parsed modules of all clients. May be used from any thread."""

    def __init__(self, sm: str) -> None:
        self._registry = Registry(sm)
        self._modules: dict[ModuleName, Module] = {}
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

    def kernel(
        self, name: ModuleName, kernel: str, uploads: Mapping[int, Upload]
    ) -> tuple[Module, Kernel]:
        """The module and its kernel. Raises CallError, with MODULE_UNKNOWN to ask for bytes."""
        try:
            module = self._module(name, uploads)
        except ArchError as error:
            raise CallError(NO_KERNEL_IMAGE, str(error)) from None
        except CubinError as error:
            raise CallError(INVALID_KERNEL_IMAGE, str(error)) from None
        found = module.kernels.get(kernel)
        if found is None:
            raise CallError(INVALID_DEVICE_FUNCTION, f"the module has no kernel {kernel}")
        return module, found

    def _module(self, name: ModuleName, uploads: Mapping[int, Upload]) -> Module:
        with self._lock:
            known = self._modules.get(name)
        if known is None:
            known = self._describe(name, uploads)
            with self._lock:
                self._modules[name] = known
        return known

    def _describe(self, name: ModuleName, uploads: Mapping[int, Upload]) -> Module:
        upload = uploads.get(name.hash)
        if upload is not None and upload.complete and upload.total == name.size:
            data = bytes(upload.data)
            if fnv1a(data) != name.hash:
                raise CallError(INVALID_KERNEL_IMAGE, "uploaded module bytes have another hash")
            return self._registry.module_from_bytes(data)
        if fnv1a(_read_range(name)) != name.hash:
            raise CallError(MODULE_UNKNOWN, f"{name.path} is another file here")
        return self._registry.module_from_file(name.path, name.offset, name.size)


def kept_bytes(data: bytes) -> bytes:
    """What the journal has of a module; see Session.keep_module. Raises CallError."""
    if not data:
        raise CallError(MODULE_UNKNOWN, "it was too large to be kept")
    return data


def _is_text(data: bytes) -> bool:
    return bool(data) and data[:4] != ELF_MAGIC and all(byte < 128 for byte in data[:64])


def _has_ptx(data: bytes) -> bool:
    return any(entry.kind == Kind.PTX for entry in read_fatbin(data))


def _read_range(name: ModuleName) -> bytes:
    try:
        fd = os.open(name.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise CallError(MODULE_UNKNOWN, f"{name.path!r} cannot be read ({error})") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CallError(MODULE_UNKNOWN, f"{name.path} is no regular file")
        return os.pread(fd, name.size, name.offset)
    except OSError as error:
        raise CallError(MODULE_UNKNOWN, f"{name.path} cannot be read ({error})") from None
    finally:
        os.close(fd)
