"""Kernels that a program has in memory, launches with attributes, and tensor maps, on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import cuda_server
import pytest
from cubin_images import entry, fatbin
from cuda_server import CudaServer, FakeGpu, Program, finish
from fakecuda.kernels import client_code, kernels_cubin, kernels_fatbin
from ring import RingClient
from servers import wait_until

from mnemosyne._native import fnv1a

PTX = """.version 8.8
.target sm_90
.visible .entry fake_fill(
    .param .u64 where,
    .param .u32 value,
    .param .u64 count
) { ret; }
"""
#: What a program that uses the driver API has at hand; `images` are a module in every form.
PRELUDE = f"""
import struct
images = {{"cubin": {kernels_cubin()!r}, "fatbin": {kernels_fatbin()!r}, "ptx": {PTX.encode()!r}}}
NOT_FOUND, INVALID_HANDLE = 500, 400
def load(image):
    module = c_void_p()
    ok(cuda.cuModuleLoadData(byref(module), image))
    return module
def function_of(module, name=b"fake_fill"):
    function = c_void_p()
    ok(cuda.cuModuleGetFunction(byref(function), module, name))
    return function
def places(*arguments):
    return (c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
def fill_by(function, p, value, count=1, grid=1):
    arguments = c_void_p(p), c_uint(value), size_t(count)
    return cuda.cuLaunchKernel(
        function, grid, 1, 1, 1, 1, 1, 0, None, places(*arguments), None)
class Attribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_char * 64)]
class Config(ctypes.Structure):
    _fields_ = [("size", c_uint * 7), ("stream", c_void_p), ("attributes", c_void_p),
                ("count", c_uint)]
def config(attributes, grid=4, shared=0):
    listed = (Attribute * len(attributes))()
    for one, (number, value) in zip(listed, attributes):
        one.id = number
        ctypes.memmove(ctypes.addressof(one) + 8, value, len(value))
    c = Config((grid, 1, 1, 1, 1, 1, shared), None, ctypes.addressof(listed), len(attributes))
    c.kept = listed
    return c
def fill_with(function, p, value, *attributes, grid=4):
    arguments = c_void_p(p), c_uint(value), size_t(1)
    c = config(attributes, grid)
    return cuda.cuLaunchKernelEx(byref(c), function, places(*arguments), None)
def attribute(function, number):
    value = c_int(-99)
    ok(cuda.cuFuncGetAttribute(byref(value), number, function))
    return value.value
ints = lambda *values: struct.pack("<%di" % len(values), *values)
def aligned():
    room = ctypes.create_string_buffer(128 + 64)
    return room, (ctypes.addressof(room) + 63) // 64 * 64
def tensor_map(p, at, sizes=(32, 8), strides=(64,), box=(8, 8), kind=6):
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    return cuda.cuTensorMapEncodeTiled(
        c_void_p(at), kind, c_uint(len(sizes)), c_void_p(p), (u64 * len(sizes))(*sizes),
        (u64 * len(strides))(*strides), (u32 * len(box))(*box),
        (u32 * len(box))(*[1] * len(box)), 0, 1, 2, 0)
def late(code):  # of a call that is not waited for: it may tell already, or the next one does
    return code or cuda.cudaDeviceSynchronize()
p = malloc(4096)
"""
CLUSTER, SERIALIZED, EVENT, DOMAIN, COMPLETED, COOPERATIVE = 4, 6, 7, 10, 12, 2


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake driver says what it was called with."""
    return tmp_path_factory.mktemp("calls") / "log"


@pytest.fixture(scope="module")
def cuda(
    gpu: FakeGpu, calls: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CudaServer]:
    folder = tmp_path_factory.mktemp("modules")
    options = "--clients", "6", "--memory-per-client", "256MiB"
    running = gpu.serve(folder, *options, FAKECUDA_LOG=str(calls))
    yield running
    finish(running)


@pytest.fixture
def program(start: Callable[..., Program]) -> Program:
    return start(PRELUDE)


@pytest.mark.parametrize("form", ["cubin", "fatbin", "ptx"])
def test_a_kernel_that_was_in_memory_is_executed(program: Program, form: str) -> None:
    program.do(f"module = load(images[{form!r}]); fill_it = function_of(module)")
    assert program.get("fill_by(fill_it, p, 7, 4), words(p, 4)") == (0, [7] * 4)
    assert program.get("function_of(module).value == fill_it.value")
    assert program.get("cuda.cuModuleUnload(module)") == 0
    assert program.get(
        "fill_by(fill_it, p, 1), cuda.cuModuleGetFunction(byref(c_void_p()), module, b'fake_fill'),"
        "cuda.cuModuleUnload(module), cuda.cudaGetLastError(), words(p)"
    ) == (400, 400, 400, 0, [7])


