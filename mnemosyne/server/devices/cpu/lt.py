"""cublasLt products on the CPU device.

How this works: descriptors come by content, as [[attribute, bytes], ...]. They are read into a
``Plan``; whatever the plan cannot express is refused as "not supported". The heuristic makes the
same plan, so that it offers an algorithm exactly where the product can be computed.
Source: cublasLt.h (attributes, epilogues).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import torch

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu import algorithms
from mnemosyne.server.devices.cpu.epilogues import EPILOGUES, Epilogue, Extra, Product
from mnemosyne.server.devices.cpu.matrices import (
    DTYPES,
    FP8,
    Matrix,
    Types,
    check_op,
    check_sizes,
    eight_bit_types_of,
    scalar,
    types_of,
)
from mnemosyne.server.devices.cpu.scales import WIDER, Scales
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_INT32, _INT64 = struct.Struct("<i"), struct.Struct("<q")

#: cublasLtMatmulDescAttributes_t that a plan understands: form and default.
_DESC: dict[int, tuple[struct.Struct, int]] = {
    2: (_INT32, 0),  # POINTER_MODE
    3: (_INT32, 0),  # TRANSA
    4: (_INT32, 0),  # TRANSB
    7: (_INT32, 1),  # EPILOGUE
    8: (_INT64, 0),  # BIAS_POINTER
    11: (_INT64, 0),  # EPILOGUE_AUX_POINTER
    12: (_INT64, 0),  # EPILOGUE_AUX_LD
    17: (_INT64, 0),  # A_SCALE_POINTER
    18: (_INT64, 0),  # B_SCALE_POINTER
    19: (_INT64, 0),  # C_SCALE_POINTER
    20: (_INT64, 0),  # D_SCALE_POINTER
    21: (_INT64, 0),  # AMAX_D_POINTER
    22: (_INT32, -1),  # EPILOGUE_AUX_DATA_TYPE
    26: (_INT32, -1),  # BIAS_DATA_TYPE
    31: (_INT32, 0),  # A_SCALE_MODE
    32: (_INT32, 0),  # B_SCALE_MODE
}
#: SM_COUNT_TARGET, FAST_ACCUM, and the batch strides of bias and auxiliary matrix: without meaning
#: here, because an epilogue that reads them is refused for batches.
_HINTS = {10, 13, 15, 25}
#: cublasLtMatrixLayoutAttribute_t, likewise.
_LAYOUT: dict[int, tuple[struct.Struct, int]] = {
    1: (_INT32, 0),  # ORDER
    5: (_INT32, 1),  # BATCH_COUNT
    6: (_INT64, 0),  # STRIDED_BATCH_OFFSET
}
_ROW_MAJOR = 1


@dataclass(frozen=True, slots=True)
class _Operand:
    """A matrix as its layout describes it, column-major or row-major."""

    dtype: torch.dtype
    rows: int
    columns: int
    leading: int
    stride: int
    batch: int
    row_major: bool

    def view(self, s: CpuSession, pointer: int, transposed: int, batched: bool) -> torch.Tensor:
        """As (rows, columns) after the transposition, with the batch in front if ``batched``."""
        rows, columns = (self.columns, self.rows) if transposed else (self.rows, self.columns)
        batch = self.batch if batched else None
        matrix = Matrix(pointer, self.dtype, self.leading, self.stride, batch)
        if not self.row_major:
            return matrix.view(s.memory, rows, columns, transposed)
        if transposed:
            tensor = matrix.view(s.memory, rows, columns)
            return tensor.conj() if transposed == 2 and self.dtype.is_complex else tensor
        return matrix.view(s.memory, rows, columns, 1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A product that can be computed."""

    types: Types
    ops: tuple[int, int]
    a: _Operand
    b: _Operand
    c: _Operand
    d: _Operand
    epilogue: Epilogue
    extra: Extra
    scales: Scales | None  # of 8-bit floats only


_plans: dict[bytes, _Plan] = {}  # by content; a training step asks for the same few again
_MAX_PLANS = 4096


def _plan(desc: list[Any], *layouts: list[Any]) -> _Plan:
    """Raises CallError for a product that cannot be computed, ProtocolError for bad values."""
    key: bytes = msgpack.packb((desc, layouts))
    plan = _plans.get(key)
    if plan is None:
        plan = _read_plan(desc, layouts)
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _read_plan(desc: list[Any], layouts: Sequence[list[Any]]) -> _Plan:
    compute, scale_type, attributes = _shape(desc, 3)
    if type(compute) is not int or type(scale_type) is not int:
        raise ProtocolError("lt_matmul: desc is not [compute type, scale type, attributes]")
    known = _attributes(attributes, _DESC, _HINTS)
    a, b, c, d = (_operand(layout) for layout in layouts)
    kinds = layouts[0][0], layouts[1][0], layouts[3][0], compute
    types = eight_bit_types_of(*kinds) or types_of(*kinds)
    epilogue = EPILOGUES.get(known[7])
    if epilogue is None or known[2] not in (0, 1):
        raise CallError(NOT_SUPPORTED, f"epilogue {known[7]} or pointer mode {known[2]}")
    fits = c.dtype is d.dtype or (d.dtype in FP8 and c.dtype in WIDER)
    if not fits or DTYPES.get(scale_type) is not types.scale:
        raise CallError(NOT_SUPPORTED, f"C of {c.dtype}, D of {d.dtype}, scale type {scale_type}")
    check_op(known[3], known[4])
    extra = Extra(
        bias=known[8], bias_type=_type_or(known[26], d.dtype),
        aux=known[11], aux_leading=known[12], aux_type=_type_or(known[22], d.dtype),
    )  # fmt: skip
    plan = _Plan(
        types, (known[3], known[4]), a, b, c, d, epilogue, extra, _scales(known, types.operand)
    )
    _check_shapes(plan)
    return plan


