"""The fake CUDA driver: what tests of the CUDA device rely on where there is no GPU."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cubin_images import FakeKernel
from fakecuda.build import build_driver, driver_environment
from fakecuda.kernels import KERNELS, kernels_cubin, kernels_fatbin

from mnemosyne.cubin import Registry
from mnemosyne.server.devices.cpu import hopper

#: What a process says before it calls: a context, memory at `p`, a module with KERNELS, streams.
PRELUDE = f"""
import ctypes, os, sys
from ctypes import c_int, c_size_t, c_uint, c_void_p
from cuda.bindings import driver as cu

def do(result):
    code, *values = result
    assert code == 0, code
    return values[0] if len(values) == 1 else values

CHUNK, FD = 2 << 20, cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
def properties():
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.requestedHandleTypes = FD
    return prop
def map_at(p, handle, size=CHUNK):
    access = cu.CUmemAccessDesc()
    access.location = properties().location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    do(cu.cuMemMap(p, size, 0, handle, 0))
    do(cu.cuMemSetAccess(p, size, [access], 1))
    return int(p)
def read(p, size, stream=0):
    buffer = ctypes.create_string_buffer(size)
    do(cu.cuMemcpyDtoHAsync(buffer, p, size, stream))
    return buffer.raw
def words(p, count):
    return [*memoryview(read(p, 4 * count)).cast("I")]
def launch(name, *arguments, stream=0):
    function = do(cu.cuModuleGetFunction(module, name.encode()))
    places = (c_void_p * (len(arguments) + 1))(*map(ctypes.addressof, arguments))
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(places), 0)
def fill(p, value, count, stream=0):
    do(launch("fake_fill", c_void_p(p), c_uint(value), c_size_t(count), stream=stream))
def registered(size=4096):
    memory = ctypes.create_string_buffer(size)
    do(cu.cuMemHostRegister(memory, size, 0))
    return memory, ctypes.addressof(memory)

do(cu.cuInit(0))
context = do(cu.cuDevicePrimaryCtxRetain(do(cu.cuDeviceGet(0))))
do(cu.cuCtxSetCurrent(context))
handle = do(cu.cuMemCreate(CHUNK, properties(), 0))
reserved = do(cu.cuMemAddressReserve(4 * CHUNK, 0, 0, 0))
p = map_at(reserved, handle)
module = do(cu.cuModuleLoadData({kernels_cubin()!r}))
a, b = (do(cu.cuStreamCreate(1)) for _ in "ab")
"""

BASE = 0x300000000000  #: where nothing else is mapped

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def run(driver: Path, code: str, pass_fds: Sequence[int] = (), **settings: str) -> Run:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code], env=driver_environment(driver, **settings),
        text=True, capture_output=True, timeout=30, pass_fds=pass_fds,
    )  # fmt: skip


def output(driver: Path, code: str, pass_fds: Sequence[int] = (), **settings: str) -> list[str]:
    """What a process prints, by line; the test fails if it does."""
    done = run(driver, code, pass_fds, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_device_is_a_hopper_with_write_values_and_virtual_memory(driver: Path) -> None:
    code = """
print(do(cu.cuDeviceGetName(64, 0)).split(b"\\0")[0].decode(), do(cu.cuDeviceGetCount()))
numbers = map(cu.CUdevice_attribute, (75, 76, 16, 97, 102, 122))
print(*(do(cu.cuDeviceGetAttribute(n, 0)) for n in numbers))
print(do(cu.cuDeviceTotalMem(0)), *do(cu.cuMemGetInfo()), cu.cuDeviceGet(1)[0] + 0)
name, place = do(cu.cuGetErrorName(cu.CUresult(700))), do(cu.cuDeviceGetPCIBusId(13, 0))
print(name.decode(), place[:12].decode())
"""
    name, attributes, memory, error = output(driver, code, FAKECUDA_MEMORY=str(64 << 20))
    assert name == "NVIDIA H200 1"
    expected = dict(hopper.attributes())
    assert attributes.split() == [*(str(expected[n]) for n in (75, 76, 16, 97)), "1", "1"]
    assert memory == f"{64 << 20} {62 << 20} {64 << 20} 101"
    assert error == "CUDA_ERROR_ILLEGAL_ADDRESS 0000:01:00.0"


def test_calls_need_an_initialised_driver_and_a_current_context(driver: Path) -> None:
    code = """
