"""Algorithms of cublasLt on the CPU device, where there is only one way to compute a product.

How this works: to a program a cublasLtMatmulAlgo_t is 64 bytes. Here they are the values of its
attributes (cublasLtMatmulAlgoConfigAttributes_t), which can be set and read and change nothing.
"""

from __future__ import annotations

import struct

from mnemosyne.server.devices.cpu.matrices import DTYPES, eight_bit_types_of, types_of
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_WORDS = struct.Struct("<16I")
_ID, _SPLIT_K = 0, 2
#: Bytes of each attribute; the last two are the ids of inner and cluster shape.
_SIZES = {0: 4, 1: 4, 2: 4, 3: 4, 4: 4, 5: 4, 6: 4, 7: 2, 8: 2}


def _with_id(number: int) -> bytes:
    words = [0] * 16
    words[_ID], words[_SPLIT_K] = number, 1
    return _WORDS.pack(*words)


DEFAULT = _with_id(0)


def check(algo: bytes) -> list[int]:
    """The attributes' values. Raises CallError for what is no algorithm."""
    if len(algo) != _WORDS.size:
        raise CallError(INVALID_VALUE, f"an algorithm of {len(algo)} bytes, not {_WORDS.size}")
    return list(_WORDS.unpack(algo))


def _size_of(attribute: int) -> int:
    if attribute not in _SIZES:
        raise CallError(INVALID_VALUE, f"an algorithm has no attribute {attribute}")
    return _SIZES[attribute]


def _init(
    s: CpuSession, compute: int, scale: int, a: int, b: int, c: int, d: int, number: int
) -> Outputs:
    types = eight_bit_types_of(a, b, d, compute) or types_of(a, b, d, compute)
    if DTYPES.get(scale) is not types.scale or number != 0:
        raise CallError(NOT_SUPPORTED, f"algorithm {number} with scalars of type {scale}")
    return (DEFAULT,)


def _set(s: CpuSession, algo: bytes, attribute: int, value: bytes) -> Outputs:
    words = check(algo)
    if attribute == _ID or len(value) != _size_of(attribute):
        raise CallError(INVALID_VALUE, f"attribute {attribute} of an algorithm cannot be set so")
    words[attribute] = int.from_bytes(value, "little")
    return (_WORDS.pack(*words),)


def _get(s: CpuSession, algo: bytes, attribute: int, size: int) -> Outputs:
    words, needed = check(algo), _size_of(attribute)
    if size == 0:
        return b"", needed
    if size < needed:
        raise CallError(INVALID_VALUE, f"attribute {attribute} has {needed} bytes, not {size}")
    return words[attribute].to_bytes(4, "little")[:needed], needed


HANDLERS: Handlers = {"lt_algo_init": _init, "lt_algo_set": _set, "lt_algo_get": _get}
