"""The client library itself, called as a C library: no PyTorch in between."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT, Server

from mnemosyne.cli import client_library
from mnemosyne.server import slots

sys.path.insert(0, str(ROOT / "tests" / "unit"))
from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin

#: What a client has to say before it can call.
PRELUDE = """
import ctypes, os, threading
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p
cuda = ctypes.CDLL(None)
SIZE, HOST_TO_DEVICE, DEVICE_TO_HOST = c_size_t, 1, 2

def malloc(size):
    p = c_void_p()
    assert cuda.cudaMalloc(byref(p), SIZE(size)) == 0
    return p
"""


def output(server: Server, code: str) -> str:
    return server.output(PRELUDE + code)


NULL = {
    "cudaGetDeviceCount": "None",
    "cudaGetDevice": "None",
    "cudaGetDeviceFlags": "None",
    "cudaGetDeviceProperties": "None, 0",
    "cudaDeviceGetAttribute": "None, 75, 0",
    "cudaDeviceGetPCIBusId": "None, 20, 0",
    "cudaDeviceGetByPCIBusId": "byref(c_int()), None",
    "cudaDeviceCanAccessPeer": "None, 0, 1",
    "cudaDeviceGetLimit": "None, 0",
    "cudaDriverGetVersion": "None",
    "cudaRuntimeGetVersion": "None",
    "cudaMalloc": "None, SIZE(4)",
    "cudaHostAlloc": "None, SIZE(4), 0",
    "cudaHostGetDevicePointer": "None, None, 0",
    "cudaHostGetFlags": "None, None",
    "cudaPointerGetAttributes": "None, None",
    "cudaMemGetInfo": "None, None",
    "cudaMemcpy": "None, None, SIZE(4), 4",
    "cudaStreamCreate": "None",
    "cudaEventCreate": "None",
    "cudaStreamGetPriority": "None, None",
    "cudaStreamGetFlags": "None, None",
    "cudaStreamGetId": "None, None",
    "cudaStreamGetDevice": "None, None",
    "cudaStreamIsCapturing": "None, None",
    "cudaThreadExchangeStreamCaptureMode": "None",
    "cudaLaunchHostFunc": "None, None, None",
    "cudaStreamAddCallback": "None, None, None, 0",
    "cudaFuncGetAttributes": "None, None",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": "None, None, 32, SIZE(0)",
    "cudaGetDriverEntryPoint": "None, None, 0, None",
    "cuDriverGetVersion": "None",
    "cuDeviceGetCount": "None",
    "cuDeviceGet": "None, 0",
    "cuDeviceGetName": "None, 8, 0",
    "cuDeviceGetUuid": "None, 0",
    "cuDeviceTotalMem_v2": "None, 0",
    "cuDevicePrimaryCtxGetState": "0, None, None",
    "cuCtxGetCurrent": "None",
    "cuCtxGetDevice": "None",
    "cuGetErrorName": "1, None",
    "cuGetProcAddress_v2": "None, None, 13000, 0, None",
}


def test_a_null_pointer_for_a_result_is_an_invalid_value(server: Server) -> None:
    calls = "\n".join(f"results['{name}'] = cuda.{name}({a})" for name, a in NULL.items())
    printed = output(server, f"results = {{}}\n{calls}\nprint(results)")
    assert printed == str(dict.fromkeys(NULL, 1))


def test_nvml_refuses_null_pointers_and_names_the_reason(server: Server) -> None:
    code = """
text, handle = ctypes.create_string_buffer(4), c_void_p()
print(
    cuda.nvmlDeviceGetCount_v2(None), cuda.nvmlDeviceGetMemoryInfo(None, None),
    cuda.nvmlDeviceGetName(None, text, 4), cuda.nvmlDeviceGetHandleByIndex_v2(7, byref(handle)),
)
"""
    assert output(server, code) == "2 2 7 2"


def test_rows_wider_than_their_pitch_are_refused_even_if_there_is_one(server: Server) -> None:
    code = """
p, row = malloc(64), ctypes.create_string_buffer(64)
def copy(pitch, width, height):
    sizes = SIZE(pitch), row, SIZE(64), SIZE(width), SIZE(height)
    return cuda.cudaMemcpy2D(p, *sizes, HOST_TO_DEVICE)