import threading
codes = []
thread = threading.Thread(target=lambda: codes.append(cu.cuStreamQuery(a)[0] + 0))
thread.start(); thread.join()
cuda = ctypes.CDLL("libcuda.so.1")  # the driver that cuda-python uses
count = c_int()
print(*codes, cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
print(cu.cuDevicePrimaryCtxRelease(0)[0] + 0, cu.cuStreamQuery(a)[0] + 0)
"""
    assert output(driver, code) == ["201 0 1", "0 709"]


def test_fill_copy_and_set_are_done_in_order(driver: Path) -> None:
    code = """
fill(p, 7, 8, a)
do(cu.cuMemsetD8Async(p + 4, 1, 4, a))
do(cu.cuMemcpyHtoDAsync(p + 8, (c_uint * 2)(5, 6), 8, a))
do(cu.cuMemcpyDtoDAsync(p + 64, p, 32, a))
do(cu.cuMemsetD2D8Async(p + 64, 16, 0, 4, 2, a))
do(cu.cuStreamSynchronize(a))
print(*words(p, 8), *words(p + 64, 8))
c = cu.CUDA_MEMCPY2D()
c.srcMemoryType = c.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
c.srcDevice, c.srcPitch, c.srcXInBytes = p, 16, 8
c.dstDevice, c.dstPitch, c.dstY = p + 128, 8, 1
c.WidthInBytes, c.Height = 8, 2
do(cu.cuMemcpy2DAsync(c, a))
do(cu.cuCtxSynchronize())
print(*words(p + 128, 6))
"""
    first = [7, 0x01010101, 5, 6, 7, 7, 7, 7]
    second = [0, 0x01010101, 5, 6, 0, 7, 7, 7]
    lines = output(driver, code)
    assert lines == [" ".join(map(str, first + second)), "0 0 5 6 7 7"]


def test_parameters_may_come_as_one_buffer(driver: Path) -> None:
    code = """
import struct
buffer = ctypes.create_string_buffer(struct.pack("QIxxxxQ", p, 9, 3))
size = c_size_t(24)
extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
function = do(cu.cuModuleGetFunction(module, b"_Z9fake_fillPjjm"))
do(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, a, 0, ctypes.addressof(extra)))
do(cu.cuStreamSynchronize(a))
print(*words(p, 4), cu.cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, a, 0, 0)[0] + 0)
"""
    assert output(driver, code) == ["9 9 9 0 1"]


def test_an_event_orders_two_streams_and_keeps_its_earlier_record(driver: Path) -> None:
    """Stream b waits for the record that was there when it was told to, and for no later one."""
    code = """
gate, place = registered()
first, second = (do(cu.cuEventCreate(0)) for _ in "ab")
do(cu.cuStreamWaitValue32(a, place, 1, 0))
fill(p, 3, 1, a)
do(cu.cuEventRecord(first, a))
do(cu.cuStreamWaitEvent(b, first, 0))
do(cu.cuMemcpyDtoDAsync(p + 4, p, 4, b))
do(cu.cuEventRecord(second, b))
print(cu.cuStreamQuery(b)[0] + 0, cu.cuEventQuery(second)[0] + 0, *words(p, 2))
print(cu.cuEventElapsedTime(first, second)[0] + 0)
do(cu.cuStreamWaitValue32(a, place + 4, 1, 0))
do(cu.cuEventRecord(first, a))
c_uint.from_buffer(gate).value = 1
do(cu.cuEventSynchronize(second))
print(cu.cuEventQuery(first)[0] + 0, *words(p, 2))
c_uint.from_buffer(gate, 4).value = 1
do(cu.cuCtxSynchronize())
print(do(cu.cuEventElapsedTime(second, first)) >= 0)
"""
    assert output(driver, code) == ["600 600 0 0", "600", "600 3 3", "True"]


def test_registered_memory_is_read_late_and_other_memory_at_once(driver: Path) -> None:
    code = """
