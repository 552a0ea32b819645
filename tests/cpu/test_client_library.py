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