print(copy(16, 32, 1), copy(16, 32, 2), copy(16, 32, 0), copy(16, 16, 4))
"""
    assert output(server, code) == "12 12 0 0"


#: void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, std::array<char*, 1>>(...)
FILL = (
    "_ZN2at6native29vectorized_elementwise_kernel"
    "ILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
)


def test_a_module_that_lies_in_no_file_is_sent_and_leaves_no_error(server: Server) -> None:
    kernel = FakeKernel(FILL, params=((0, 4), (4, 4), (8, 8)), param_bytes=16)
    image = fatbin(entry(cubin(FakeCubin([kernel]))))
    code = f"""
class Wrapper(ctypes.Structure):
    _fields_ = [("magic", c_int), ("version", c_int), ("data", c_void_p), ("unused", c_void_p)]
class Dim(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]
image = ctypes.create_string_buffer({image!r}, {len(image)})
wrapper = Wrapper(0x466243B1, 1, ctypes.addressof(image), None)
register = getattr(cuda, "__cudaRegisterFatBinary")
register.restype = c_void_p
module = c_void_p(register(byref(wrapper)))
stub, name = ctypes.create_string_buffer(1), ctypes.create_string_buffer({FILL.encode()!r})
getattr(cuda, "__cudaRegisterFunction")(module, stub, None, name, -1, *[None] * 5)
p = malloc(16)
n, value = c_int(4), c_float(7)
args = (c_void_p * 3)(*[ctypes.addressof(one) for one in (n, value, p)])
def launch(args):
    return cuda.cudaLaunchKernel(stub, Dim(1, 1, 1), Dim(128, 1, 1), args, SIZE(0), None)
print(launch(args), cuda.cudaGetLastError(), launch(None))
back = (c_float * 4)()
print(cuda.cudaMemcpy(back, p, SIZE(16), DEVICE_TO_HOST), *back)
getattr(cuda, "__cudaUnregisterFatBinary")(module)
print(launch(args))
"""
    assert output(server, code).split() == ["0", "0", "1", "0", "7.0", "7.0", "7.0", "7.0", "98"]


def test_threads_share_the_staging_area_and_stay_inside(server: Server) -> None:
    """Sizes that do not divide the area make each round end in another place."""
    code = """
pinned = c_void_p()
assert cuda.cudaHostAlloc(byref(pinned), SIZE(1 << 20), 0) == 0
ctypes.memset(pinned, 0x5A, 1 << 20)
wrong = []
def work(seed):
    size = (6 << 20) + seed * 300_007
    p, there, back = malloc(size), bytes([seed]) * size, ctypes.create_string_buffer(size)
    for _ in range(12):
        cuda.cudaMemcpyAsync(p, there, SIZE(size), HOST_TO_DEVICE, None)
        cuda.cudaMemcpy(back, p, SIZE(size), DEVICE_TO_HOST)
        if back.raw != there: wrong.append(seed)
threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 13)]
[t.start() for t in threads]; [t.join() for t in threads]
print(wrong, ctypes.string_at(pinned, 1 << 20) == b"\\x5a" * (1 << 20))
"""
    assert output(server, code) == "[] True"


def test_an_attach_that_fails_leaves_nothing_behind(server: Server) -> None:
    """The device's addresses are taken, so the session cannot be mapped."""
    places = [slots.layout(slot, 0).device_base for slot in range(slots.slots_for(4))]
    code = f"""
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = c_void_p
for place in {places}:
    assert libc.mmap(c_void_p(place), SIZE(4096), 0, 0x100022, -1, SIZE(0)) == place
def held():
    return len(os.listdir("/proc/self/fd")), open("/proc/self/maps").read().count("mnemosyne-")
p, before = c_void_p(), held()
codes = {{cuda.cudaMalloc(byref(p), SIZE(4)) for _ in range(20)}}
print(codes, held() == before)
"""
    assert output(server, code) == "{46} True"


def test_a_fork_beside_busy_threads_never_hangs_the_child(server: Server) -> None:
    code = """
import signal
stream = c_void_p()
assert cuda.cudaStreamCreate(byref(stream)) == 0
done = False
def busy():
    while not done:
        for _ in range(100): cuda.cudaStreamQuery(stream)
threads = [threading.Thread(target=busy) for _ in range(3)]
[t.start() for t in threads]
codes = set()
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        os._exit(cuda.cudaStreamSynchronize(stream))
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done = True
[t.join() for t in threads]
print(codes, cuda.cudaStreamSynchronize(stream))
"""
    assert output(server, code) == "{3} 0"


