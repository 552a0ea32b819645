"""cuBLAS and cublasLt as programs call them that are not PyTorch: through the client library."""

from __future__ import annotations

from conftest import Server

PRELUDE = """
import ctypes, struct
from array import array
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
cuda = ctypes.CDLL(None)
HOST, DEVICE = 0, 1
handle = c_void_p()
assert cuda.cublasCreate_v2(byref(handle)) == 0

def malloc(size):
    p = c_void_p()
    assert cuda.cudaMalloc(byref(p), c_size_t(size)) == 0
    return p.value

def put(data):
    data = bytes(data)
    p = malloc(len(data))
    assert cuda.cudaMemcpy(c_void_p(p), data, c_size_t(len(data)), 1) == 0
    return c_void_p(p)

def floats(*values): return put(array("f", values))
def pointers(*places): return put(struct.pack("<%dQ" % len(places), *(p.value for p in places)))

def get(p, form):
    data = ctypes.create_string_buffer(struct.calcsize(form))
    assert cuda.cudaMemcpy(data, p, c_size_t(len(data)), 2) == 0
    return list(struct.unpack(form, data.raw))

def mode(which): assert cuda.cublasSetPointerMode_v2(handle, which) == 0
"""


def output(server: Server, code: str) -> list[str]:
    return server.output(PRELUDE + code).split("\n")


def test_results_go_where_the_pointer_mode_says(server: Server) -> None:
    code = """
x, result, index = floats(3, -4, 0), c_float(7), c_int(7)
print(cuda.cublasSnrm2_v2(handle, 3, x, 1, byref(result)), result.value)
print(cuda.cublasIsamax_v2(handle, 3, x, 1, byref(index)), index.value)
print(cuda.cublasSnrm2_v2(handle, 2, x, 1, byref(result)), result.value)
mode(DEVICE)
place = floats(0, 9)
print(cuda.cublasSasum_v2(handle, 3, x, 1, place), get(place, "2f"))
print(cuda.cublasSnrm2_v2(handle, 3, x, 1, None))
mode(HOST)
print(cuda.cublasSnrm2_v2(handle, 3, x, 1, None))
"""
    assert output(server, code) == ["0 5.0", "0 2", "0 5.0", "0 [7.0, 9.0]", "7", "7"]


def test_a_result_is_new_each_time(server: Server) -> None:
    """A call that has succeeded before is not waited for, unless it has something to say."""
    code = """
x, result = floats(1, 2), c_float()
found = []
for value in (1, 2, 3):
    alpha = c_float(value)
    assert cuda.cublasSscal_v2(handle, 2, byref(alpha), x, 1) == 0
    assert cuda.cublasSasum_v2(handle, 2, x, 1, byref(result)) == 0
    found.append(result.value)
print(found)
"""
    assert output(server, code) == ["[3.0, 6.0, 18.0]"]


def test_scalars_change_in_place_in_both_memories(server: Server) -> None:
    code = """
a, b, c, s = c_float(3), c_float(4), c_float(), c_float()
print(cuda.cublasSrotg_v2(handle, byref(a), byref(b), byref(c), byref(s)))
print(a.value, round(c.value, 4), round(s.value, 4))
mode(DEVICE)
places = [floats(v) for v in (3, 4, 0, 0)]
print(cuda.cublasSrotg_v2(handle, *places), [round(get(p, "f")[0], 4) for p in places])
mode(HOST)
d1, d2, x1, y1, param = c_double(2), c_double(3), c_double(5), c_double(1), (c_double * 5)()
print(cuda.cublasDrotmg_v2(handle, byref(d1), byref(d2), byref(x1), byref(y1), param), param[0])
x, y = put(struct.pack("<d", 5)), put(struct.pack("<d", 1))
print(cuda.cublasDrotm_v2(handle, 1, x, 1, y, 1, param), abs(get(y, "d")[0]) < 1e-12)
"""
    assert output(server, code) == [
        "0", "5.0 0.6 0.8", "0 [5.0, 1.6667, 0.6, 0.8]", "0 0.0", "0 True",
    ]  # fmt: skip