gate, place = registered()
source, pageable = c_uint.from_buffer(gate, 64), c_uint(1)
source.value = 1
do(cu.cuStreamWaitValue32(a, place, 1, 1))
do(cu.cuMemcpyHtoDAsync(p, place + 64, 4, a))
do(cu.cuMemcpyHtoDAsync(p + 4, ctypes.addressof(pageable), 4, a))
source.value = pageable.value = 2
do(cu.cuStreamWriteValue32(b, place, 1, 0))
do(cu.cuMemcpyDtoHAsync(place + 128, p, 8, a))
do(cu.cuStreamSynchronize(a))
print(*memoryview(gate).cast("B").cast("I")[32:34])
"""
    assert output(driver, code) == ["2 1"]


def test_host_functions_run_in_order_and_may_not_call_the_driver(driver: Path) -> None:
    code = """
seen = []
def function(_):
    seen.append((cu.cuStreamQuery(a)[0] + 0, *words_of_gate()))
gate, place = registered()
def words_of_gate(): return memoryview(gate).cast("B").cast("I")[:2]
run = ctypes.CFUNCTYPE(None, c_void_p)(function)
do(cu.cuStreamWriteValue32(a, place, 5, 0))
do(cu.cuLaunchHostFunc(a, cu.CUhostFn(ctypes.cast(run, c_void_p).value), 0))
do(cu.cuStreamSynchronize(a))
print(*seen)
"""
    assert output(driver, code) == ["(800, 5, 0)"]


def test_a_destroyed_stream_still_does_what_it_was_given(driver: Path) -> None:
    code = """
do(launch("fake_sleep", c_int(20000), stream=a))
fill(p, 4, 1, a)
do(cu.cuStreamDestroy(a))
do(cu.cuCtxSynchronize())
print(*words(p, 1))
"""
    assert output(driver, code) == ["4"]


@pytest.mark.parametrize(("kernel", "code"), [("fake_illegal", 700), ("fake_assert", 710)])
def test_after_a_fault_nothing_starts_and_every_call_gets_its_code(
    driver: Path, kernel: str, code: int
) -> None:
    program = f"""
gate, place = registered()
fill(p, 1, 1, b)
do(cu.cuStreamSynchronize(b))
do(cu.cuStreamWaitValue32(b, place, 1, 1))
do(cu.cuStreamWriteValue32(b, place + 8, 1, 0))
do(launch({kernel!r}, stream=a))
cu.cuStreamWriteValue32(a, place + 4, 1, 0)
print(cu.cuStreamSynchronize(a)[0] + 0, cu.cuStreamSynchronize(b)[0] + 0)
c_uint.from_buffer(gate).value = 1
codes = cu.cuMemGetInfo(), cu.cuStreamQuery(b), cu.cuMemRelease(handle), cu.cuCtxSynchronize()
print(*(one[0] + 0 for one in codes))
print(*memoryview(gate).cast("B").cast("I")[:3], cu.cuDeviceGetCount()[0] + 0)
"""
    assert output(driver, program) == [f"{code} {code}", " ".join([str(code)] * 4), "1 0 0 0"]


def test_memory_outlives_the_process_that_made_it(driver: Path) -> None:
    """As on a GPU: whoever holds the descriptor keeps the content, for the same address."""
    ours, theirs = socket.socketpair()
    make = f"""
