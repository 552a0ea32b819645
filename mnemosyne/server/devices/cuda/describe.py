"""What the GPU is: the answers that clients get from CUDA's own."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver, runtime

from mnemosyne.server.devices import Description
from mnemosyne.server.devices.cuda.driver import check

#: Kept back from clients: the context, the kernels, cuBLAS and its workspaces.
_RESERVED = 3 << 29
_GRANULE = 2 << 20
_ATTRIBUTES = range(1, 160)  # cudaDeviceAttr and CUdevice_attribute number alike
#: What a client cannot do here: managed memory, memory pools, IPC (cudaDeviceAttr).
_NOT_OFFERED = {83: 0, 89: 0, 115: 0, 125: 0}


def describe(ordinal: int, memory: int) -> Description:
    """``memory``: bytes promised to clients, 0 for what is free. Raises ValueError."""
    device = check(driver.cuDeviceGet(ordinal))
    free, _ = check(driver.cuMemGetInfo())
    available = (free - _RESERVED) // _GRANULE * _GRANULE
    if memory > available:
        raise ValueError(
            f"the GPU has {available >> 20} MiB for clients, {memory >> 20} MiB are promised; "
            "use a smaller --memory-per-client or fewer --clients"
        )
    name = check(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode()
    return Description(
        device=f"{name} ({available >> 20} MiB for clients)",
        memory=available,
        cuda=check(driver.cuDriverGetVersion()),
        name=name,
        uuid=bytes(check(driver.cuDeviceGetUuid(device)).bytes),
        properties=_properties(ordinal),
        attributes=[[n, _attribute(n, device)] for n in _ATTRIBUTES],
    )


def sm(ordinal: int) -> str:
    """The architecture's name, such as sm_90."""
    device = check(driver.cuDeviceGet(ordinal))
    kind = driver.CUdevice_attribute
    major, minor = (
        check(driver.cuDeviceGetAttribute(attribute, device))
        for attribute in (
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return f"sm_{major}{minor}"


def _properties(ordinal: int) -> bytes:
    """The bytes of cudaDeviceProp, as the runtime of this major version lays them out."""
    found = check(runtime.cudaGetDeviceProperties(ordinal))
    return ctypes.string_at(found.getPtr(), runtime.sizeof(runtime.cudaDeviceProp))


def _attribute(number: int, device: driver.CUdevice) -> int:
    if number in _NOT_OFFERED:
        return _NOT_OFFERED[number]
    try:
        attribute = driver.CUdevice_attribute(number)
    except ValueError:
        return 0
    code, value = driver.cuDeviceGetAttribute(attribute, device)
    return int(value) if int(code) == 0 else 0
