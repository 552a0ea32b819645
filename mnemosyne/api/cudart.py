"""The CUDA runtime, as PyTorch calls it (cuda_runtime_api.h of CUDA 12 and 13)."""

from mnemosyne.api.spec import Call, Field, Mode
from mnemosyne.api.words import (
    EVENT,
    F32,
    I32,
    PTR,
    SIZE,
    STREAM,
    U32,
    handwritten,
    without_setting,
)


def _call(name: str, mode: Mode, *params: Field, journal: bool = False) -> Call:
    return Call(name, "cudart", mode, params, "cudaError_t", journal=journal)


def _lane(name: str, mode: Mode, *params: Field) -> Call:
    return Call(name, "cudart", mode, params, "cudaError_t", lane=True)


REGULAR = [
    _lane("cudaMemsetAsync", Mode.ASYNC, PTR("devPtr"), I32("value"), SIZE("count"), STREAM()),
    _lane(
        "cudaMemset2DAsync", Mode.ASYNC,
        PTR("devPtr"), SIZE("pitch"), I32("value"), SIZE("width"), SIZE("height"), STREAM(),
    ),
    _call(
        "cudaStreamCreateWithPriority", Mode.ASYNC,
        STREAM("pStream").new, U32("flags"), I32("priority"), journal=True,
    ),
    _call("cudaStreamDestroy", Mode.ASYNC, STREAM().gone, journal=True),
    _lane("cudaStreamSynchronize", Mode.SYNC, STREAM()),
    _call("cudaEventCreateWithFlags", Mode.ASYNC, EVENT().new, U32("flags"), journal=True),
    _call("cudaEventDestroy", Mode.ASYNC, EVENT().gone, journal=True),
    _lane("cudaEventSynchronize", Mode.SYNC, EVENT()),
    _lane("cudaEventElapsedTime", Mode.SYNC, F32("ms").out, EVENT("start"), EVENT("end")),
    _call("cudaMemGetInfo", Mode.SYNC, SIZE("free").out, SIZE("total").out),
]  # fmt: skip

BY_HAND = [
    *handwritten(
        "cudart", Mode.LOCAL, "registration stores pointers; nothing is read before first use",
        "__cudaInitModule", "__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd",
        "__cudaRegisterFunction", "__cudaRegisterManagedVar", "__cudaRegisterVar",
        "__cudaUnregisterFatBinary",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "launch configuration lives in the calling thread",
        "__cudaGetKernel", "__cudaPopCallConfiguration", "__cudaPushCallConfiguration",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "packs arguments by the kernel's parameter layout",
        "__cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernel",
        "cudaLaunchKernelExC",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "attributes come with the kernel's layout, then stay in the client",
        "cudaFuncGetAttributes", "cudaFuncSetAttribute", "cudaFuncSetCacheConfig",
        "cudaKernelSetAttributeForDevice", "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "the server loads what a program has in memory, for it alone",
        "cudaLibraryGetKernel", "cudaLibraryLoadData", "cudaLibraryUnload",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "the client keeps a table of its allocations to check pointers",
        "cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaHostAlloc", "cudaMalloc",
        "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaMallocHost",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "which way a copy goes depends on the pointers",
        "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy2DAsync", "cudaMemcpyAsync", "cudaMemcpyPeer",
        "cudaMemcpyPeerAsync", "cudaMemset", "cudaMemset2D",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "a variant of another call, or remembers where it was recorded",
        "cudaEventCreate", "cudaEventRecord", "cudaEventRecordWithFlags", "cudaStreamCreate",
        "cudaStreamCreateWithFlags",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "a graph keeps a wait for an event of another stream's",
        "cudaStreamWaitEvent",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "the status page tells of what has not been issued yet; else asked",
        "cudaEventQuery", "cudaStreamQuery",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "answered from the status page",
        "cudaGetLastError", "cudaPeekAtLastError",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "answered from the device's description",
        "cudaChooseDevice", "cudaDeviceCanAccessPeer", "cudaDeviceGetAttribute",
        "cudaDeviceGetByPCIBusId", "cudaDeviceGetLimit", "cudaDeviceGetPCIBusId",
        "cudaDeviceGetStreamPriorityRange", "cudaDriverGetVersion", "cudaGetDeviceCount",
        "cudaGetDeviceProperties", "cudaRuntimeGetVersion",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "state of the calling thread or of the client",
        "cudaDeviceReset", "cudaDeviceSetCacheConfig", "cudaDeviceSetLimit", "cudaGetDevice",
        "cudaGetDeviceFlags", "cudaGetErrorName", "cudaGetErrorString", "cudaHostGetDevicePointer",
        "cudaHostGetFlags", "cudaHostRegister", "cudaHostUnregister", "cudaInitDevice",
        "cudaPointerGetAttributes", "cudaProfilerStart", "cudaProfilerStop", "cudaSetDevice",
        "cudaSetDeviceFlags", "cudaStreamGetDevice",
        "cudaStreamGetFlags", "cudaStreamGetId", "cudaStreamGetPriority",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "while a stream captures, its frames are kept in the client",
        "cudaGraphDestroy", "cudaGraphGetNodes", "cudaGraphRetainUserObject",
        "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaStreamGetCaptureInfo",
        "cudaStreamIsCapturing", "cudaThreadExchangeStreamCaptureMode", "cudaUserObjectCreate",
        "cudaUserObjectRelease",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "the server has the frames of a graph that can be launched",
        "cudaGraphExecDestroy", "cudaGraphInstantiateWithFlags", "cudaGraphLaunch",
    ),
    *handwritten(
        "cudart", Mode.LOCAL, "looks the name up in the generated export table",
        "cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "between clients of one server; a handle holds a token",
        "cudaIpcCloseMemHandle", "cudaIpcGetEventHandle", "cudaIpcGetMemHandle",
        "cudaIpcOpenEventHandle", "cudaIpcOpenMemHandle",
    ),
    *handwritten(
        "cudart", Mode.REFUSED, without_setting("backend:cudaMallocAsync"),
        "cudaDeviceGetDefaultMemPool", "cudaMemPoolGetAttribute", "cudaMemPoolSetAccess",
        "cudaMemPoolSetAttribute", "cudaMemPoolTrimTo",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "host functions run in the client, after the stream's earlier work",
        "cudaLaunchHostFunc", "cudaStreamAddCallback",
    ),
    *handwritten(
        "cudart", Mode.CUSTOM, "waits for host functions, too", "cudaDeviceSynchronize"
    ),
]  # fmt: skip
