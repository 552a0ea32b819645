"""The driver and NVML entry points PyTorch resolves by name (cuda.h, nvml.h)."""

from mnemosyne.api.spec import Mode
from mnemosyne.api.words import handwritten, without_setting

BY_HAND = [
    *handwritten(
        "cuda", Mode.LOCAL, "answered from the device's description",
        "cuDeviceComputeCapability", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount",
        "cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2",
        "cuDriverGetVersion", "cuInit",
    ),
    *handwritten(
        "cuda", Mode.LOCAL, "there is one context, and the client never owns it",
        "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxSetCurrent", "cuCtxSynchronize",
        "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRetain",
    ),
    *handwritten(
        "cuda", Mode.LOCAL, "limits are the context's: defaults are told, setting changes nothing",
        "cuCtxGetLimit", "cuCtxSetLimit",
    ),
    *handwritten(
        "cuda", Mode.CUSTOM, "the server loads what a program has in memory, for it alone",
        "cuModuleGetFunction", "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx",
        "cuModuleUnload",
    ),
    *handwritten(
        "cuda", Mode.CUSTOM, "packs arguments by the kernel's parameter layout",
        "cuLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx",
    ),
    *handwritten(
        "cuda", Mode.CUSTOM, "attributes come with the kernel's layout, then stay in the client",
        "cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncSetCacheConfig",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxActiveClusters",
    ),
    *handwritten(
        "cuda", Mode.CUSTOM, "only the driver can make them; asked once for each content",
        "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled",
    ),
    *handwritten("cuda", Mode.CUSTOM, "counts words, not bytes", "cuMemsetD32Async"),
    *handwritten(
        "cuda", Mode.LOCAL, "a table of names", "cuGetErrorName", "cuGetErrorString",
        "cuGetProcAddress", "cuGetProcAddress_v2",
    ),
    *handwritten(
        "cuda", Mode.LOCAL, "answered from the client's table of allocations",
        "cuMemGetAddressRange_v2", "cuPointerGetAttribute",
    ),
    *handwritten(
        "cuda", Mode.LOCAL, "undocumented tables are not offered; names the library that asks",
        "cuGetExportTable",
    ),
    *handwritten(
        "cuda", Mode.LOCAL, "accepted; the driver's log is the server's, so nothing is delivered",
        "cuLogsRegisterCallback", "cuLogsUnregisterCallback",
    ),
    *handwritten(
        "nvml", Mode.LOCAL, "tells of the one device this client sees",
        "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlErrorString",
        "nvmlInit", "nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown",
        "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverVersion",
    ),
    *handwritten(
        "nvml", Mode.LOCAL, "asks the machine's own NVML of the server's GPU",
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetUtilizationRates",
    ),
]  # fmt: skip

#: What a program gets that asks for the unversioned name, as the driver's own tables list them.
VERSIONED = {
    "cuCtxPopCurrent": "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent": "cuCtxPushCurrent_v2",
    "cuDeviceGetUuid": "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease": "cuDevicePrimaryCtxRelease_v2",
    "cuDeviceTotalMem": "cuDeviceTotalMem_v2",
    "cuGetProcAddress": "cuGetProcAddress_v2",
    "cuMemGetAddressRange": "cuMemGetAddressRange_v2",
    "cuStreamWriteValue32": "cuStreamWriteValue32_v2",
}

REFUSED = [
    *handwritten(
        "cuda", Mode.REFUSED, without_setting("expandable_segments:True"),
        "cuMemAddressFree", "cuMemAddressReserve", "cuMemCreate", "cuMemExportToShareableHandle",
        "cuMemGetAllocationGranularity", "cuMemGetAllocationPropertiesFromHandle",
        "cuMemImportFromShareableHandle", "cuMemMap", "cuMemRelease",
        "cuMemRetainAllocationHandle", "cuMemSetAccess", "cuMemUnmap",
    ),
    *handwritten(
        "cuda", Mode.REFUSED, "a client sees one device",
        "cuMulticastAddDevice", "cuMulticastBindMem", "cuMulticastCreate", "cuMulticastUnbind",
    ),
    *handwritten(
        "cuda", Mode.REFUSED, "the context is shared",
        "cuCtxFromGreenCtx", "cuCtxPopCurrent_v2", "cuCtxPushCurrent_v2",
        "cuDevResourceGenerateDesc", "cuDevSmResourceSplitByCount", "cuDeviceGetDevResource",
        "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuGreenCtxStreamCreate",
    ),
    *handwritten("cuda", Mode.REFUSED, "not implemented yet", "cuStreamWriteValue32_v2"),
    *handwritten(
        "nvml", Mode.REFUSED, "tells of other processes or of the machine's wiring",
        "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    ),
]  # fmt: skip