def test_the_driver_gives_the_newest_version_of_a_function(server: Server) -> None:
    """cuGetProcAddress has five parameters since CUDA 12; the last is its status."""
    code = """
get, found, status = c_void_p(), c_void_p(), c_int(7)
print(cuda.cudaGetDriverEntryPoint(b"cuGetProcAddress", byref(get), ctypes.c_ulonglong(0), None))
call = ctypes.CFUNCTYPE(c_int, ctypes.c_char_p, c_void_p, c_int, ctypes.c_uint64, c_void_p)
call(get.value)(b"cuInit", byref(found), 13000, 0, byref(status))
cu_init = ctypes.CDLL(None).cuInit
print(status.value, found.value == ctypes.cast(cu_init, c_void_p).value)
"""
    assert output(server, code).split() == ["0", "0", "True"]


def test_a_refusal_looks_like_a_failure_whatever_the_call_returns(server: Server) -> None:
    """An address is null, a number of bytes or of processes is negative."""
    code = """
def refused(name, result):
    function = getattr(cuda, name)
    function.restype = result
    return function(None, None, SIZE(8))
print(refused("nvshmem_malloc", c_void_p), refused("nvshmem_ptr", c_void_p))
print(refused("nvshmemx_mc_ptr", c_void_p), refused("nvshmem_team_n_pes", c_int))
print(refused("cuFileRead", ctypes.c_ssize_t), refused("cuFileWrite", ctypes.c_ssize_t))
print(refused("cuptiActivityEnable", c_int))
"""
    assert output(server, code).split() == ["None", "None", "None", "-1", "-5001", "-5001", "27"]


def test_loading_the_library_allocates_nothing(server: Server) -> None:
    """Initialisers of the C++ library's would be the only ones there are."""
    symbols = subprocess.run(
        ["nm", "-C", str(client_library())], text=True, capture_output=True, check=True
    ).stdout
    assert "emergency_pool" not in symbols


def test_the_sentence_of_an_error_is_not_told_of_a_later_one(server: Server) -> None:
    code = """
cuda.cudaGetErrorString.restype = ctypes.c_char_p
def text(code): return cuda.cudaGetLastError() == code and cuda.cudaGetErrorString(code).decode()
mapped, page = 2, ctypes.create_string_buffer(4096)
print(text(cuda.cudaHostRegister(page, SIZE(4096), mapped)))
print(text(cuda.cudaDeviceGetLimit(byref(c_size_t()), 5)))
"""
    first, second = output(server, code).splitlines()
    assert "cudaHostRegister" in first
    assert second == "operation not supported"


def test_the_drivers_sentence_is_that_of_its_own_failure(server: Server) -> None:
    """Runtime and driver share their codes; most of the driver's failures have no sentence."""
    code = """
told = ctypes.c_char_p()
def text(code):
    assert code == 801
    cuda.cuGetErrorString(code, byref(told))
    return told.value.decode()
cuda.cudaDeviceReset()
print(cuda.cudaGetLastError())
print(text(cuda.cuMemCreate()))
print(cuda.cudaGetLastError())
print(text(cuda.cuCtxGetLimit(byref(c_size_t()), 5)))
print(text(cuda.cuMemMap()))
"""
    first, create, last, limit, mapped = output(server, code).splitlines()
    assert (first, last) == ("801", "0")
    assert create.startswith("operation not supported: mnemosyne: cuMemCreate is not supported: ")
    assert limit == "operation not supported"
    assert mapped.startswith("operation not supported: mnemosyne: cuMemMap is not supported: ")


