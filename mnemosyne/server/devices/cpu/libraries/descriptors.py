"""Descriptors of cuSPARSE: the arguments that made and set them, and what they stand for."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Routine, row
from mnemosyne.server.devices.cpu.matrices import DTYPES
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import LibraryObject, Outputs

warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")

_INDICES = {2: torch.int32, 3: torch.int64}  # cusparseIndexType_t
_COLUMNS_FIRST = 1  # CUSPARSE_ORDER_COL
#: cusparseSpMatAttribute_t
_FILL_MODE, _DIAG_TYPE = 0, 1
#: What a matrix is until it is set otherwise.
_PLAIN = {"batchCount": 1, "fillMode": 0, "diagType": 0, "type": 0, "base": 0}
_HALVES = (torch.float16, torch.bfloat16)


def describes(kind: str) -> Routine:
    """Makes a descriptor of the call's arguments, or changes one."""

    def routine(s: CpuSession, a: Arguments) -> Outputs:
        given = vars(a).copy()
        found: LibraryObject = given.pop(kind)
        found.value = Arguments(**{**_PLAIN, **vars(found.value or Arguments()), **given})
        return None

    return routine


def set_attribute(s: CpuSession, a: Arguments) -> Outputs:
    name = {_FILL_MODE: "fillMode", _DIAG_TYPE: "diagType"}.get(a.attribute)
    if name is None:
        raise CallError(NOT_SUPPORTED, f"attribute {a.attribute} of a sparse matrix")
    setattr(a.sp.value, name, int.from_bytes(a.data, "little"))
    return None


def element(code: int) -> torch.dtype:
    """Of a cudaDataType. Raises CallError."""
    found = DTYPES.get(code)
    if found is None:
        raise CallError(NOT_SUPPORTED, f"matrices of type {code}")
    return found


def computed(tensor: torch.Tensor) -> torch.Tensor:
    """In the type that it is computed in: single precision for the half ones."""
    return tensor.float() if tensor.dtype in _HALVES else tensor


def number(s: CpuSession, value: bytes | int, kind: torch.dtype) -> Any:
    """A scalar from the host, or from device memory."""
    data = s.memory.read(value, kind.itemsize) if isinstance(value, int) else value
    if len(data) != kind.itemsize:
        raise CallError(INVALID_VALUE, f"a scalar of {len(data)} bytes, not {kind.itemsize}")
    return torch.frombuffer(bytearray(data), dtype=kind).item()


@dataclass(frozen=True, slots=True)
class Sparse:
    """One matrix: where its elements are, from 0, and a view of their values."""

    rows: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, int]

    def operated(self, op: int) -> torch.Tensor:
        """op of it, as a sparse tensor."""
        places = torch.stack([self.columns, self.rows] if op else [self.rows, self.columns])
        values = computed(self.values)
        values = values.conj().resolve_conj() if op == 2 else values
        shape = self.shape[::-1] if op else self.shape
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=True)


def sparse(s: CpuSession, found: LibraryObject, batch: int = 0) -> Sparse:
    """The matrix of a descriptor, or one of several. Raises CallError for impossible indices."""
    d, kind = found.value, element(found.value.valueType)
    step = getattr(d, "valuesStride", 0) * batch
    index = _index(d.idxType)
    columns = row(s, d.colInd + step * index.itemsize, index, d.nnz).long() - d.idxBase
    if hasattr(d, "rowOffsets"):
        offsets = _index(d.offsetsType)
        at = d.rowOffsets + d.offsetsStride * batch * offsets.itemsize if batch else d.rowOffsets
        rows = rows_of(row(s, at, offsets, d.rows + 1), d.nnz)
    else:
        rows = row(s, d.rowInd, index, d.nnz).long() - d.idxBase
    check_places(rows, columns, d.rows, d.cols)
    values = row(s, d.values + step * kind.itemsize, kind, d.nnz)
    return Sparse(rows, columns, values, (d.rows, d.cols))


def _index(code: int) -> torch.dtype:
    found = _INDICES.get(code)
    if found is None:
        raise CallError(NOT_SUPPORTED, f"indices of type {code}")
    return found


def rows_of(offsets: torch.Tensor, count: int) -> torch.Tensor:
    """The row of each element, by where the rows begin."""
    lengths = offsets.long().diff()
    if (lengths < 0).any() or int(lengths.sum()) != count:
        raise CallError(INVALID_VALUE, f"offsets of rows that do not come to {count} elements")
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths)


def check_places(rows: torch.Tensor, columns: torch.Tensor, height: int, width: int) -> None:
    """Raises CallError unless they lie in the matrix."""
    for found, most in (rows, height), (columns, width):
        if found.numel() and (int(found.min()) < 0 or int(found.max()) >= most):
            raise CallError(INVALID_VALUE, f"an index outside a matrix of {height} x {width}")


def dense(s: CpuSession, found: LibraryObject, batch: int = 0) -> torch.Tensor:
    """The matrix of a descriptor, or one of several."""
    d, kind = found.value, element(found.value.valueType)
    steps = (1, d.ld) if d.order == _COLUMNS_FIRST else (d.ld, 1)
    at = d.values + getattr(d, "stride", 0) * batch * kind.itemsize
    return s.memory.view(at, kind, (d.rows, d.cols), steps)


def vector(s: CpuSession, found: LibraryObject) -> torch.Tensor:
    d = found.value
    return row(s, d.values, element(d.valueType), d.size)
