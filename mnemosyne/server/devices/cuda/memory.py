"""Device memory in chunks that outlive this process, and host memory that the GPU reaches.

A chunk is physical memory made with cuMemCreate and exported as a file descriptor; the supervisor
holds the descriptor, so the memory stays when this process has to go. Every chunk is zero when a
session gets it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from cuda.bindings import driver

from mnemosyne.server.devices.cuda.driver import check
from mnemosyne.server.errors import CallError
from mnemosyne.server.session import Layout

_FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_READ_WRITE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_OUT_OF_MEMORY = 2
_PORTABLE_AND_MAPPED = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
_ENOMEM = 12


class GpuChunks:
    """Implements ``ChunkMemory`` on device ``ordinal``."""

    def __init__(self, ordinal: int) -> None:
        location = driver.CUmemLocation()
        location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = ordinal
        self._properties = driver.CUmemAllocationProp()
        self._properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location = location
        self._properties.requestedHandleTypes = _FD
        self._access = driver.CUmemAccessDesc()
        self._access.location = location
        self._access.flags = _READ_WRITE
        self._stream = check(driver.cuStreamCreate(_NON_BLOCKING))

    def reserve(self, places: Sequence[Layout]) -> None:
        """Raises OSError when an address range is in use."""
        for place in places:
            address = check(driver.cuMemAddressReserve(place.device_bytes, 0, place.device_base, 0))
            if int(address) != place.device_base:
                raise OSError(f"the address range at {place.device_base:#x} is in use")

    def make(self, address: int, size: int) -> int:
        try:
            handle = check(driver.cuMemCreate(size, self._properties, 0))
        except CallError as error:
            if error.code == _OUT_OF_MEMORY:
                raise OSError(_ENOMEM, "the GPU is out of memory") from None
            raise
        try:
            fd: int = check(driver.cuMemExportToShareableHandle(handle, _FD, 0))
            try:
                self._map(handle, address, size)
                self._clear(address, size)
            except BaseException:
                os.close(fd)
                raise
        finally:
            check(driver.cuMemRelease(handle))  # the mapping and the descriptor keep the memory
        return fd

    def adopt(self, fd: int, address: int, size: int) -> None:
        handle = check(driver.cuMemImportFromShareableHandle(fd, _FD))
        try:
            self._map(handle, address, size)
        finally:
            check(driver.cuMemRelease(handle))

    def share(self, address: int) -> int:
        handle = check(driver.cuMemRetainAllocationHandle(address))
        try:
            fd: int = check(driver.cuMemExportToShareableHandle(handle, _FD, 0))
        finally:
            check(driver.cuMemRelease(handle))
        return fd

    def drop(self, address: int, size: int) -> None:
        check(driver.cuMemUnmap(address, size))

    def _map(self, handle: driver.CUmemGenericAllocationHandle, address: int, size: int) -> None:
        check(driver.cuMemMap(address, size, 0, handle, 0))
        with ExitStack() as undo:
            undo.callback(driver.cuMemUnmap, address, size)
            check(driver.cuMemSetAccess(address, size, [self._access], 1))
            undo.pop_all()

    def _clear(self, address: int, size: int) -> None:
        with ExitStack() as undo:
            undo.callback(driver.cuMemUnmap, address, size)
            check(driver.cuMemsetD8Async(address, 0, size, self._stream))
            check(driver.cuStreamSynchronize(self._stream))
            undo.pop_all()


_NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value


def pin(address: int, size: int) -> None:
    """Lets the GPU reach host memory of a session, at the address it has here."""
    check(driver.cuMemHostRegister(address, size, _PORTABLE_AND_MAPPED))


def unpin(address: int) -> None:
    """The counterpart of ``pin``."""
    check(driver.cuMemHostUnregister(address))