import socket
assert int(do(cu.cuMemAddressReserve(1 << 40, 0, {BASE}, 0))) == {BASE}
fill(map_at({BASE} + 3 * CHUNK, handle), 0xABCD, 3)
do(cu.cuCtxSynchronize())
exported = do(cu.cuMemExportToShareableHandle(handle, FD, 0))
socket.send_fds(socket.socket(fileno={theirs.fileno()}), [b"x"], [exported])
print(launch("fake_illegal")[0] + 0)
"""
    assert output(driver, make, pass_fds=[theirs.fileno()]) == ["0"]
    fd = socket.recv_fds(ours, 1, 1)[1][0]
    take = f"""
assert int(do(cu.cuMemAddressReserve(1 << 40, 0, {BASE}, 0))) == {BASE}
imported = do(cu.cuMemImportFromShareableHandle({fd}, FD))
os.close({fd})
print(*words(map_at({BASE} + 3 * CHUNK, imported), 4))
"""
    assert output(driver, take, pass_fds=[fd]) == ["43981 43981 43981 0"]


def test_a_wanted_address_that_is_taken_gives_another(driver: Path) -> None:
    code = f"""
do(cu.cuMemAddressReserve(CHUNK, 0, {BASE}, 0))
print(int(do(cu.cuMemAddressReserve(CHUNK, 0, {BASE}, 0))) != {BASE})
"""
    assert output(driver, code) == ["True"]


def test_memory_ends_at_its_size_and_is_free_when_neither_held_nor_mapped(driver: Path) -> None:
    code = """
def create(): return cu.cuMemCreate(2 * CHUNK, properties(), 0)[0] + 0
print(create(), create(), *do(cu.cuMemGetInfo()))
do(cu.cuMemRelease(handle))
print(create())
do(cu.cuMemUnmap(p, CHUNK))
print(create(), *do(cu.cuMemGetInfo()))
"""
    size = 8 << 20
    lines = output(driver, code, FAKECUDA_MEMORY=str(size))
    assert lines == [f"0 2 {2 << 20} {size}", "2", f"0 0 {size}"]


def test_registration_tells_what_is_registered(driver: Path) -> None:
    code = """
memory, place = registered()
codes = cu.cuMemHostRegister(place + 8, 8, 0), cu.cuMemHostUnregister(place + 8)
print(*(one[0] + 0 for one in codes), int(do(cu.cuMemHostGetDevicePointer(place + 8, 0))) - place)
kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
print(*(int(do(cu.cuPointerGetAttribute(kind, where))) for where in (p + 8, place)))
codes = *(cu.cuMemHostUnregister(place) for _ in "ab"), cu.cuPointerGetAttribute(kind, place)
print(*(one[0] + 0 for one in codes))
"""
    assert output(driver, code) == ["712 713 8", "2 1", "0 713 1"]


def test_functions_keep_their_attributes_and_modules_their_variables(driver: Path) -> None:
    image = kernels_cubin(variables=[("counter", 12, ".nv.global")])
    code = f"""
shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
function = do(cu.cuModuleGetFunction(module, b"fake_nothing"))
def launch_with(size): return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, size, a, 0, 0)[0] + 0
print(launch_with(50000), cu.cuFuncSetAttribute(function, shared, 232449)[0] + 0)
do(cu.cuFuncSetAttribute(function, shared, 50000))
print(launch_with(50000), do(cu.cuFuncGetAttribute(shared, function)))
occupancy = cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
print(*(do(occupancy(function, *size, 0)) for size in ((1024, 0), (32, 0), (32, 100000))))
other = do(cu.cuModuleLoadData({image!r}))
counter, size = do(cu.cuModuleGetGlobal(other, b"counter"))
print(size, *words(counter, 3), cu.cuModuleGetGlobal(other, b"absent")[0] + 0)
print(cu.cuModuleLoadData(b"\\1no image")[0] + 0)
"""
    assert output(driver, code) == ["1 1", "0 50000", "2 32 2", "12 0 0 0 500", "200"]


def test_a_kernel_that_spins_ends_with_its_word_or_with_the_process(driver: Path) -> None:
    code = """
