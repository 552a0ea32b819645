"""A client that calls every generated stub of the preloaded libclient.so with edges of its types.

Prints one line of JSON: [[message, values], ...] as it expects the frames to be, in order. Bytes
are in hex with a "0x" in front, as far as they are known.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from itertools import count
from typing import Any

from mnemosyne.api import SPEC
from mnemosyne.api.spec import Call, Field, Kind, Way
from mnemosyne.protocol.carried import NUMBER_OF

TURNS = 8
INTERPROCESS = 6  # and without timing: of such an event all is sent, however it has been used
HOOK = ctypes.CDLL(None)
NEW = {
    Kind.STREAM: lambda at: HOOK.cudaStreamCreate(at),
    Kind.EVENT: lambda at: HOOK.cudaEventCreateWithFlags(at, INTERPROCESS),
    Kind.BLAS: lambda at: HOOK.cublasCreate_v2(at),
    Kind.CUDNN: lambda at: HOOK.cudnnCreate(at),
}
#: By the type of a library's handle: the call that makes one.
MAKERS = {one.params[0].of: one for one in SPEC.calls if one.via and one.params[0].way is Way.NEW}
EDGES: dict[str, tuple[Callable[[int], Any], list[int]]] = {
    "signed char": (ctypes.c_byte, [0, 65, 127, -1, -128]),
    "int": (ctypes.c_int, [0, -1, 127, 128, -32, -33, -129, 2**31 - 1, -(2**31), 70000]),
    "unsigned int": (ctypes.c_uint, [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32 - 1]),
    "long long": (ctypes.c_longlong, [0, -1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**32]),
    "size_t": (ctypes.c_size_t, [0, 1, 2**31, 2**32, 2**63, 2**64 - 1]),
    "void*": (ctypes.c_void_p, [0, 1, 0x200000000000, 2**47, 2**63, 2**64 - 1]),
}
COMPUTE_TYPES = [64, 68, 70]  # CUBLAS_COMPUTE_16F, _32F, _64F: they decide the size of a scalar
DATA_TYPES = [0, 1, 5]  # of other libraries: CUDA_R_32F, _R_64F, _C_64F
LENGTHS = [1, 2, 3]  # that decide how many bytes of host memory are read or written
turn = count()


def handle(kind: Kind) -> int:
    made = ctypes.c_void_p()
    assert NEW[kind](ctypes.byref(made)) == 0
    assert made.value
    return made.value


STREAM, EVENT, BLAS = handle(Kind.STREAM), handle(Kind.EVENT), handle(Kind.BLAS)
LASTING = {Kind.STREAM: [0, STREAM], Kind.EVENT: [EVENT], Kind.BLAS: [BLAS]}


def library_handle(of: str) -> int:
    maker = MAKERS[of]
    made = ctypes.c_void_p()
    rest = [0] * (len(maker.params) - 1)
    assert getattr(HOOK, maker.name)(ctypes.byref(made), *rest) == 0
    assert made.value
    return made.value


LIBRARY_HANDLES = {of: library_handle(of) for of in MAKERS}


def library_argument(field: Field) -> tuple[Any, Callable[[], list[Any]]]:
    """The same for a call that another message carries."""
    if field.kind is Kind.HANDLE and field.way is not Way.NEW:
        gone = field.way is Way.GONE
        known = library_handle(field.of) if gone else LIBRARY_HANDLES[field.of]
        return ctypes.c_void_p(known), lambda: [known]
    if field.kind is Kind.SCRATCH or (field.kind is Kind.BYTES and field.way is Way.OUT):
        return ctypes.create_string_buffer(64), list
    if field.kind is Kind.BYTES:
        return bytes(64), lambda: ["0x"]
    if field.kind is Kind.REAL:
        return ctypes.c_double(1.5), lambda: ["0x" + struct.pack("<d", 1.5).hex()]
    if field.way is Way.INOUT:
        return ctypes.byref(ctypes.c_size_t(2**40)), lambda: [2**40]
    if field.name in ("computeType", "rank", "dataSize", "batchSize"):
        edges = DATA_TYPES if field.name == "computeType" else LENGTHS
        value = edges[next(turn) % len(edges)]
        return EDGES[field.ctype][0](value), lambda: [value]
    return argument(field)


def argument(field: Field) -> tuple[Any, Callable[[], list[Any]]]:
    """What to pass, and what the frame then holds (known after the call)."""
    if field.way in (Way.OUT, Way.NEW):
        place = ctypes.c_void_p()
        held = field.way is Way.NEW
        return ctypes.byref(place), lambda: [place.value] if held else []
    if field.way is Way.GONE:
        mortal = handle(field.kind)
        return ctypes.c_void_p(mortal), lambda: [mortal]
    if field.kind in LASTING:
        lasting = LASTING[field.kind][next(turn) % len(LASTING[field.kind])]
        return ctypes.c_void_p(lasting), lambda: [lasting]
    if field.kind is Kind.SCALAR:
        scalar = bytes(range(200, 240))
        size = field.size if field.size.isdigit() else ""
        return scalar, lambda: ["0x" + scalar[: int(size)].hex() if size else "0x"]
    if field.kind is Kind.RESULT:
        return ctypes.create_string_buffer(16), lambda: [0]
    ctype, edges = EDGES[field.ctype]
    if field.name == "computeType":
        edges = COMPUTE_TYPES
    value = edges[next(turn) % len(edges)]
    return ctype(value), lambda: [value]


def call(one: Call) -> list[Any]:
    made = [(library_argument if one.via else argument)(field) for field in one.params]
    getattr(HOOK, one.name)(*(passed for passed, _ in made))
    values = [value for _, held in made for value in held()]
    if one.via.endswith("_run"):
        return [one.via, [NUMBER_OF[one.name], 0, 0, values]]
    return [one.via, [one.name, 0, values]] if one.via else [one.name, values]


if __name__ == "__main__":
    calls = [one for one in SPEC.calls if one.message or (one.via and not one.described)]
    print(json.dumps([call(one) for one in calls for _ in range(1 if one.decided else TURNS)]))