def test_batches_say_what_is_wrong_with_their_arguments(server: Server) -> None:
    code = """
a, b, info = floats(2, 0, 0, 4), floats(2, 8), c_int(7)
arrays, pivots, infos = (pointers(a), pointers(b)), put(bytes(8)), put(b"????")
print(cuda.cublasSgetrfBatched(handle, 2, arrays[0], 2, pivots, infos, 1), get(infos, "i"))
for _ in range(2):
    info.value = 7
    code = cuda.cublasSgetrsBatched(handle, 0, 2, 1, arrays[0], 2, pivots, arrays[1], 2,
                                    byref(info), 1)
    print(code, info.value, get(b, "2f"))
print(cuda.cublasSgetrsBatched(handle, 0, 2, 1, arrays[0], 1, pivots, arrays[1], 2, byref(info), 1),
      info.value < 0)
print(cuda.cublasSgetrsBatched(handle, 0, 2, 1, arrays[0], 2, pivots, arrays[1], 2, None, 1))
"""
    assert output(server, code) == [
        "0 [0]", "0 0 [1.0, 2.0]", "0 0 [0.5, 0.5]", "7 True", "7",
    ]  # fmt: skip


def test_a_complex_product_by_numbers_of_types_takes_complex_scalars(server: Server) -> None:
    code = """
C64 = 4
a, out = floats(1, 2), floats(0, 0)
alpha, beta = (c_float * 2)(0, 1), (c_float * 2)(0, 0)
print(cuda.cublasGemmEx(handle, 0, 0, 1, 1, 1, alpha, a, C64, 1, a, C64, 1, beta, out, C64, 1, 68,
                        -1), get(out, "2f"))
"""
    assert output(server, code) == ["0 [-4.0, -3.0]"]


def test_vectors_and_matrices_are_copied_with_their_steps(server: Server) -> None:
    code = """
there, back = put(bytes(48)), array("f", [0] * 8)
host = array("f", range(1, 9))
def address(data): return c_void_p(data.buffer_info()[0])
print(cuda.cublasSetVectorAsync(3, 4, address(host), 2, there, 1, None), get(there, "3f"))
print(cuda.cublasGetVectorAsync(3, 4, there, 1, address(back), 3, None))
print(cuda.cudaDeviceSynchronize(), list(back))
print(cuda.cublasSetMatrixAsync(2, 3, 4, address(host), 3, there, 4, None), get(there, "12f"))
back = array("f", [0] * 8)
print(cuda.cublasGetMatrixAsync(2, 2, 4, there, 4, address(back), 2, None))
print(cuda.cudaDeviceSynchronize(), list(back))
print(cuda.cublasSetVectorAsync(3, 4, address(host), 0, there, 1, None),
      cuda.cublasSetMatrixAsync(4, 1, 4, address(host), 3, there, 4, None),
      cuda.cublasGetVectorAsync(1, 4, c_void_p(16), 1, address(host), 1, None))
"""
    lines = output(server, code)
    assert lines[:3] == ["0 [1.0, 3.0, 5.0]", "0", "0 [1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 5.0, 0.0]"]
    assert lines[3].startswith("0 [1.0, 2.0, ")
    assert [float(v) for v in lines[3][3:-1].split(",")][4:6] == [4.0, 5.0]
    assert lines[4:] == ["0", "0 [1.0, 2.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0]", "7 7 11"]


