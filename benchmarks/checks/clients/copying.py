"""Copies bytes there, about and back in every way, and counts the ways that changed them."""

from __future__ import annotations

import ctypes
from itertools import product

import talk
import torch
from torch import Tensor

FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: words differ wherever a piece may have gone astray
WIDTH, HEIGHT, PITCH = 1000, 37, 1536  # bytes, rows, bytes: of 2D copies
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # cudaMemcpyKind
FILL = 0xA5


def pattern(count: int) -> Tensor:
    """Bytes (count,) that depend on their place."""
    return (torch.arange(count // 8 + 1) * FACTOR).view(torch.uint8)[:count]


def copy(count: int) -> talk.Answer:
    """There, about and back: pinned and pageable, async and sync."""
    source = pattern(count)
    ways = list(product((True, False), (True, False)))
    wrong = [
        f"{'pinned' if pinned else 'pageable'} {'async' if later else 'sync'}"
        for pinned, later in ways
        if not torch.equal(there_and_back(source, pinned, later), source)
    ]
    return {"wrong": wrong, "ways": len(ways)}


def there_and_back(source: Tensor, pinned: bool, later: bool) -> Tensor:
    source = source.pin_memory() if pinned else source
    there = torch.empty(len(source), dtype=torch.uint8, device="cuda")
    back = torch.empty(len(source), dtype=torch.uint8, pin_memory=pinned)
    there.copy_(source, non_blocking=later)
    about = there.clone()
    there.zero_()
    back.copy_(about, non_blocking=later)
    torch.cuda.synchronize()
    return back


def rows() -> talk.Answer:
    """2D copies, each into the middle of something that must stay as it was."""
    source = pattern(PITCH * HEIGHT)
    expected = torch.zeros(HEIGHT, PITCH, dtype=torch.uint8)
    expected[:, :WIDTH] = source.view(HEIGHT, PITCH)[:, :WIDTH]
    there, about = (torch.zeros(PITCH * HEIGHT, dtype=torch.uint8, device="cuda") for _ in range(2))
    back = torch.zeros(PITCH * HEIGHT, dtype=torch.uint8)
    for target, origin, kind in (
        (there, source, TO_DEVICE), (about, there, ON_DEVICE), (back, about, TO_HOST),
    ):  # fmt: skip
        call("cudaMemcpy2D", *place(target), *place(origin), WIDTH, HEIGHT, kind)
    torch.cuda.synchronize()
    ways = {"H2D": there.cpu(), "D2D": about.cpu(), "D2H": back}
    wrong = [
        way for way, found in ways.items() if not torch.equal(found.view(HEIGHT, PITCH), expected)
    ]
    columns = source.view(HEIGHT, PITCH).cuda()[:, ::3]
    if not torch.equal(columns.cpu(), source.view(HEIGHT, PITCH)[:, ::3]):
        wrong.append("strided tensor")
    return {"wrong": wrong, "ways": len(ways) + 1}


def fill() -> talk.Answer:
    """memset, flat and of rows; and a tensor set to zero."""
    flat, rows, zeroed = (
        torch.ones(PITCH * HEIGHT, dtype=torch.uint8, device="cuda") for _ in range(3)
    )
    call("cudaMemset", flat.data_ptr() + 1, FILL, WIDTH)
    call("cudaMemset2D", *place(rows), FILL, WIDTH, HEIGHT)
    zeroed[5:-5].zero_()
    expected = torch.ones(3, HEIGHT, PITCH, dtype=torch.uint8)
    expected[0].view(-1)[1 : 1 + WIDTH] = FILL
    expected[1, :, :WIDTH] = FILL
    expected[2].view(-1)[5:-5] = 0
    found = torch.stack([one.cpu().view(HEIGHT, PITCH) for one in (flat, rows, zeroed)])
    names = ("memset", "memset2D", "zero_")
    wrong = [
        name for name, a, b in zip(names, found, expected, strict=True) if not torch.equal(a, b)
    ]
    return {"wrong": wrong, "ways": len(names)}


def place(tensor: Tensor) -> tuple[int, int]:
    """Address and pitch."""
    return tensor.data_ptr(), PITCH


def call(name: str, *arguments: int) -> None:
    """A function of the CUDA runtime, as the process has it; raises on its error."""
    code = getattr(RUNTIME, name)(*map(ctypes.c_size_t, arguments))
    if code != 0:
        raise RuntimeError(f"{name}: CUDA error {code}")


talk.device()
RUNTIME = ctypes.CDLL(None)
talk.serve({"copy": copy, "rows": rows, "fill": fill})
