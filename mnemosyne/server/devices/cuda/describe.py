"""What the GPU is: the answers that clients get from CUDA's own."""

from __future__ import annotations

from cuda.bindings import driver

from mnemosyne.server.devices import Description
from mnemosyne.server.devices.cpu.hopper import ATTRIBUTE_COUNT, ATTRIBUTES, DeviceProp
from mnemosyne.server.devices.cuda.driver import check

#: Kept back from clients: the context, the kernels, cuBLAS and its workspaces.
_RESERVED = 3 << 29
_GRANULE = 2 << 20
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
    uuid = bytes(check(driver.cuDeviceGetUuid(device)).bytes)
    return Description(
        device=f"{name} ({available >> 20} MiB for clients)",
        memory=available,
        cuda=check(driver.cuDriverGetVersion()),
        name=name,
        uuid=uuid,
        properties=_properties(device, name, uuid),
        attributes=[[n, _attribute(n, device)] for n in range(1, ATTRIBUTE_COUNT)],
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


def _properties(device: driver.CUdevice, name: str, uuid: bytes) -> bytes:
    """The bytes of cudaDeviceProp, from the driver's attributes."""
    found = DeviceProp()
    found.name, found.uuid = name.encode(), uuid
    found.totalGlobalMem = check(driver.cuDeviceTotalMem(device))
    for number, source in ATTRIBUTES.items():
        if isinstance(source, str):
            setattr(found, source, _attribute(number, device))
        elif isinstance(source, tuple):
            getattr(found, source[0])[source[1]] = _attribute(number, device)
    return bytes(found)


def _attribute(number: int, device: driver.CUdevice) -> int:
    """cudaDeviceAttr and CUdevice_attribute number alike. What the driver does not know is 0."""
    if number in _NOT_OFFERED:
        return _NOT_OFFERED[number]
    try:
        attribute = driver.CUdevice_attribute(number)
    except ValueError:
        return 0
    code, value = driver.cuDeviceGetAttribute(attribute, device)
    return int(value) if int(code) == 0 else 0