def test_arguments_may_come_in_one_buffer(program: Program) -> None:
    program.do("""
fill_it = function_of(load(images["cubin"]))
buffer = struct.pack("<QI4xQ", p, 9, 2)
def fill_from(size):
    length = size_t(size)
    extra = (c_void_p * 5)(1, ctypes.cast(buffer, c_void_p), 2, ctypes.addressof(length), None)
    return cuda.cuLaunchKernel(fill_it, 1, 1, 1, 1, 1, 1, 0, None, None, extra)
""")
    assert program.get("fill_from(24), words(p, 2), fill_from(23)") == (0, [9, 9], 1)
    assert program.get("cuda.cuLaunchKernel(fill_it, 1, 1, 1, 1, 1, 1, 0, None, None, None)") == 1


def test_two_loads_of_the_same_bytes_are_two_modules(program: Program) -> None:
    program.do('first, second = load(images["ptx"]), load(images["ptx"])')
    program.do("fill_it, other = function_of(first), function_of(second)")
    assert program.get("cuda.cuModuleUnload(first), fill_by(other, p, 5), words(p)") == (0, 0, [5])
    assert program.get("fill_by(fill_it, p, 6)") == 400


def test_what_cannot_be_loaded_is_said_in_one_line(program: Program) -> None:
    said = program.get("""[
    cuda.cuModuleLoadData(byref(c_void_p()), image) for image in
    (b"\\1\\2\\3\\4", b"no ptx at all", b"\\x7fELF" + bytes(60))
] + [cuda.cuModuleLoad(byref(c_void_p()), b"/nonexistent"), cuda.cudaGetLastError(),
     cuda.cuModuleGetFunction(byref(c_void_p()), load(images["cubin"]), b"absent"),
     cuda.cuModuleGetFunction(byref(c_void_p()), load(images["ptx"]), b"absent")]""")
    assert said == [200, 218, 200, 301, 0, 500, 500]
    lines = [line for line in program.end().splitlines() if line.startswith("mnemosyne:")]
    assert lines == [
        "mnemosyne: module_load: CUDA_ERROR_INVALID_PTX ptxas fatal : no version",
        "mnemosyne: module_function: the module has no kernel absent",
        "mnemosyne: module_function: kernel absent: CUDA_ERROR_NOT_FOUND",
    ]


