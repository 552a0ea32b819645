"""Flash attention's parameters, and the generator that its dropout draws from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mnemosyne.server.devices.cpu.kernels import UnsupportedKernel
from mnemosyne.server.devices.cpu.kernels.flash_params import reader
from mnemosyne.server.devices.cpu.kernels.philox import mix
from mnemosyne.server.devices.cpu.kernels.table import bind

FORWARD, BACKWARD = 472, 648  # sizes of the structures in PyTorch 2.14
HEADS = 96  # where the numbers of heads begin: h, h_k, h_h_k_ratio
NAME = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<32, 128, 128, 4, false, false, "
    "cutlass::half_t, Flash_kernel_traits<32, 128, 128, 4, cutlass::half_t> >, true, false, false, "
    "false, false, false, false, false>(pytorch_flash::Flash_fwd_params)"
)


@dataclass(frozen=True)
class Kernel:
    params: tuple[tuple[int, int], ...]
    demangled: str = NAME
    name: str = "k"


def _packed(at: int = 0, value: int = 0, heads: tuple[int, int, int] = (6, 2, 3)) -> bytes:
    """Parameters with these numbers of heads, and one word at an offset."""
    words = np.zeros(FORWARD // 4, np.uint32)
    words[HEADS // 4 : HEADS // 4 + 3] = heads
    words[at // 4] = value if at else words[0]
    return words.tobytes()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), 0, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        (
            (0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF,
            (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822,
            (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A),
        ),
    ],
)  # fmt: skip
def test_philox_of_seven_rounds_gives_the_published_words(
    counter: tuple[int, int, int, int], key: int, words: tuple[int, int, int, int]
) -> None:
    """Vectors of Random123 (kat_vectors)."""
    x, y, z, w = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in mix(key, (x, y, z, w), 7)) == words


def test_parameters_of_another_version_are_refused_by_the_kernels_name() -> None:
    with pytest.raises(UnsupportedKernel, match=r"464 bytes, expected 472, in kernel .*flash_fwd"):
        bind(Kernel(((0, FORWARD - 8),)))


def test_the_structures_have_the_sizes_of_pytorchs() -> None:
    reader(Kernel(((0, FORWARD),)))
    reader(Kernel(((0, BACKWARD),)), backward=True)


@pytest.mark.parametrize(
    ("at", "what"),
    [(448, "ALiBi"), (396, "capped"), (152, "weights to return"), (264, "keys to append")],
)
def test_what_is_not_offered_is_named(at: int, what: str) -> None:
    with pytest.raises(UnsupportedKernel, match=what):
        reader(Kernel(((0, FORWARD),)))(_packed(at, 1))


def test_heads_that_do_not_divide_are_refused() -> None:
    read = reader(Kernel(((0, FORWARD),)))
    assert read(_packed()).h_h_k_ratio == 3
    with pytest.raises(UnsupportedKernel, match="6 heads of queries, 4 of keys"):
        read(_packed(heads=(6, 4, 1)))
