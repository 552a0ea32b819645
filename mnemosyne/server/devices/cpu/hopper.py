"""The GPU that the CPU device claims to be: a Hopper, as its kernels were compiled for one.

``PROPERTIES`` follows ``struct cudaDeviceProp`` of driver_types.h (CUDA 13) field by field, and
``ATTRIBUTES`` the enum ``cudaDeviceAttr``. Values are those of an H200, except what it cannot do
here (managed memory, memory pools, IPC).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NAME = "NVIDIA H200 (Mnemosyne CPU device)"
UUID = b"mnemosyne-cpu-00"
SM = "sm_90"
CUDA = 13000

#: (field, C type, value); a tuple is an array.
PROPERTIES: Sequence[tuple[str, str, Any]] = (
    ("name", "char[256]", NAME.encode()),
    ("uuid", "char[16]", UUID),
    ("luid", "char[8]", b""),
    ("luidDeviceNodeMask", "uint", 0),
    ("totalGlobalMem", "size_t", 0),  # filled in
    ("sharedMemPerBlock", "size_t", 49152),
    ("regsPerBlock", "int", 65536),
    ("warpSize", "int", 32),
    ("memPitch", "size_t", 2147483647),
    ("maxThreadsPerBlock", "int", 1024),
    ("maxThreadsDim", "int", (1024, 1024, 64)),
    ("maxGridSize", "int", (2147483647, 65535, 65535)),
    ("totalConstMem", "size_t", 65536),
    ("major", "int", 9),
    ("minor", "int", 0),
    ("textureAlignment", "size_t", 512),
    ("texturePitchAlignment", "size_t", 32),
    ("multiProcessorCount", "int", 132),
    ("integrated", "int", 0),
    ("canMapHostMemory", "int", 1),
    ("maxTexture1D", "int", 131072),
    ("maxTexture1DMipmap", "int", 32768),
    ("maxTexture2D", "int", (131072, 65536)),
    ("maxTexture2DMipmap", "int", (32768, 32768)),
    ("maxTexture2DLinear", "int", (131072, 65000, 2097120)),
    ("maxTexture2DGather", "int", (32768, 32768)),
    ("maxTexture3D", "int", (16384, 16384, 16384)),
    ("maxTexture3DAlt", "int", (8192, 8192, 32768)),
    ("maxTextureCubemap", "int", 32768),
    ("maxTexture1DLayered", "int", (32768, 2048)),
    ("maxTexture2DLayered", "int", (32768, 32768, 2048)),
    ("maxTextureCubemapLayered", "int", (32768, 2046)),
    ("maxSurface1D", "int", 32768),
    ("maxSurface2D", "int", (131072, 65536)),
    ("maxSurface3D", "int", (16384, 16384, 16384)),
    ("maxSurface1DLayered", "int", (32768, 2048)),
    ("maxSurface2DLayered", "int", (32768, 32768, 2048)),
    ("maxSurfaceCubemap", "int", 32768),
    ("maxSurfaceCubemapLayered", "int", (32768, 2046)),
    ("surfaceAlignment", "size_t", 512),
    ("concurrentKernels", "int", 1),
    ("ECCEnabled", "int", 1),
    ("pciBusID", "int", 1),
    ("pciDeviceID", "int", 0),
    ("pciDomainID", "int", 0),
    ("tccDriver", "int", 0),
    ("asyncEngineCount", "int", 3),
    ("unifiedAddressing", "int", 1),
    ("memoryBusWidth", "int", 6144),
    ("l2CacheSize", "int", 62914560),
    ("persistingL2CacheMaxSize", "int", 39321600),
    ("maxThreadsPerMultiProcessor", "int", 2048),
    ("streamPrioritiesSupported", "int", 1),
    ("globalL1CacheSupported", "int", 1),
    ("localL1CacheSupported", "int", 1),
    ("sharedMemPerMultiprocessor", "size_t", 233472),
    ("regsPerMultiprocessor", "int", 65536),
    ("managedMemory", "int", 0),
    ("isMultiGpuBoard", "int", 0),
    ("multiGpuBoardGroupID", "int", 0),
    ("hostNativeAtomicSupported", "int", 0),
    ("pageableMemoryAccess", "int", 0),
    ("concurrentManagedAccess", "int", 0),
    ("computePreemptionSupported", "int", 1),
    ("canUseHostPointerForRegisteredMem", "int", 0),
    ("cooperativeLaunch", "int", 1),
    ("sharedMemPerBlockOptin", "size_t", 232448),
    ("pageableMemoryAccessUsesHostPageTables", "int", 0),
    ("directManagedMemAccessFromHost", "int", 0),
    ("maxBlocksPerMultiProcessor", "int", 32),
    ("accessPolicyMaxWindowSize", "int", 134213632),
    ("reservedSharedMemPerBlock", "size_t", 1024),
    ("hostRegisterSupported", "int", 1),
    ("sparseCudaArraySupported", "int", 0),
    ("hostRegisterReadOnlySupported", "int", 0),
    ("timelineSemaphoreInteropSupported", "int", 0),
    ("memoryPoolsSupported", "int", 0),
    ("gpuDirectRDMASupported", "int", 0),
    ("gpuDirectRDMAFlushWritesOptions", "uint", 0),
    ("gpuDirectRDMAWritesOrdering", "int", 0),
    ("memoryPoolSupportedHandleTypes", "uint", 0),
    ("deferredMappingCudaArraySupported", "int", 0),
    ("ipcEventSupported", "int", 0),
    ("clusterLaunch", "int", 1),
    ("unifiedFunctionPointers", "int", 1),
    ("deviceNumaConfig", "int", 0),
    ("deviceNumaId", "int", -1),
    ("mpsEnabled", "int", 0),
    ("hostNumaId", "int", 0),
    ("gpuPciDeviceID", "uint", 0x233510DE),
    ("gpuPciSubsystemID", "uint", 0x18BE10DE),
    ("hostNumaMultinodeIpcSupported", "int", 0),
    ("reserved", "int", (0,) * 56),
)

#: cudaDeviceAttr by number: a value, a property's name, or (name, index). The rest is 0.
ATTRIBUTES: dict[int, int | str | tuple[str, int]] = {
    1: "maxThreadsPerBlock",
    2: ("maxThreadsDim", 0), 3: ("maxThreadsDim", 1), 4: ("maxThreadsDim", 2),
    5: ("maxGridSize", 0), 6: ("maxGridSize", 1), 7: ("maxGridSize", 2),
    8: "sharedMemPerBlock", 9: "totalConstMem", 10: "warpSize", 11: "memPitch",
    12: "regsPerBlock",
    13: 1980000,  # clock rate, kHz
    14: "textureAlignment",
    15: 1,  # copies and kernels overlap
    16: "multiProcessorCount", 18: "integrated", 19: "canMapHostMemory",
    21: "maxTexture1D", 22: ("maxTexture2D", 0), 23: ("maxTexture2D", 1),
    24: ("maxTexture3D", 0), 25: ("maxTexture3D", 1), 26: ("maxTexture3D", 2),
    27: ("maxTexture2DLayered", 0), 28: ("maxTexture2DLayered", 1), 29: ("maxTexture2DLayered", 2),
    30: "surfaceAlignment", 31: "concurrentKernels", 32: "ECCEnabled", 33: "pciBusID",
    34: "pciDeviceID", 35: "tccDriver",
    36: 3201000,  # memory clock rate, kHz
    37: "memoryBusWidth", 38: "l2CacheSize", 39: "maxThreadsPerMultiProcessor",
    40: "asyncEngineCount", 41: "unifiedAddressing",
    42: ("maxTexture1DLayered", 0), 43: ("maxTexture1DLayered", 1),
    45: ("maxTexture2DGather", 0), 46: ("maxTexture2DGather", 1),
    47: ("maxTexture3DAlt", 0), 48: ("maxTexture3DAlt", 1), 49: ("maxTexture3DAlt", 2),
    50: "pciDomainID", 51: "texturePitchAlignment", 52: "maxTextureCubemap",
    53: ("maxTextureCubemapLayered", 0), 54: ("maxTextureCubemapLayered", 1),
    55: "maxSurface1D", 56: ("maxSurface2D", 0), 57: ("maxSurface2D", 1),
    58: ("maxSurface3D", 0), 59: ("maxSurface3D", 1), 60: ("maxSurface3D", 2),
    61: ("maxSurface1DLayered", 0), 62: ("maxSurface1DLayered", 1),
    63: ("maxSurface2DLayered", 0), 64: ("maxSurface2DLayered", 1), 65: ("maxSurface2DLayered", 2),
    66: "maxSurfaceCubemap",
    67: ("maxSurfaceCubemapLayered", 0), 68: ("maxSurfaceCubemapLayered", 1),
    69: 268435456,  # texture 1D linear width
    70: ("maxTexture2DLinear", 0), 71: ("maxTexture2DLinear", 1), 72: ("maxTexture2DLinear", 2),
    73: ("maxTexture2DMipmap", 0), 74: ("maxTexture2DMipmap", 1),
    75: "major", 76: "minor", 77: "maxTexture1DMipmap", 78: "streamPrioritiesSupported",
    79: "globalL1CacheSupported", 80: "localL1CacheSupported", 81: "sharedMemPerMultiprocessor",
    82: "regsPerMultiprocessor", 83: "managedMemory", 84: "isMultiGpuBoard",
    85: "multiGpuBoardGroupID", 86: "hostNativeAtomicSupported",
    87: 2,  # single to double precision ratio
    88: "pageableMemoryAccess", 89: "concurrentManagedAccess", 90: "computePreemptionSupported",
    91: "canUseHostPointerForRegisteredMem", 95: "cooperativeLaunch",
    97: "sharedMemPerBlockOptin",
    98: 1,  # can flush remote writes
    99: "hostRegisterSupported", 100: "pageableMemoryAccessUsesHostPageTables",
    101: "directManagedMemAccessFromHost", 106: "maxBlocksPerMultiProcessor",
    108: "persistingL2CacheMaxSize", 109: "accessPolicyMaxWindowSize",
    111: "reservedSharedMemPerBlock", 112: "sparseCudaArraySupported",
    113: "hostRegisterReadOnlySupported", 114: "timelineSemaphoreInteropSupported",
    115: "memoryPoolsSupported", 116: "gpuDirectRDMASupported",
    117: "gpuDirectRDMAFlushWritesOptions", 118: "gpuDirectRDMAWritesOrdering",
    119: "memoryPoolSupportedHandleTypes", 120: "clusterLaunch",
    121: "deferredMappingCudaArraySupported", 125: "ipcEventSupported",
    126: 4,  # memory synchronisation domains
    130: "deviceNumaConfig", 131: "deviceNumaId", 133: "mpsEnabled", 134: "hostNumaId",
    139: "gpuPciDeviceID", 140: "gpuPciSubsystemID", 143: "hostNumaMultinodeIpcSupported",
}  # fmt: skip
ATTRIBUTE_COUNT = 148

_CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "uint": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    "char[256]": ctypes.c_char * 256,
    "char[16]": ctypes.c_char * 16,
    "char[8]": ctypes.c_char * 8,
}


def _field_type(ctype: str, value: Any) -> Any:
    base = _CTYPES[ctype]
    return base * len(value) if isinstance(value, tuple) else base


class DeviceProp(ctypes.Structure):
    """cudaDeviceProp of CUDA 13."""

    _fields_ = [(name, _field_type(ctype, value)) for name, ctype, value in PROPERTIES]


def properties(memory: int) -> bytes:
    """The bytes of cudaDeviceProp for a device with this much memory."""
    values = {name: value for name, _, value in PROPERTIES}
    return bytes(DeviceProp(**{**values, "totalGlobalMem": memory}))


def attributes() -> list[list[int]]:
    """[[cudaDeviceAttr, value], ...] for every attribute; what is not declared is 0."""
    return [[n, _attribute(ATTRIBUTES.get(n, 0))] for n in range(1, ATTRIBUTE_COUNT)]


def _attribute(source: int | str | tuple[str, int]) -> int:
    if isinstance(source, int):
        return source
    name, index = source if isinstance(source, tuple) else (source, None)
    value = next(value for field, _, value in PROPERTIES if field == name)
    return int(value if index is None else value[index])


@dataclass(frozen=True)
class Limits:
    """What a launch is checked against, and what occupancy follows from."""

    block_threads: int = 1024
    block_dim: tuple[int, int, int] = (1024, 1024, 64)
    grid_dim: tuple[int, int, int] = (2147483647, 65535, 65535)
    default_shared: int = 49152
    opt_in_shared: int = 232448
    sm_shared: int = 233472
    reserved_shared: int = 1024
    sm_warps: int = 64
    sm_blocks: int = 32
    warp: int = 32
    sub_partitions: int = 4
    partition_registers: int = 16384
    register_unit: int = 256  # registers of a warp are given out in these
    shared_unit: int = 128


LIMITS = Limits()
