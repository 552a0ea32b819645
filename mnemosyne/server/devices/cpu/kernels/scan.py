"""Running sums, products and extrema: PyTorch's scans along a dimension, and CUB's of a vector.

How this works. CUB's scans keep their blocks' progress in scratch memory that is not looked at
here. What a scan does follows from its operator: a class of the standard library, or a lambda of
logcumsumexp. 16-bit floats are added in float32 and rounded at the end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, pointed, template_arguments
from .operations import OPMATH
from .structs import scalar

Scan = Callable[[Tensor, int], Tensor]

_POINTER = struct.Struct("<Q")
_ITERATOR = 16  # a transform iterator: a pointer, and a functor without members


def _log_sums(x: Tensor, dim: int) -> Tensor:
    return torch.logcumsumexp(x, dim)


#: By what the operator's name has in it: the scan, and what joins a first value to its results.
_SCANS: tuple[tuple[str, Scan, Callable[[Tensor, Tensor], Tensor]], ...] = (
    ("::plus<", torch.cumsum, torch.add),
    ("::SumOp<", torch.cumsum, torch.add),
    ("cub::Sum", torch.cumsum, torch.add),
    ("::multiplies<", torch.cumprod, torch.mul),
    ("logcumsumexp", _log_sums, torch.logaddexp),
)
#: By comparison: a value takes the place of the extremum so far if it compares so with it.
_EXTREMA: dict[str, Callable[[Tensor, int], tuple[Tensor, Tensor]]] = {
    "std::greater_equal": torch.cummax,
    "std::less_equal": torch.cummin,
}


def _find(operator: str) -> tuple[Scan, Callable[[Tensor, Tensor], Tensor]]:
    for name, scan, join in _SCANS:
        if name in operator:
            return scan, join
    raise UnsupportedKernel(f"a scan with {operator}")


def _bind_innermost(kernel: KernelInfo) -> Run:
    """tensor_kernel_scan_innermost_dim: (out, in, rows, row size, threads, first value, ...)."""
    kind, operator = template_arguments(kernel.demangled, "tensor_kernel_scan_innermost_dim")
    unpack = unpacker(kernel, "QQIIIss")

    def shape(args: bytes) -> tuple[int, int, tuple[int, ...]]:
        target, source, rows, size, *_ = unpack(args)
        return source, target, (rows, size, 1)

    return _along(dtype(kind), operator, shape)


def _bind_outer(kernel: KernelInfo) -> Run:
    """tensor_kernel_scan_outer_dim: (out, in, outer rows, inner rows, row size, ...)."""
    kind, _, operator = template_arguments(kernel.demangled, "tensor_kernel_scan_outer_dim")
    unpack = unpacker(kernel, "QQIIIss")

    def shape(args: bytes) -> tuple[int, int, tuple[int, ...]]:
        target, source, outer, inner, size, *_ = unpack(args)
        return source, target, (outer, size, inner)

    return _along(dtype(kind), operator, shape)


def _along(
    kind: torch.dtype, operator: str, shape: Callable[[bytes], tuple[int, int, tuple[int, ...]]]
) -> Run:
    """Scans the middle dimension of contiguous tensors."""
    scan, _ = _find(operator)

    def run(launch: Launch) -> None:
        source, target, sizes = shape(launch.args)
        numbers = _block(launch.memory, source, kind, sizes)
        _block(launch.memory, target, kind, sizes).copy_(scan(_wide(numbers), 1))

    return run


def _bind_innermost_extrema(kernel: KernelInfo) -> Run:
    """..._innermost_dim_with_indices: (in, out, indices, rows, row size, ...)."""
    name = "tensor_kernel_scan_innermost_dim_with_indices"
    unpack = unpacker(kernel, "QQQii" + "s" * (len(kernel.params) - 5))

    def shape(args: bytes) -> tuple[int, int, int, tuple[int, ...]]:
        source, target, indices, rows, size, *_ = unpack(args)
        return source, target, indices, (rows, size, 1)

    return _extrema(template_arguments(kernel.demangled, name), shape)


def _bind_outer_extrema(kernel: KernelInfo) -> Run:
    """..._outer_dim_with_indices: (in, out, indices, outer rows, inner rows, row size, ...)."""
    name = "tensor_kernel_scan_outer_dim_with_indices"
    unpack = unpacker(kernel, "QQQIIIss")

    def shape(args: bytes) -> tuple[int, int, int, tuple[int, ...]]:
        source, target, indices, outer, inner, size, *_ = unpack(args)
        return source, target, indices, (outer, size, inner)

    return _extrema(template_arguments(kernel.demangled, name), shape)


def _extrema(
    arguments: Sequence[str], shape: Callable[[bytes], tuple[int, int, int, tuple[int, ...]]]
) -> Run:
    """``arguments`` are those of the template: the element's type and the comparison."""
    kind, operator = arguments
    element, scan = dtype(kind), _EXTREMA.get(operator.partition("<")[0])
    if scan is None:
        raise UnsupportedKernel(f"running extrema by {operator}")

    def run(launch: Launch) -> None:
        source, target, indices, sizes = shape(launch.args)
        memory = launch.memory
        values, places = scan(_block(memory, source, element, sizes), 1)
        _block(memory, target, element, sizes).copy_(values)
        _block(memory, indices, torch.int64, sizes).copy_(places)

    return run