do(launch("fake_spin", c_void_p(p), stream=a))
do(cu.cuStreamWriteValue32(b, p, 1, 0))
do(cu.cuStreamSynchronize(a))
do(cu.cuMemsetD8Async(p, 0, 4, a))
do(launch("fake_spin", c_void_p(p), stream=a))
print(cu.cuStreamQuery(a)[0] + 0)
"""
    assert output(driver, code) == ["600"]


def test_every_other_kernel_takes_the_time_it_is_given(driver: Path) -> None:
    code = """
start, end = (do(cu.cuEventCreate(0)) for _ in "ab")
do(cu.cuEventRecord(start, a))
do(launch("anything", stream=a))
do(cu.cuEventRecord(end, a))
do(cu.cuEventSynchronize(end))
print(do(cu.cuEventElapsedTime(start, end)) >= 5)
"""
    assert output(driver, code, FAKECUDA_LAUNCH_US="5000") == ["True"]


def test_the_log_has_a_line_for_each_call(driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    output(driver, "cu.cuMemHostUnregister(p)\ndo(cu.cuMemGetInfo())", FAKECUDA_LOG=str(log))
    lines = log.read_text().splitlines()
    assert lines[:2] == ["cuInit 0", "cuDeviceGet 0"]
    assert lines[-2:] == ["cuMemHostUnregister 713", "cuMemGetInfo 0"]


def test_copies_of_memory_that_is_there_in_part_are_refused(driver: Path) -> None:
    code = """
memory, place = registered()
codes = (
    cu.cuMemcpyHtoDAsync(p, place, 4097, a), cu.cuMemcpyHtoDAsync(p, place - 1, 2, a),
    cu.cuMemcpyDtoHAsync(place, p + CHUNK - 8, 9, a), cu.cuMemcpyDtoDAsync(p, p + CHUNK, 1, a),
    cu.cuMemsetD8Async(p + CHUNK - 8, 0, 9, a), cu.cuMemsetD8Async(p + CHUNK - 8, 0, 8, a),
)
print(*(one[0] + 0 for one in codes))
"""
    assert output(driver, code) == ["1 1 1 1 1 0"]


#: What ends the process: the code, and what it says.
WRONG = {
    "unmapped memory": (
        "fill(p + CHUNK - 4, 1, 2)",
        "cuLaunchKernel: device memory 0x.* is not mapped",
    ),
    "unset access": (
        "do(cu.cuMemMap(p + CHUNK, CHUNK, 0, handle, 0)); read(p + CHUNK, 1)",
        "cuMemcpyDtoHAsync: 0x.* has no access set",
    ),
    "a write to pageable memory": (
        "cu.cuStreamWriteValue32(a, ctypes.addressof(c_uint()), 1, 0)",
        "cuStreamWriteValue32: 0x.* is neither device memory nor registered",
    ),
    "host memory as device memory": (
        "cu.cuMemcpyHtoDAsync(*[registered()[1]] * 2, 8, a)",
        "cuMemcpyHtoDAsync: 0x.* is not device memory",
    ),
    "an unknown stream": ("cu.cuStreamQuery(4096)", "cuStreamQuery: 0x1000 is no stream"),
    "a stream destroyed twice": (
        "cu.cuStreamDestroy(a); cu.cuStreamDestroy(a)",
        "cuStreamDestroy: 0x.* is no stream, or was destroyed",
    ),
    "an event destroyed twice": (
        "e = do(cu.cuEventCreate(0)); cu.cuEventDestroy(e); cu.cuEventDestroy(e)",
        "cuEventDestroy: 0x.* is no event, or was destroyed",
    ),
    "a handle released twice": (
        "cu.cuMemRelease(handle); cu.cuMemRelease(handle)",
        "cuMemRelease: 0x.* is no memory handle, or was released",
    ),
    "a function of an unloaded module": (
        "f = do(cu.cuModuleGetFunction(module, b'f')); cu.cuModuleUnload(module)\n"
        "cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, 0, 0)",
        "cuLaunchKernel: 0x.* is no function, or was destroyed",
    ),
    "an unmap under a copy": (
        "do(cu.cuStreamWaitValue32(a, p, 1, 0)); cu.cuMemcpyDtoDAsync(p, p + 8, 8, a)\n"
        "cu.cuMemUnmap(p, CHUNK)",
        "cuMemUnmap: .* is still used by work of cuStreamWaitValue32 in stream 0x",
    ),
    "an unregistration under a copy": (
        "m, at = registered(); do(cu.cuStreamWaitValue32(a, p, 1, 0))\n"
        "cu.cuMemcpyDtoHAsync(at, p, 8, a); cu.cuMemHostUnregister(at)",
        "cuMemHostUnregister: .* is still used by work of cuMemcpyDtoHAsync",
    ),
    "half a mapping": ("cu.cuMemUnmap(p, CHUNK // 2)", "cuMemUnmap: no mapping starts at 0x"),
    "an address that is not reserved": (
        "cu.cuMemMap(p + 4 * CHUNK, CHUNK, 0, handle, 0)",
        "cuMemMap: 0x.* is not reserved",
    ),
    "a reservation that is in use": (
        "cu.cuMemAddressFree(reserved, 4 * CHUNK)",
        "cuMemAddressFree: 0x.* still has mappings",
    ),
}  # fmt: skip


#: Runs each code in a child of its own and prints how it ended and what it said.
IN_CHILDREN = """
for code in codes:
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.dup2(writing, 2)
        exec(code)
        os._exit(0)
    os.close(writing)
    said = os.fdopen(reading).read()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), repr(said))
