"""The messages that hand-written stubs send. Offsets into the host slot stand for host memory:
a frame never holds a client address, so it can be kept and executed again.
"""

from mnemosyne.api.spec import Message
from mnemosyne.api.words import (
    BLAS,
    BYTES,
    EVENT,
    FUNCTION,
    I32,
    I64,
    LIST,
    PTR,
    SCALAR,
    SIZE,
    STREAM,
    TEXT,
    U32,
)

_GRID = tuple(U32(name) for name in ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"))

MEMORY = [
    Message("malloc", (SIZE("bytes"),), (PTR("devPtr"),), journal=True),
    Message("free", (PTR("devPtr"),), journal=True),
    Message("host_alloc", (SIZE("bytes"),), (SIZE("hostOffset"),), journal=True),
    Message("host_free", (SIZE("hostOffset"),), journal=True),
    # Data inline in the frame: small copies.
    Message("copy_inline", (PTR("dst"), BYTES("data"), STREAM()), lane=True),
    Message("copy_fetch", (PTR("src"), SIZE("count"), STREAM()), (BYTES("data"),), lane=True),
    # Data in the host slot: staged pageable memory, or pinned memory itself.
    Message("copy_from_host", (PTR("dst"), SIZE("hostOffset"), SIZE("count"), STREAM()), lane=True),
    Message("copy_to_host", (SIZE("hostOffset"), PTR("src"), SIZE("count"), STREAM()), lane=True),
    Message("copy_device", (PTR("dst"), PTR("src"), SIZE("count"), STREAM()), lane=True),
    Message(
        "copy_device_2d",
        (PTR("dst"), SIZE("dpitch"), PTR("src"), SIZE("spitch"), SIZE("width"), SIZE("height"),
         STREAM()),
        lane=True,
    ),
    Message(
        "memset_words", (PTR("devPtr"), U32("value"), SIZE("count"), STREAM()), lane=True
    ),
    Message("event_record", (EVENT(), STREAM(), U32("flags")), lane=True),
    Message("cudaDeviceSynchronize", (), lane=True),
    Message("cudaStreamWaitEvent", (STREAM(), EVENT(), U32("flags")), lane=True),
    # The reply's status is cudaSuccess or cudaErrorNotReady.
    Message("stream_query", (STREAM(),), lane=True),
    Message("event_query", (EVENT(),), lane=True),
]  # fmt: skip

KERNELS = [
    # module: [library path, file offset, size in bytes, hash]. The reply's status is MODULE_UNKNOWN
    # when the server cannot read that file; the client then sends the bytes and asks again.
    # params: [[offset, size], ...]; attributes: the fields of cudaFuncAttributes, see FunctionInfo.
    Message(
        "kernel", (LIST("module"), TEXT("name")),
        (FUNCTION(), LIST("params"), LIST("attributes")), journal=True,
    ),
    Message(
        "module_bytes", (BYTES("hash"), SIZE("total"), SIZE("offset"), BYTES("data")), ()
    ),
    # attribute: cudaFuncAttribute, or CACHE_CONFIG.
    Message("function_attribute", (FUNCTION(), I32("attribute"), I32("value")), journal=True),
    Message(
        "occupancy", (FUNCTION(), I32("blockSize"), SIZE("dynamicShared"), U32("flags")),
        (I32("numBlocks"),),
    ),
    Message("launch", (FUNCTION(), *_GRID, U32("sharedMem"), STREAM(), BYTES("args")), lane=True),
    # attributes: [[cudaLaunchAttributeID, value bytes], ...]; an event in them is its number.
    Message(
        "launch_ex",
        (FUNCTION(), *_GRID, U32("sharedMem"), STREAM(), BYTES("args"), LIST("attributes")),
        lane=True,
    ),
    Message(
        "max_clusters", (FUNCTION(), *_GRID, U32("sharedMem"), LIST("attributes")),
        (I32("numClusters"),), lane=True,
    ),
    # Modules that a program has in memory, by the client's numbers. The bytes have been sent by
    # module_bytes: a cubin, a fatbin or PTX.
    Message("module_load", (I64("module"), BYTES("hash")), journal=True),
    Message(
        "module_function", (I64("module"), TEXT("name")),
        (FUNCTION(), LIST("params"), LIST("attributes")), journal=True,
    ),
    Message("module_unload", (I64("module"),), journal=True),
    # sizes, strides (one less, in bytes), box and steps: of each dimension, the innermost first.
    # map: the 128 bytes of a CUtensorMap.
    Message(
        "tensor_map",
        (I32("type"), PTR("address"), LIST("sizes"), LIST("strides"), LIST("box"), LIST("steps"),
         I32("interleave"), I32("swizzle"), I32("promotion"), I32("fill")),
        (BYTES("map"),), lane=True,
    ),
    Message(
        "tensor_map_im2col",
        (I32("type"), PTR("address"), LIST("sizes"), LIST("strides"), LIST("lower"), LIST("upper"),
         U32("channels"), U32("pixels"), LIST("steps"), I32("interleave"), I32("swizzle"),
         I32("promotion"), I32("fill")),
        (BYTES("map"),), lane=True,
    ),
]  # fmt: skip

LIBRARIES = [
    Message(
        "blas_configure",
        (BLAS(), STREAM(), I32("mathMode"), I32("pointerMode"), PTR("workspace"), SIZE("bytes"),
         I32("smCountTarget")),
        journal=True,
    ),
    # desc: [computeType, scaleType, [[attribute, bytes], ...]]
    # layouts: [type, rows, cols, ld, [[attribute, bytes], ...]]
    # preference: [[attribute, bytes], ...]
    # results: [[algo bytes, workspaceSize, wavesCount], ...], best first
    Message(
        "lt_heuristic",
        (LIST("desc"), LIST("layoutA"), LIST("layoutB"), LIST("layoutC"), LIST("layoutD"),
         LIST("preference"), I32("requested")),
        (LIST("results"),), lane=True,
    ),
    # An algorithm is 64 bytes that only the library reads; what it says of one is kept by content.
    Message(
        "lt_algo_init",
        (I32("computeType"), I32("scaleType"), I32("Atype"), I32("Btype"), I32("Ctype"),
         I32("Dtype"), I32("algoId")),
        (BYTES("algo"),), lane=True,
    ),
    Message(
        "lt_algo_set", (BYTES("algo"), I32("attribute"), BYTES("value")), (BYTES("algo"),),
        lane=True,
    ),
    # value: as much of the attribute as fits into `size` bytes; written: of how many
    Message(
        "lt_algo_get", (BYTES("algo"), I32("attribute"), SIZE("size")),
        (BYTES("value"), SIZE("written")), lane=True,
    ),
    # results: as those of lt_heuristic, one
    Message(
        "lt_algo_check",
        (LIST("desc"), LIST("layoutA"), LIST("layoutB"), LIST("layoutC"), LIST("layoutD"),
         BYTES("algo")),
        (LIST("results"),), lane=True,
    ),
    Message(
        "lt_matmul",
        (STREAM(), LIST("desc"), SCALAR("alpha", ""), PTR("A"), LIST("layoutA"), PTR("B"),
         LIST("layoutB"), SCALAR("beta", ""), PTR("C"), LIST("layoutC"), PTR("D"), LIST("layoutD"),
         BYTES("algo"), PTR("workspace"), SIZE("workspaceBytes")),
        lane=True,
    ),
]  # fmt: skip

# A call of a library: ``stream`` is its handle's, ``arguments`` those of its parameters that go in,
# as rows.py says: numbers, handles and pointers as integers, bytes, scalars as bytes or (in device
# memory) as pointers. ``results`` are not a list: the reply holds what comes back, one value a
# parameter. What leaves nothing behind in a handle runs, and is called by its number (see
# Spec.library_calls); ``workArea`` is that of a cuFFT plan, or 0. The rest is called by name.
_CALL = (TEXT("function"), STREAM(), LIST("arguments"))
_RUN = (U32("function"), STREAM(), PTR("workArea"), LIST("arguments"))
CARRIERS = [
    message
    for library in ("cufft", "cusolver", "cusparse")
    for message in (
        Message(f"{library}_call", _CALL, (LIST("results"),), journal=True),
        Message(f"{library}_run", _RUN, (LIST("results"),), lane=True),
    )
]

# token: what a cudaIpc handle holds besides its mark.
SHARING = [
    Message("ipc_export_memory", (PTR("devPtr"),), (BYTES("token"),), journal=True),
    Message("ipc_open_memory", (BYTES("token"),), (PTR("devPtr"), SIZE("bytes")), journal=True),
    Message("ipc_close_memory", (PTR("devPtr"),), journal=True),
    Message("ipc_export_event", (EVENT(),), (BYTES("token"),), journal=True),
    Message("ipc_open_event", (EVENT().new, BYTES("token")), journal=True),
]

# frames: frames of a graph in order, each behind its size (4 bytes, little-endian); more may come.
# Launched, all run in that stream, whatever streams they name.
GRAPHS = [
    Message("graph_frames", (I64("graph"), BYTES("frames")), journal=True),
    Message("graph_launch", (I64("graph"), STREAM()), lane=True),
    Message("graph_destroy", (I64("graph"),), journal=True),
]

MESSAGES = [*MEMORY, *KERNELS, *LIBRARIES, *CARRIERS, *SHARING, *GRAPHS]

MODULE_UNKNOWN = -1  # status of a ``kernel`` reply: send the module's bytes
CACHE_CONFIG = -1  # attribute of ``function_attribute``: the value of cudaFuncSetCacheConfig