def test_an_algorithm_is_made_changed_read_and_checked(server: Server) -> None:
    code = """
algorithm, value, written = ctypes.create_string_buffer(64), c_int(5), c_size_t()
print(cuda.cublasLtMatmulAlgoInit(handle, 68, 0, 0, 0, 0, 0, 0, algorithm))
TILE, SPLIT = 1, 2
print(cuda.cublasLtMatmulAlgoConfigSetAttribute(algorithm, TILE, byref(value), c_size_t(4)))
back = c_int()
for attribute in (TILE, SPLIT):
    print(cuda.cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, byref(back), c_size_t(4),
                                                    byref(written)), back.value, written.value)
print(cuda.cublasLtMatmulAlgoConfigGetAttribute(algorithm, TILE, None, c_size_t(0), byref(written)),
      written.value)
desc, layout = c_void_p(), c_void_p()
assert cuda.cublasLtMatmulDescCreate(byref(desc), 68, 0) == 0
assert cuda.cublasLtMatrixLayoutCreate(byref(layout), 0, c_size_t(2), c_size_t(2), c_int64(2)) == 0
result = ctypes.create_string_buffer(96)
print(cuda.cublasLtMatmulAlgoCheck(handle, desc, *[layout] * 4, algorithm, result),
      result.raw[:64] == algorithm.raw)
print(cuda.cublasLtMatmulAlgoInit(handle, 68, 0, 3, 3, 3, 3, 0, algorithm),
      cuda.cublasLtMatmulAlgoConfigSetAttribute(algorithm, 99, byref(value), c_size_t(4)),
      cuda.cublasLtMatmulAlgoCheck(handle, desc, *[layout] * 4, None, result))
"""
    assert output(server, code) == ["0", "0", "0 5 4", "0 1 4", "0 4", "0 True", "15 7 7"]


def test_every_routine_of_the_table_is_a_call_that_succeeds(server: Server) -> None:
    """With memory of ones, matrices of 2 x 2, and arrays that name each matrix twice."""
    code = """
from mnemosyne.api import SPEC, Kind
from mnemosyne.api.cublas_routines import VARIANTS
from mnemosyne.api.spec import Way

STEPS = {"incx": 1, "incy": 1, "lda": 2, "ldb": 2, "ldc": 2}
CHOICES = {"side": 0, "uplo": 1, "trans": 0, "transa": 0, "transb": 0, "diag": 1}
integers = {**STEPS, **CHOICES, **dict.fromkeys(("m", "n", "k", "nrhs"), 2),
            "batchCount": 2, "batchSize": 2}
failed = []
for call in SPEC.calls:
    if call.name not in VARIANTS:
        continue
    kind = "d" if VARIANTS[call.name][2] in "DZ" else "f"
    memory = [put(struct.pack("<16" + kind, *[1] * 16)) for _ in range(3)]
    values = []
    for field in call.params[1:]:
        if field.kind is Kind.INT and field.way is Way.IN:
            values.append(integers[field.name])
        elif field.name == "devIpiv":
            values.append(put(struct.pack("<4i", 1, 2, 1, 2)))
        elif field.kind is Kind.PTR:
            place = memory[len(values) % 3]
            values.append(pointers(place, place) if field.name.endswith("rray")
                          and field.name != "devInfoArray" else place)
        else:
            values.append(struct.pack("<5" + kind, *[1] * 5))
    if code := getattr(cuda, call.name)(handle, *values):
        failed.append((call.name, code))
print(len(VARIANTS), failed)
"""
    assert output(server, code) == ["144 []"]


def test_a_handle_of_cublaslt_multiplies_batches(server: Server) -> None:
    code = """
lt, stream, desc = c_void_p(), c_void_p(7), c_void_p()
print(cuda.cublasLtCreate(byref(lt)), cuda.cublasGetStream_v2(handle, byref(stream)), stream.value)
assert cuda.cublasLtMatmulDescCreate(byref(desc), 68, 0) == 0
layout, count, apart = c_void_p(), c_int(2), c_int64(1)
BATCH_COUNT, BATCH_OFFSET = 5, 6
assert cuda.cublasLtMatrixLayoutCreate(byref(layout), 0, c_size_t(1), c_size_t(1), c_int64(1)) == 0
print(cuda.cublasLtMatrixLayoutSetAttribute(layout, BATCH_COUNT, byref(count), c_size_t(4)),
      cuda.cublasLtMatrixLayoutSetAttribute(layout, BATCH_OFFSET, byref(apart), c_size_t(8)))
a, b, d, one, zero = floats(2, 3), floats(5, 7), floats(0, 0), c_float(1), c_float(0)
print(cuda.cublasLtMatmul(lt, desc, byref(one), a, layout, b, layout, byref(zero), d, layout, d,
                          layout, None, None, c_size_t(0), None), get(d, "2f"))
print(cuda.cublasLtDestroy(lt), cuda.cublasLtDestroy(lt))
"""
    assert output(server, code) == ["0 0 None", "0 0", "0 [10.0, 21.0]", "0 1"]