def test_a_module_is_read_from_its_file(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "kernels.cubin"
    path.write_bytes(kernels_cubin())
    program.do(f"module = c_void_p(); ok(cuda.cuModuleLoad(byref(module), {str(path).encode()!r}))")
    assert program.get("fill_by(function_of(module), p, 3), words(p)") == (0, [3])


def test_functions_have_the_drivers_attributes(program: Program) -> None:
    program.do('f = function_of(load(images["cubin"]))')
    # threads, static shared memory, registers, dynamic shared memory, carveout
    assert program.get("[attribute(f, n) for n in (0, 1, 4, 8, 9)]") == [1024, 0, 32, 49152, -1]
    assert program.get("[cuda.cuFuncSetAttribute(f, *a) for a in "
                       "((8, 100000), (9, 50), (14, 1), (8, 300000), (4, 1), (17, 3))]"
                       ) == [0, 0, 0, 1, 1, 1]  # fmt: skip
    assert program.get("[attribute(f, n) for n in (8, 9, 14)]") == [100000, 50, 1]
    assert program.get(
        "cuda.cuFuncGetAttribute(byref(c_int()), 16, f),"
        "cuda.cuFuncGetAttribute(byref(c_int()), 0, c_void_p(8))"
    ) == (1, 400)
    blocks = "(lambda n: (cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(n), f, 512,"
    assert program.get(blocks + "size_t(0)), n.value))(c_int())") == (0, 4)
    assert program.get("cuda.cuFuncSetCacheConfig(f, 1), cuda.cuFuncSetCacheConfig(f, 4)") == (0, 1)


def test_launch_attributes_reach_the_driver(program: Program, calls: Path) -> None:
    program.do('f, e = function_of(load(images["cubin"])), event()')
    program.do("ok(cuda.cuFuncSetAttribute(f, 14, 1))")
    plain = [(CLUSTER, (2, 1, 1)), (SERIALIZED, (1,)), (DOMAIN, (1,)), (8, (-3,))]
    given = ", ".join(f"({number}, ints(*{value}))" for number, value in plain)
    assert program.get(f"fill_with(f, p, 8, (0, b''), {given}), words(p)") == (0, [8])
    log = calls.read_text()
    for number, (first, *_) in plain:
        assert f"fake_fill: launch attribute {number} = {first % 2**32}\n" in log
    assert "fake_fill: launch attribute 0 " not in log


@pytest.mark.parametrize("kind", [EVENT, COMPLETED])
def test_an_event_of_a_launch_marks_it(program: Program, kind: int) -> None:
    program.do('f, e, gate = function_of(load(images["cubin"])), event(), Gate()')
    program.do("gate.close()")
    assert program.get(f"fill_with(f, p, 8, ({kind}, struct.pack('<Qii', e.value, 0, 0)))") == 0
    assert program.get("cuda.cudaEventQuery(e)") == 600
    program.do("gate.open()")
    assert program.get("cuda.cudaEventSynchronize(e), cuda.cudaEventQuery(e), words(p)") == (
        0, 0, [8],
    )  # fmt: skip
    assert program.get(f"fill_with(f, p, 9, ({kind}, struct.pack('<Qii', 77, 0, 0)))") == 400


REFUSED = {
    "a cluster of nothing": (f"({CLUSTER}, ints(0, 1, 1))", 912),
    "a cluster that the grid is no multiple of": (f"({CLUSTER}, ints(3, 1, 1))", 912),
    "a cluster of too many blocks": (f"({CLUSTER}, ints(16, 1, 1))", 912),
    "blocks that cannot be together": (f"({COOPERATIVE}, ints(1))", 720),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_launched_fails_at_the_call(program: Program, case: str) -> None:
    given, code = REFUSED[case]
    program.do('f = function_of(load(images["cubin"]))')
    grid = 1 << 20 if code == 720 else 4
    assert program.get(f"fill_with(f, p, 8, {given}, grid={grid}), cuda.cudaGetLastError()") == (
        code, 0,
    )  # fmt: skip


def test_what_is_not_supported_in_a_launch_fails(program: Program) -> None:
    program.do('f = function_of(load(images["cubin"]))')
    assert program.get("late(fill_with(f, p, 8, (13, bytes(16))))") == 801
    assert program.get("fill_with(f, p, 9), words(p)") == (0, [9])


def test_a_window_of_anothers_memory_is_refused(program: Program) -> None:
    program.do('f = function_of(load(images["cubin"]))')
    window = "(1, struct.pack('<QQ', {}, {}))"
    assert program.get(f"fill_with(f, p, 8, {window.format('p', 4096)}), words(p)") == (0, [8])
    assert program.get(f"late(fill_with(f, p, 9, {window.format(4096, 64)})), words(p)") == (1, [8])


def test_clusters_are_counted_by_the_driver(program: Program) -> None:
    program.do('f, n = function_of(load(images["cubin"])), c_int()')
    program.do(f"c = config([({CLUSTER}, ints(4, 1, 1))])")
    assert program.get("cuda.cuOccupancyMaxActiveClusters(byref(n), f, byref(c)), n.value") == (
        0,
        33,
    )
    assert program.get("cuda.cuOccupancyMaxActiveClusters(None, f, byref(c))") == 1


def test_a_tensor_map_is_the_drivers_and_asked_for_once(program: Program, calls: Path) -> None:
    program.do("room, at = aligned(); other, beside = aligned()")
    before = calls.read_text().count("cuTensorMapEncodeTiled")
    assert program.get("tensor_map(p, at), tensor_map(p, beside)") == (0, 0)
    assert calls.read_text().count("cuTensorMapEncodeTiled") == before + 1
    assert program.get("ctypes.string_at(at, 128) == ctypes.string_at(beside, 128)")
    expected = "struct.pack('<10Q', p, 6, 2, 32, 64, 8, 0, 1, 2, 0)"
    assert program.get(f"ctypes.string_at(at, 80) == {expected}")
    assert program.get("tensor_map(p + 16, at)") == 0
    assert program.get("ctypes.string_at(at, 8) == struct.pack('<Q', p + 16)")


BAD_MAPS = {
    "of anothers memory": "tensor_map(1 << 20, at)",
    "that reaches too far": "tensor_map(p, at, sizes=(32, 1 << 40), strides=(1 << 30,))",
    "that wraps around": "tensor_map(p, at, sizes=(32, 1 << 63), strides=(1 << 62,))",
    "that the driver refuses": "tensor_map(p + 8, at)",
    "at a place that is not aligned": "tensor_map(p, at + 8)",
    "of no dimensions": "tensor_map(p, at, sizes=(), strides=(), box=())",
    "of too many dimensions": "tensor_map(p, at, sizes=(8,) * 6, strides=(8,) * 5, box=(8,) * 6)",
}


@pytest.mark.parametrize("case", BAD_MAPS)
def test_a_tensor_map_is_refused(program: Program, case: str) -> None:
    program.do("room, at = aligned()")
    assert program.get(f"{BAD_MAPS[case]}, ctypes.string_at(at, 8)") == (1, bytes(8))
    assert program.get("tensor_map(p, at)") == 0


def test_words_are_set(program: Program) -> None:
    assert program.get("cuda.cuMemsetD32Async(c_void_p(p), 0xdeadbeef, size_t(3), None), "
                       "words(p, 3)") == (0, [0xDEADBEEF] * 3)  # fmt: skip
    too_many = "late(cuda.cuMemsetD32Async(c_void_p(p), 1, size_t(1 << 62), None))"
    assert program.get(f"{too_many}, words(p)") == (1, [0xDEADBEEF])


def test_modules_and_settings_survive_another_clients_fault(
    cuda: CudaServer, start: Callable[..., Program], calls: Path
) -> None:
    program, guilty = start(PRELUDE), start()
    program.do('f, g = function_of(load(images["cubin"])), function_of(load(images["ptx"]))')
    program.do('unloaded = load(images["cubin"]); function_of(unloaded)')
    assert program.get(
        "[cuda.cuFuncSetAttribute(f, 8, 77777), cuda.cuFuncSetAttribute(f, 14, 1),"
        "cuda.cuFuncSetCacheConfig(f, 2), cuda.cuModuleUnload(unloaded)]"
    ) == [0, 0, 0, 0]
    assert program.get("fill_by(f, p, 1), words(p)") == (0, [1])
    before = calls.read_text()
    guilty.do('launch("fake_illegal"); cuda.cudaDeviceSynchronize()')
    assert program.get("fill_by(f, p, 21), words(p), fill_by(g, p, 22), words(p)") == (
        0, [21], 0, [22],
    )  # fmt: skip
    since = calls.read_text()[len(before) :]
    for setting in ("attribute 8 = 77777", "attribute 14 = 1", "cache 2"):
        assert f"fake_fill: {setting}\n" in since
    assert program.get('fill_by(function_of(load(images["ptx"])), p, 23), words(p)') == (0, [23])
    assert wait_until(cuda.accepts, 60)


def test_the_runtime_launches_a_kernel_from_memory_in_every_way(program: Program) -> None:
    program.do("""
library, kernel = c_void_p(), c_void_p()
ok(cuda.cudaLibraryLoadData(byref(library), images["cubin"], None, None, 0, None, None, 0))
ok(cuda.cudaLibraryGetKernel(byref(kernel), library, b"fake_fill"))
class Dim(ctypes.Structure):
    _fields_ = [(name, c_uint) for name in "xyz"]
class RuntimeConfig(ctypes.Structure):
    _fields_ = [("grid", Dim), ("block", Dim), ("shared", size_t), ("stream", c_void_p),
                ("attributes", c_void_p), ("count", c_uint)]
one = Dim(1, 1, 1)
def with_config(value):
    c = RuntimeConfig(one, one, 0, None, None, 0)
    arguments = c_void_p(p), c_uint(value), size_t(1)
    listed = places(*arguments)
    return cuda.cudaLaunchKernelExC(byref(c), kernel, listed)
def together(value, grid=1):
    arguments = c_void_p(p), c_uint(value), size_t(1)
    listed = places(*arguments)
    return cuda.cudaLaunchCooperativeKernel(
        kernel, Dim(grid, 1, 1), one, listed, size_t(0), None)
""")
    assert program.get("with_config(31), words(p)") == (0, [31])
    assert program.get("together(32), words(p)") == (0, [32])
    assert program.get("together(33, 1 << 20), cuda.cudaGetLastError(), words(p)") == (
        720, 720, [32],
    )  # fmt: skip
    settings = "cuda.cudaFuncSetCacheConfig(kernel, 1), cuda.cudaFuncSetCacheConfig(kernel, 7),"
    settings += "cuda.cudaKernelSetAttributeForDevice(kernel, 8, 60000, 0)"
    assert program.get(settings) == (0, 1, 0)
    program.do("attributes = (c_int * 64)(); ok(cuda.cudaFuncGetAttributes(attributes, kernel))")
    assert program.get("list(attributes[6:8]), attributes[11]") == ([1024, 32], 60000)
    assert program.get("cuda.cudaLibraryUnload(library), with_config(1)") == (0, 98)


def test_the_driver_launches_cooperatively_and_takes_options(program: Program) -> None:
    program.do("""
module, log = c_void_p(), ctypes.create_string_buffer(b"before", 64)
options, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(log), 64)
ok(cuda.cuModuleLoadDataEx(byref(module), images["ptx"], 2, options, values))
f = function_of(module)
def together(value, grid=1):
    arguments = c_void_p(p), c_uint(value), size_t(1)
    listed = places(*arguments)
    return cuda.cuLaunchCooperativeKernel(f, grid, 1, 1, 1, 1, 1, 0, None, listed)
""")
    assert program.get("together(41), words(p), log.value") == (0, [41], b"")
    assert program.get("together(42, 1 << 20), words(p)") == (720, [41])
    program.do("limit = size_t()")
    assert program.get("cuda.cuCtxGetLimit(byref(limit), 1), limit.value") == (0, 1 << 20)
    assert program.get("cuda.cuCtxSetLimit(1, size_t(8 << 20))") == 0


def test_an_im2col_map_is_the_drivers(program: Program) -> None:
    program.do("""
room, at = aligned()
def im2col(address, rank=3):
    u64, u32 = ctypes.c_uint64 * 3, c_uint * 3
    return cuda.cuTensorMapEncodeIm2col(
        c_void_p(at), 6, c_uint(rank), c_void_p(address), u64(8, 4, 2), u64(16, 64),
        (c_int * 1)(-1), (c_int * 1)(-2), 8, 4, u32(1, 1, 1), 0, 0, 0, 0)
""")
    expected = "struct.pack('<4Q2q2Q', p, 6, 3, 8, -1, -2, 8, 4)"
    assert program.get(f"im2col(p), ctypes.string_at(at, 64) == {expected}") == (0, True)
    assert program.get("im2col(1 << 20), im2col(p, 2), im2col(p, 6)") == (1, 1, 1)


def send(client: RingClient, blob: bytes) -> None:
    client.post("module_bytes", fnv1a(blob).to_bytes(8, "little"), len(blob), 0, blob)


def test_what_a_client_sent_is_unloaded_with_it(cuda: CudaServer, calls: Path) -> None:
    blob = kernels_fatbin()
    module = ["/nonexistent", 0, len(blob), fnv1a(blob)]
    first, second = cuda.ring(), cuda.ring()
    for client in (first, second):
        assert client.call("kernel", module, "fake_fill")[0] == -1
        send(client, blob)
        assert client.call("kernel", module, "fake_fill")[0] == 0
        assert client.call("kernel", module, "fake_nothing")[0] == 0
    before = calls.read_text().count("cuModuleUnload 0")
    first.close()
    assert wait_until(lambda: calls.read_text().count("cuModuleUnload 0") == before + 1)
    assert second.call("kernel", module, "fake_assert")[0] == 0
    second.close()
    assert wait_until(lambda: calls.read_text().count("cuModuleUnload 0") == before + 2)


@pytest.mark.parametrize("left", [None, b"another file"])
def test_a_client_is_asked_for_a_module_whose_file_has_gone(
    cuda: CudaServer, tmp_path: Path, left: bytes | None
) -> None:
    """One of which every client has a copy of its own: so its file is read for each."""
    blob, file = fatbin(entry(kernels_cubin(variables=[("v", 4, ".nv.global")]))), tmp_path / "file"
    file.write_bytes(blob)
    module = [str(file), 0, len(blob), fnv1a(blob)]
    first, second = cuda.ring(), cuda.ring()
    assert first.call("kernel", module, "fake_fill")[0] == 0
    file.unlink() if left is None else file.write_bytes(left)
    status, text = second.call("kernel", module, "fake_fill")
    assert (status, str(file) in text) == (-1, True)
    send(second, blob)
    for client in (first, second):
        assert client.call("kernel", module, "fake_fill")[2] == [[0, 8], [8, 4], [16, 8]]
        client.close()


def test_one_of_two_copies_of_a_library_may_go(cuda: CudaServer, tmp_path: Path) -> None:
    copies = [Path(shutil.copy(cuda.library, tmp_path / name)) for name in ("a.so", "b.so")]
    for copy in copies:
        program = Program(cuda, client_code(copy) + cuda_server.PRELUDE)
        program.do("p = malloc(64)")
        assert program.get("fill(p, 7, 2), words(p, 2)") == (None, [7, 7])
        assert program.end() == ""
        copy.unlink()