def _bind_vector(kernel: KernelInfo) -> Run:
    """CUB's DeviceScanKernel: (in, out, state, tile, operator, first value, elements).

    Without a first value (NullType) the scan includes each element itself.
    """
    arguments = template_arguments(kernel.demangled, "DeviceScanKernel")
    source_type, target_type, operator, initial, total = (arguments[n] for n in (1, 2, 4, 5, 7))
    if kernel.params[0][1] not in (8, _ITERATOR):
        raise UnsupportedKernel(f"a scan of {source_type}")
    scan, join = _find(operator)
    read, target_kind = _reader(source_type, dtype(total)), pointed(target_type)
    unpack = unpacker(kernel, "sQsissn")
    first = _initial(kernel, initial, dtype(total))

    def run(launch: Launch) -> None:
        source, target, _, _, _, _, count = unpack(launch.args)
        numbers = read(launch.memory, _POINTER.unpack_from(source)[0], count)
        results = scan(_wide(numbers), 0)
        if first is not None:
            start = first(launch)
            results = torch.cat((start, join(results[:-1], start)))
        launch.memory.view(target, target_kind, (count,), (1,)).copy_(results)

    return run


def _reader(iterator: str, total: torch.dtype) -> Callable[[Memory, int, int], Tensor]:
    """What reads the input: elements, or ones where a mask is set."""
    if "CountMaskOp" in iterator:
        return lambda memory, at, count: (memory.view(at, torch.uint8, (count,), (1,)) != 0).to(
            total
        )
    kind = pointed(iterator)
    return lambda memory, at, count: memory.view(at, kind, (count,), (1,)).to(total)


def _initial(kernel: KernelInfo, name: str, kind: torch.dtype) -> Callable[[Launch], Tensor] | None:
    """The first value: InputValue is a flag, then the value or where it will be in memory."""
    if name.endswith("NullType"):
        return None
    at, size = kernel.params[5]
    if "InputValue<" not in name or size != 16 or kind.itemsize > 8:
        raise UnsupportedKernel(f"a scan that starts with {name}")

    def read(launch: Launch) -> Tensor:
        if launch.args[at]:
            return launch.memory.view(
                _POINTER.unpack_from(launch.args, at + 8)[0], kind, (1,), (1,)
            ).clone()
        return torch.tensor([scalar(launch.args, at + 8, kind)], dtype=kind)

    return read


def _bind_nothing(kernel: KernelInfo) -> Run:
    """Prepares scratch memory of a scan."""

    def run(launch: Launch) -> None:
        return None

    return run


def _bind_sums(kernel: KernelInfo) -> Run:
    """final_scan_kernel: (in, out, the blocks' sums, elements, rounds): running sums."""
    kind = dtype(template_arguments(kernel.demangled, "final_scan_kernel")[2])
    unpack = unpacker(kernel, "QQQqi")

    def run(launch: Launch) -> None:
        source, target, _, count, _ = unpack(launch.args)
        numbers = launch.memory.view(source, kind, (count,), (1,))
        launch.memory.view(target, kind, (count,), (1,)).copy_(torch.cumsum(_wide(numbers), 0))

    return run


def _bind_block_sums(kernel: KernelInfo) -> Run:
    """calc_block_sums: what the scan adds up itself; of nonzero elements it is another thing."""
    if template_arguments(kernel.demangled, "calc_block_sums")[2] != "false":
        raise UnsupportedKernel("counts of nonzero elements by blocks")
    return _bind_nothing(kernel)


def _block(memory: Memory, at: int, kind: torch.dtype, sizes: tuple[int, ...]) -> Tensor:
    return memory.view(at, kind, sizes, (sizes[1] * sizes[2], sizes[2], 1))


def _wide(numbers: Tensor) -> Tensor:
    return numbers.to(OPMATH.get(numbers.dtype, numbers.dtype))


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\btensor_kernel_scan_innermost_dim<", _bind_innermost),
        (r"\btensor_kernel_scan_outer_dim<", _bind_outer),
        (r"\btensor_kernel_scan_innermost_dim_with_indices<", _bind_innermost_extrema),
        (r"\btensor_kernel_scan_outer_dim_with_indices<", _bind_outer_extrema),
        (r"\bDeviceScanInitKernel<", _bind_nothing),
        (r"\bDeviceScanKernel<", _bind_vector),
        (r"\bfinal_scan_kernel<", _bind_sums),
        (r"\bcalc_block_sums<", _bind_block_sums),
    )
]