"""


@pytest.fixture(scope="module")
def misused(driver: Path) -> dict[str, str]:
    codes = [code for code, _message in WRONG.values()]
    return dict(zip(WRONG, output(driver, f"codes = {codes}\n{IN_CHILDREN}"), strict=True))


@pytest.mark.parametrize("what", WRONG)
def test_misuse_ends_the_process_and_names_the_call(misused: dict[str, str], what: str) -> None:
    ended = f"{-signal.SIGABRT} 'fakecuda: {WRONG[what][1]}"
    assert re.match(ended, misused[what]), misused[what]


def test_device_memory_cannot_be_read_by_the_host(driver: Path) -> None:
    assert run(driver, "ctypes.string_at(p, 1)").returncode == -signal.SIGSEGV


def test_pending_kernels_keep_the_memory_that_their_buffer_names(driver: Path) -> None:
    code = """
buffer, size = (c_void_p * 2)(3, p + 64), c_size_t(16)
extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
function = do(cu.cuModuleGetFunction(module, b"anything"))
gate, place = registered()
do(cu.cuStreamWaitValue32(a, place, 1, 0))
do(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, a, 0, ctypes.addressof(extra)))
cu.cuMemUnmap(p, CHUNK)
"""
    assert "is still used by work of cuLaunchKernel" in run(driver, code).stderr


def test_fatbin_of_the_fake_kernels_is_read_by_the_registry(tmp_path: Path) -> None:
    other = FakeKernel("_Z5otherPf", ((0, 8),), 8)
    module = Registry("sm_90", tmp_path).module_from_bytes(kernels_fatbin([*KERNELS, other]))
    assert list(module.kernels) == [*(one.name for one in KERNELS), "_Z5otherPf"]
    assert module.kernels["fake_fill"].params == ((0, 8), (8, 4), (16, 8))
    assert module.kernels["fake_fill"].param_bytes == 24
