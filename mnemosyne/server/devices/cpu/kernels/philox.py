"""Philox4x32-10, the generator of PyTorch's CUDA kernels, for many threads at once.

How this works. Every CUDA thread has its own sequence: its number fills the upper half of a
128-bit counter, the number of the call the lower half, and the seed is the key. One call gives four
32-bit words. So the same seed, offset and launch shape give the same numbers as on a GPU, whatever
order they are computed in. Lanes (thread, call) are computed in blocks that stay in the cache.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from . import Memory, UnsupportedKernel

Words = npt.NDArray[np.uint32]
Lanes = npt.NDArray[np.uint64]
Counter = tuple[Lanes, Lanes, Lanes, Lanes]  # 32 bits in each, the lowest first

_STATE = struct.Struct("<QQQ?7x")  # PhiloxCudaState

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Seed:
    """Where a kernel's random numbers begin: `offset` is how many words each thread skips."""

    key: int
    offset: int


def read_seed(state: bytes, memory: Memory) -> Seed:
    """Read a PhiloxCudaState: values, or in a captured graph the addresses of values."""
    seed, offset, within, captured = _STATE.unpack(state)
    if captured:
        seed = int(memory.view(seed, torch.int64, (), ()).item())
        offset = int(memory.view(offset, torch.int64, (), ()).item()) + within
    if offset % 4:
        raise UnsupportedKernel(f"random numbers from offset {offset}, within a group of four")
    return Seed(seed % (1 << 64), offset)


def words(seed: Seed, threads: int, calls: int) -> Words:
    """Give what each of `threads` gets in its first `calls` calls: (calls, threads, 4) words."""
    found = np.empty((calls * threads, 4), np.uint32)
    for first, lanes in _blocks(calls * threads):
        call, thread = np.divmod(lanes, np.uint64(threads))
        _fill(found[first : first + len(lanes)], seed, call, thread)
    return found.reshape(calls, threads, 4)


def _blocks(count: int) -> Iterator[tuple[int, Lanes]]:
    for first in range(0, count, _BLOCK):
        yield first, np.arange(first, min(first + _BLOCK, count), dtype=np.uint64)


def _fill(place: Words, seed: Seed, call: Lanes, thread: Lanes) -> None:
    counter = call + np.uint64(seed.offset // 4)
    mixed = mix(seed.key, (*halves(counter), *halves(thread)), _ROUNDS)
    for column, value in enumerate(mixed):
        place[:, column] = value


def halves(values: Lanes) -> tuple[Lanes, Lanes]:
    """The lower and the upper 32 bits."""
    return values & _LOW, values >> _HALF


def mix(key: int, counter: Counter, rounds: int) -> Counter:
    """Philox4x32 of counters: in each round two products mix them, and the key moves on."""
    x, y, z, w = counter
    for turn in range(rounds):
        first, second = (_key(key, half, turn) for half in (0, 1))
        low, high = z * _MULTIPLIERS[1], x * _MULTIPLIERS[0]
        x, y = (low >> _HALF) ^ y ^ first, low & _LOW
        z, w = (high >> _HALF) ^ w ^ second, high & _LOW
    return x, y, z, w


def _key(key: int, half: int, turn: int) -> Any:
    return np.uint64(((key >> 32 * half) + turn * _STEPS[half]) & 0xFFFFFFFF)


def uniform(found: Words) -> npt.NDArray[np.float32]:
    """Floats in (0, 1], as curand_uniform makes them: both steps are exact but the rounding."""
    values = found.astype(np.float32)
    values *= np.float32(2.0**-32)
    values += np.float32(2.0**-33)
    return values


def uniform_double(found: Words) -> npt.NDArray[np.float64]:
    """Doubles in (0, 1], from two words each."""
    pairs = found.astype(np.uint64)
    bits = pairs[..., 0::2] ^ (pairs[..., 1::2] << np.uint64(53 - 32))
    values: npt.NDArray[np.float64] = bits * 2.0**-53 + 2.0**-54
    return values


def long_words(found: Words) -> Lanes:
    """64-bit integers, from two words each, the first one the upper half."""
    pairs = found.astype(np.uint64)
    values: Lanes = (pairs[..., 0::2] << _HALF) | pairs[..., 1::2]
    return values


def normal(found: Words) -> npt.NDArray[np.float32]:
    """Standard normal floats, two from each pair of words (Box and Muller)."""
    turn = np.float32(2.0**-32) * np.float32(6.2831855)
    radius = np.sqrt(np.float32(-2.0) * np.log(uniform(found[..., 0::2])))
    angle = found[..., 1::2].astype(np.float32) * np.float64(turn) + np.float64(turn / 2)
    return _around(radius, angle.astype(np.float32)).astype(np.float32)


def normal_double(found: Words) -> npt.NDArray[np.float64]:
    """Standard normal doubles, two from four words."""
    pairs = found.astype(np.uint64)
    bits = pairs[..., 0::2] ^ (pairs[..., 1::2] << np.uint64(53 - 32))
    radius = np.sqrt(-2.0 * np.log(bits[..., 0:1] * 2.0**-53 + 2.0**-54))
    angle = (bits[..., 1:2] * 2.0**-52 + 2.0**-53) * np.pi
    return _around(radius, angle).astype(np.float64)


def _around(
    radius: npt.NDArray[np.floating[Any]], angle: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.floating[Any]]:
    """Sine and cosine parts, alternating."""
    parts = np.stack((np.sin(angle) * radius, np.cos(angle) * radius), axis=-1)
    return parts.reshape(*parts.shape[:-2], -1)