#: Labels in host memory, which travel with each call.
CTC = """
text = ctypes.create_string_buffer(300)
handle, size = c_void_p(), c_size_t()
assert cuda.cudnnCreate(byref(handle)) == 0
def describe(batch, labels=256):
    probs, loss = c_void_p(), c_void_p()
    assert cuda.cudnnCreateTensorDescriptor(byref(probs)) == 0
    dims, strides = (c_int * 3)(300, batch, 30), (c_int * 3)(batch * 30, 30, 1)
    assert cuda.cudnnSetTensorNdDescriptor(probs, 0, 3, dims, strides) == 0
    assert cuda.cudnnCreateCTCLossDescriptor(byref(loss)) == 0
    assert cuda.cudnnSetCTCLossDescriptorEx(loss, 0, 1, 0) == 0
    one, each = (c_int * (batch * labels))(*[1] * batch * labels), (c_int * batch)
    return probs, loss, (one, each(*[labels] * batch), each(*[300] * batch))
def room(batch):
    probs, loss, host = describe(batch)
    return cuda.cudnnGetCTCLossWorkspaceSize(handle, probs, probs, *host, 0, loss, byref(size))
def compute(batch):
    probs, loss, host = describe(batch)
    where = c_void_p(p.value)
    return cuda.cudnnCTCLoss(
        handle, probs, where, *host, where, probs, where, 0, loss, where, SIZE(4))
def said(what):
    cuda.cudnnGetLastErrorString(text, c_size_t(300))
    return what in text.value.decode()
p = malloc(4)
"""


def test_a_call_too_large_for_the_server_is_refused_and_the_session_goes_on(
    server: Server,
) -> None:
    """The labels of a batch take more than a frame may, or more than the ring holds."""
    code = (
        CTC
        + """
for batch in 2000, 8000:
    print(room(batch), said("bytes, more than the 1048576 that fit"))
algorithm = ctypes.create_string_buffer(64)
print(cuda.cublasLtMatmulAlgoConfigSetAttribute(
    algorithm, 0, ctypes.create_string_buffer(5 << 20), SIZE(5 << 20)))
print(cuda.cudaGetLastError(), cuda.cudaMemset(p, 0, SIZE(4)), cuda.cudaDeviceSynchronize())
"""
    )
    assert output(server, code).splitlines() == ["3000 True", "3000 True", "15", "0 0 0"]


def test_a_call_too_large_for_a_graph_breaks_the_capture_alone(server: Server) -> None:
    """It would fit into a frame, but not behind others into the frame that carries them."""
    code = (
        CTC
        + """
stream, graph = c_void_p(), c_void_p()
assert cuda.cudaStreamCreate(byref(stream)) == 0 and cuda.cudnnSetStream(handle, stream) == 0
assert cuda.cudaStreamBeginCapture(stream, 0) == 0
print(compute(900), said("more than the 917440 that fit"))
print(cuda.cudaStreamEndCapture(stream, byref(graph)), cuda.cudaMemset(p, 0, SIZE(4)))
print(cuda.cudaDeviceSynchronize())
"""
    )
    assert output(server, code).splitlines() == ["3000 True", "901 0", "0"]


UNALLOCATED = """
held = malloc(512)
nowhere = c_void_p(held.value + (4 << 30))  # in the device's range, and no allocation
page = ctypes.create_string_buffer(4096)
"""


def test_copies_that_wait_say_at_once_that_nothing_is_allocated_there(server: Server) -> None:
    code = (
        UNALLOCATED
        + """
def to(p, n): return cuda.cudaMemcpy(p, page, SIZE(n), HOST_TO_DEVICE)
def out_of(p, n): return cuda.cudaMemcpy(page, p, SIZE(n), DEVICE_TO_HOST)
def rows(p, height):
    sizes = SIZE(1024), SIZE(64), SIZE(height)
    return cuda.cudaMemcpy2D(p, SIZE(1024), held, *sizes, 3)
print(to(nowhere, 4), to(held, 4096), to(held, 512), out_of(nowhere, 4), out_of(held, 513))
print(cuda.cudaMemcpy(nowhere, held, SIZE(4), 3), cuda.cudaMemcpy(held, nowhere, SIZE(4), 3))
print(rows(held, 1), rows(held, 2), rows(nowhere, 1))
print(cuda.cudaMemcpy(held, page, SIZE(2**64 - 2), HOST_TO_DEVICE))
cuda.cudaGetErrorString.restype = ctypes.c_char_p
print("no device memory of 4 bytes" in cuda.cudaGetErrorString(to(nowhere, 4)).decode())
print(cuda.cudaGetLastError(), cuda.cudaDeviceSynchronize(), cuda.cudaGetLastError())
"""
    )
    assert output(server, code).splitlines() == [
        "1 1 0 1 1", "1 1", "0 1 1", "1", "True", "1 0 0",
    ]  # fmt: skip