def _scales(known: dict[int, int], operand: torch.dtype) -> Scales | None:
    given = [known[number] for number in (17, 18, 19, 20, 21, 31, 32)]
    if operand in FP8:
        return Scales(*given)
    if any(given):
        raise CallError(NOT_SUPPORTED, f"scales for matrices of {operand}")
    return None


def _shape(values: list[Any], length: int) -> list[Any]:
    if len(values) != length:
        raise ProtocolError(f"lt_matmul: a descriptor of {len(values)} values, not {length}")
    return values


def _attributes(
    given: Any, forms: Mapping[int, tuple[struct.Struct, int]], hints: set[int]
) -> dict[int, int]:
    """The values by attribute. Raises CallError for one that is set and not understood."""
    values = {number: default for number, (_, default) in forms.items()}
    try:
        for number, data in given:
            if number in forms:
                (values[number],) = forms[number][0].unpack(data)
            elif number not in hints and any(data):
                raise CallError(NOT_SUPPORTED, f"cublasLt attribute {number}")
    except (TypeError, ValueError, struct.error) as error:
        raise ProtocolError(f"lt_matmul: malformed attributes ({error})") from None
    return values


def _operand(layout: list[Any]) -> _Operand:
    kind, rows, columns, leading, attributes = _shape(layout, 5)
    if [type(v) for v in (kind, rows, columns, leading)] != [int] * 4:
        raise ProtocolError("lt_matmul: a layout is not [type, rows, cols, ld, attributes]")
    values = _attributes(attributes, _LAYOUT, set())
    dtype = DTYPES.get(kind)
    if dtype is None or values[1] not in (0, _ROW_MAJOR):
        raise CallError(NOT_SUPPORTED, f"a matrix of type {kind} in order {values[1]}")
    check_sizes(rows, columns, leading, values[5])
    return _Operand(dtype, rows, columns, leading, values[6], values[5], values[1] == _ROW_MAJOR)


def _type_or(kind: int, default: torch.dtype) -> torch.dtype:
    found = default if kind < 0 else DTYPES.get(kind)
    if found is None:
        raise CallError(NOT_SUPPORTED, f"a bias or auxiliary matrix of type {kind}")
    return found


def _check_shapes(p: _Plan) -> None:
    m, k = (p.a.columns, p.a.rows) if p.ops[0] else (p.a.rows, p.a.columns)
    k2, n = (p.b.columns, p.b.rows) if p.ops[1] else (p.b.rows, p.b.columns)
    if k != k2 or any((x.rows, x.columns) != (m, n) for x in (p.c, p.d)):
        raise CallError(INVALID_VALUE, f"shapes do not fit: {m}x{k} by {k2}x{n}")
    if any(x.batch != p.d.batch for x in (p.a, p.b, p.c)):
        raise CallError(INVALID_VALUE, "batch counts differ")
    length = p.d.leading * (m if p.d.row_major else n)
    if p.d.batch > 1 and abs(p.d.stride) < length - p.d.leading + 1:
        raise CallError(NOT_SUPPORTED, "the results of a batch overlap")
    if p.epilogue.extras and (p.d.batch > 1 or p.d.row_major):
        raise CallError(NOT_SUPPORTED, "an epilogue with a batch or a row-major result")


def _matmul(
    s: CpuSession, stream: int, desc: list[Any], alpha: bytes | int, a: int, layout_a: list[Any],
    b: int, layout_b: list[Any], beta: bytes | int, c: int, layout_c: list[Any], d: int,
    layout_d: list[Any], algo: bytes, workspace: int, workspace_bytes: int,
) -> Outputs:  # fmt: skip
    s.check_stream(stream)
    plan = _plan(desc, layout_a, layout_b, layout_c, layout_d)
    if plan.d.rows == 0 or plan.d.columns == 0 or plan.d.batch == 0:
        return None
    batched = plan.d.batch > 1
    left = plan.a.view(s, a, plan.ops[0], batched)
    right = plan.b.view(s, b, plan.ops[1], batched)
    out = plan.d.view(s, d, 0, batched)
    factors = scalar(s.memory, alpha, plan.types.scale), scalar(s.memory, beta, plan.types.scale)
    addend = plan.c.view(s, c, 0, batched) if factors[1] else out
    product = Product(left, right, addend, out, *factors)
    if plan.scales is None:
        plan.epilogue.run(product, s.memory, plan.extra)
    else:
        plan.scales.run(product, plan.epilogue, s.memory, plan.extra)
    return None


def _heuristic(
    s: CpuSession, desc: list[Any], layout_a: list[Any], layout_b: list[Any], layout_c: list[Any],
    layout_d: list[Any], preference: list[Any], requested: int,
) -> Outputs:  # fmt: skip
    """One algorithm, of no choice and without a workspace, where the product can be computed."""
    _plan(desc, layout_a, layout_b, layout_c, layout_d)
    return ([[algorithms.DEFAULT, 0, 1.0]],)


def _algo_check(
    s: CpuSession, desc: list[Any], layout_a: list[Any], layout_b: list[Any], layout_c: list[Any],
    layout_d: list[Any], algo: bytes,
) -> Outputs:  # fmt: skip
    algorithms.check(algo)
    _plan(desc, layout_a, layout_b, layout_c, layout_d)
    return ([[algo, 0, 1.0]],)


HANDLERS: Handlers = {
    "lt_matmul": _matmul,
    "lt_heuristic": _heuristic,
    "lt_algo_check": _algo_check,
    **algorithms.HANDLERS,
}
