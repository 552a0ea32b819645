"""cub's algorithms for runs of equal keys: unique keys, their counts, scans within runs.

How this works. A key begins a run if it differs from the one before; NaN differs from itself. How
many runs there are is written to the device's memory, with what is found of each run.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import Unpack, unpacker
from .names import dtype, pointed, template_arguments

Read = Callable[[Memory, bytes, int], Tensor]

_PAIR = 16  # a transform iterator over a pointer; a constant iterator: a counter, the constant
_WORD = struct.Struct("<Q")
_REVERSED = re.compile(r"\breverse_iterator<([\w ]+\*)>")
_TRUTH = "LoadBoolOp"  # reads a byte as a truth value


def reader(kernel: KernelInfo, iterator: str, place: int = 0) -> Read:
    """Reads keys through an argument that comes as bytes: (memory, the argument, their number)."""
    truth = _TRUTH in iterator
    kind = torch.uint8 if truth else pointed(iterator)
    if kernel.params[place][1] != (_PAIR if truth else 8):
        raise UnsupportedKernel(f"keys through {iterator}")

    def read(memory: Memory, source: bytes, count: int) -> Tensor:
        keys = memory.view(_WORD.unpack_from(source)[0], kind, (count,), (1,))
        return keys != 0 if truth else keys

    return read


def run_starts(keys: Tensor) -> Tensor:
    """The places where runs begin."""
    changes = (keys[1:] != keys[:-1]).nonzero().flatten() + 1
    return torch.cat((changes.new_zeros(min(1, len(keys))), changes))


def _bind_unique(kernel: KernelInfo) -> Run:
    """DeviceSelectSweepKernel without flags: (keys, -, unique, their number, ..., n, ...).

    More keys than an int can count come in several launches, which `streaming` tells of: whether
    this is the first, the last.
    """
    arguments = template_arguments(kernel.demangled, "DeviceSelectSweepKernel")
    if "equal_to<void>" not in arguments[7]:
        raise UnsupportedKernel(f"unique elements by {arguments[7]}")
    read = reader(kernel, arguments[1])
    kind, counter = pointed(arguments[3]), pointed(arguments[4])
    unpack = unpacker(kernel, "sxQQxxxixsx")

    def run(launch: Launch) -> None:
        source, target, number, count, streaming = unpack(launch.args)
        if streaming[:2] != b"\1\1":
            raise UnsupportedKernel("more than 2**31 keys")
        view = launch.memory.view
        keys = read(launch.memory, source, count)
        found = keys[run_starts(keys)]
        view(target, kind, found.shape, (1,)).copy_(found)
        view(number, counter, (), ()).fill_(len(found))

    return run


def _bind_unique_by_key(kernel: KernelInfo) -> Run:
    """DeviceUniqueByKeySweepKernel: (keys, values, unique keys, their first values, number, ...).

    Values may be those of a counting iterator, which holds its first one.
    """
    arguments = template_arguments(kernel.demangled, "DeviceUniqueByKeySweepKernel")
    key, value = pointed(arguments[1]), pointed(arguments[4])
    counting = "counting_iterator<" in arguments[2]
    if (not counting and pointed(arguments[2]) != value) or "equal_to<" not in arguments[7]:
        raise UnsupportedKernel(f"unique keys by {arguments[7]}, values {arguments[2]}")
    if pointed(arguments[3]) != key:
        raise UnsupportedKernel("keys of two types")
    counter = pointed(arguments[5])
    unpack = unpacker(kernel, "Q" + ("n" if counting else "Q") + "QQQxxnxx")

    def run(launch: Launch) -> None:
        keys_at, values_at, keys_out, values_out, number, count = unpack(launch.args)
        view = launch.memory.view
        keys = view(keys_at, key, (count,), (1,))
        starts = run_starts(keys)
        values = starts + values_at if counting else view(values_at, value, (count,), (1,))[starts]
        view(keys_out, key, starts.shape, (1,)).copy_(keys[starts])
        view(values_out, value, starts.shape, (1,)).copy_(values)
        view(number, counter, (), ()).fill_(len(starts))

    return run


def _bind_run_lengths(kernel: KernelInfo) -> Run:
    """DeviceReduceByKeyKernel of ones: (keys, unique, ones, lengths, number, ..., n)."""
    arguments = template_arguments(kernel.demangled, "DeviceReduceByKeyKernel")
    if "rle::encode::" not in arguments[0] or "equal_to<void>" not in arguments[7]:
        raise UnsupportedKernel(f"sums by key with {arguments[7]}")
    read = reader(kernel, arguments[1])
    unique, lengths, counter = (pointed(arguments[n]) for n in (2, 4, 5))
    unpack = unpacker(kernel, "sQsQQxxxxn")

    def run(launch: Launch) -> None:
        source, keys_out, one, lengths_out, number, count = unpack(launch.args)
        view = launch.memory.view
        keys = read(launch.memory, source, count)
        starts = run_starts(keys)
        sizes = torch.diff(starts, append=starts.new_tensor([count]))
        view(keys_out, unique, starts.shape, (1,)).copy_(keys[starts])
        view(lengths_out, lengths, starts.shape, (1,)).copy_(sizes * _WORD.unpack_from(one, 8)[0])
        view(number, counter, (), ()).fill_(len(starts))

    return run


def _bind_scan_by_key(kernel: KernelInfo) -> Run:
    """DeviceScanByKeyKernel, inclusive: (keys, -, values, out, ..., n).

    Either places in a run counted from one, or the greatest value so far, backwards.
    """
    arguments = template_arguments(kernel.demangled, "DeviceScanByKeyKernel")
    keys_type, values_type, out_type, _, equal, operator, initial = arguments[1:8]
    if "equal_to<void>" not in equal or not initial.endswith("NullType"):
        raise UnsupportedKernel(f"a scan by key with {equal}, {initial}")
    unpack = unpacker(kernel, "QxsQxxxxxn")
    if "constant_iterator<" in values_type and "::plus<" in operator:
        return _multiples(unpack, pointed(keys_type), pointed(out_type), kernel)
    if "maximum<" in operator:
        return _greatest(unpack, _of_reversed(keys_type), _of_reversed(out_type), values_type)
    raise UnsupportedKernel(f"a scan by key of {values_type} with {operator}")


def _of_reversed(name: str) -> torch.dtype:
    match = _REVERSED.search(name)
    if match is None:
        raise UnsupportedKernel(f"an iterator {name}")
    return dtype(match[1])


def _multiples(unpack: Unpack, key: torch.dtype, out: torch.dtype, kernel: KernelInfo) -> Run:
    if kernel.params[2][1] != _PAIR:
        raise UnsupportedKernel("a constant iterator of another size")
    fields = struct.Struct("<8xi4x" if out == torch.int32 else "<8xq")

    def run(launch: Launch) -> None:
        keys_at, constant, target, count = unpack(launch.args)
        keys = launch.memory.view(keys_at, key, (count,), (1,))
        starts = run_starts(keys)
        sizes = torch.diff(starts, append=starts.new_tensor([count]))
        places = torch.arange(1, count + 1) - starts.repeat_interleave(sizes)
        (factor,) = fields.unpack(constant)
        launch.memory.view(target, out, (count,), (1,)).copy_(places * factor)

    return run


def _greatest(unpack: Unpack, key: torch.dtype, out: torch.dtype, values_type: str) -> Run:
    """A reverse iterator's first element lies before the address it holds."""
    value = _of_reversed(values_type)

    def run(launch: Launch) -> None:
        keys_end, values_end, target_end, count = unpack(launch.args)
        (values_end,) = _WORD.unpack(values_end)
        sides = ((keys_end, key), (values_end, value), (target_end, out))
        keys, values, target = (
            launch.memory.view(end - count * kind.itemsize, kind, (count,), (1,))
            for end, kind in sides
        )
        target.copy_(_running_greatest(keys.flip(0), values.flip(0)).flip(0))

    return run


def _running_greatest(keys: Tensor, values: Tensor) -> Tensor:
    """Every run is lifted above the one before it, so that one scan does for all."""
    starts = run_starts(keys)
    runs = torch.repeat_interleave(torch.diff(starts, append=starts.new_tensor([len(keys)])))
    least, most = int(values.min()), int(values.max())
    step = most - least + 1
    if step * len(starts) >= 1 << 62:
        raise UnsupportedKernel("values too great for a scan by key")
    lifted = values.long() - least + runs * step
    return lifted.cummax(0).values - runs * step + least


def _bind_scratch(kernel: KernelInfo) -> Run:
    """Prepares scratch memory."""

    def run(launch: Launch) -> None:
        return None

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bDeviceSelectSweepKernel<.*equal_to<", _bind_unique),
    (r"\bDeviceUniqueByKeySweepKernel<(?!.*\bunique_dim_cuda_template<)", _bind_unique_by_key),
    (r"\bDeviceReduceByKeyKernel<", _bind_run_lengths),
    (r"\bDeviceScanByKeyKernel<(?!.*BlockIdxToKey)", _bind_scan_by_key),
    (r"\bDeviceScanByKeyInitKernel<", _bind_scratch),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