def test_an_earlier_error_loses_nothing_that_a_call_makes(server: Server) -> None:
    """It is the next call's that makes nothing; memory that was lost would stay allocated."""
    code = (
        UNALLOCATED
        + """
def fail():  # after the call; at once, if the server is quick: then that error is taken
    while cuda.cudaMemcpyAsync(nowhere, page, SIZE(4096), HOST_TO_DEVICE, None): pass
def free():
    value = c_size_t()
    assert cuda.cudaMemGetInfo(byref(value), byref(c_size_t())) == 0
    return value.value
stream, event, p, before = c_void_p(), c_void_p(), c_void_p(), free()
for make in (
    lambda: cuda.cudaMalloc(byref(p), SIZE(64 << 20)),
    lambda: cuda.cudaHostAlloc(byref(p), SIZE(4096), 0),
    lambda: cuda.cudaStreamCreate(byref(stream)),
    lambda: cuda.cudaEventCreate(byref(event)),
):
    fail()
    made = make()
    print(made, bool(p.value), cuda.cudaDeviceSynchronize(), cuda.cudaGetLastError() != 0)
    if make.__code__.co_names[1] == "cudaMalloc": assert cuda.cudaFree(p) == 0
print(before - free(), cuda.cudaEventRecord(event, stream), cuda.cudaDeviceSynchronize())
"""
    )
    *made, last = output(server, code).splitlines()
    assert made == ["0 True 700 True"] * 4
    assert last == "0 0 0"


CAPTURE = """
stream, other, event, graph, state = (c_void_p() for _ in range(5))
NON_BLOCKING = 1
for s in stream, other:
    assert cuda.cudaStreamCreateWithFlags(byref(s), NON_BLOCKING) == 0
assert cuda.cudaEventCreate(byref(event)) == 0
page = malloc(64)
def captures(s):
    assert cuda.cudaStreamIsCapturing(s, byref(state)) == 0
    return state.value or 0
def begin(): assert cuda.cudaStreamBeginCapture(stream, 0) == 0
def fork():
    assert cuda.cudaEventRecord(event, stream) == 0
    assert cuda.cudaStreamWaitEvent(other, event, 0) == 0
def end(): return cuda.cudaStreamEndCapture(stream, byref(graph)), graph.value is not None
"""


def test_a_capture_ends_with_the_stream_that_began_it(server: Server) -> None:
    code = (
        CAPTURE
        + """
begin(); fork()
print(captures(other), cuda.cudaStreamDestroy(stream), captures(other))
assert cuda.cudaStreamCreateWithFlags(byref(stream), NON_BLOCKING) == 0
print(cuda.cudaStreamWaitEvent(stream, event, 0), captures(stream), cuda.cudaEventQuery(event))
print(cuda.cudaMemsetAsync(page, 7, SIZE(4), other), cuda.cudaStreamSynchronize(other))
"""
    )
    assert output(server, code).splitlines() == ["1 0 0", "0 0 0", "0 0"]


def test_a_stream_that_is_destroyed_leaves_the_capture_of_another(server: Server) -> None:
    """The end of that capture ends no capture of a stream that was made since."""
    code = (
        CAPTURE
        + """
begin(); fork()
print(cuda.cudaStreamDestroy(other), captures(stream))
assert cuda.cudaStreamCreateWithFlags(byref(other), NON_BLOCKING) == 0
assert cuda.cudaStreamBeginCapture(other, 0) == 0
print(*end(), captures(stream), captures(other))
"""
    )
    assert output(server, code).splitlines() == ["0 1", "0 True 0 1"]


def test_the_null_stream_does_not_join_a_capture(server: Server) -> None:
    code = (
        CAPTURE
        + """
begin(); fork()
print(cuda.cudaStreamWaitEvent(None, event, 0), cuda.cudaGetLastError(), captures(None))
print(captures(stream), *end(), cuda.cudaDeviceSynchronize())
"""
    )
    assert output(server, code).splitlines() == ["906 906 0", "2 901 False 0"]
