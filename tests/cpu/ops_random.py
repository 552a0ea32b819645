"""Random numbers: what a GPU's kernels give, against Philox written out in plain Python.

On the CPU a case computes what the GPU must give for the same seed, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]

SEED = 0x123456789ABCDEF
SIZES = (1, 5, 300, 1000, 3_000_001)
LOW = 0xFFFFFFFF


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Logarithms and sines are those of another library."""
    close = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 1e-2)}
    floating = wanted.is_floating_point() or wanted.is_complex()
    rtol, atol = close.get(wanted.dtype, (2e-5, 1e-5)) if floating else (0, 0)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def _words(thread: int, call: int) -> list[int]:
    """The four words of one call of one thread (Salmon et al., 2011)."""
    counter = [call & LOW, call >> 32, thread & LOW, thread >> 32]
    key = [SEED & LOW, SEED >> 32]
    for _ in range(10):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            high >> 32 ^ counter[1] ^ key[0],
            high & LOW,
            low >> 32 ^ counter[3] ^ key[1],
            low & LOW,
        ]
        key = [key[0] + 0x9E3779B9 & LOW, key[1] + 0xBB67AE85 & LOW]
    return counter


def _threads(count: int) -> int:
    """How many threads the kernels start for so many elements."""
    device = torch.cuda.get_device_properties(0)
    blocks = device.multi_processor_count * (device.max_threads_per_multi_processor // 256)
    return 256 * min(blocks, -(-count // 256))


def _place(element: int, count: int, width: int = 4) -> tuple[list[int], int]:
    """The words of the call that an element comes from, and which number of the call it is."""
    threads = _threads(count)
    call, rest = divmod(element, threads * width)
    number, thread = divmod(rest, threads)
    return _words(thread, call), number


def _float(word: int) -> float:
    whole = torch.tensor(float(word), dtype=torch.float64).to(torch.float32)
    return float(whole * 2.0**-32 + torch.tensor(2.0**-33))


def _uniform(element: int, count: int) -> float:
    words, number = _place(element, count)
    value = _float(words[number])
    return 0.0 if value == 1.0 else value


def _bits(words: list[int], number: int) -> int:
    return words[2 * number] ^ words[2 * number + 1] << 21


def _double(element: int, count: int) -> float:
    words, number = _place(element, count, 2)
    return _bits(words, number) * 2.0**-53 + 2.0**-54


def _normal(element: int, count: int) -> float:
    words, number = _place(element, count)
    u, v = (words[number // 2 * 2 + at] * 2.0**-32 + 2.0**-33 for at in (0, 1))
    part = (math.sin, math.cos)[number % 2]
    return math.sqrt(-2 * math.log(u)) * part(2 * math.pi * v)


def _normal_double(element: int, count: int) -> float:
    words, number = _place(element, count, 2)
    u = _bits(words, 0) * 2.0**-53 + 2.0**-54
    v = _bits(words, 1) * 2.0**-53 + 2.0**-54
    return math.sqrt(-2 * math.log(u)) * (math.sin, math.cos)[number](2 * math.pi * v)


def _integer(element: int, count: int) -> int:
    words, number = _place(element, count)
    return words[number]


def _exponential(element: int, count: int) -> float:
    words, number = _place(element, count)
    return -math.log(_float(words[number])) / 1.5


def _some(count: int) -> list[int]:
    """Elements to look at: all of a small tensor, some of a large one."""
    near = range(min(count, 300))
    far = (count // 3, count // 2, 1_081_343, 1_081_344, 2_162_690, count - 1)
    return [*near, *(at for at in far if 300 <= at < count)]


def _filled(
    fill: Callable[[torch.Tensor], torch.Tensor],
    expected: Callable[[int, int], float],
    kind: torch.dtype = torch.float32,
) -> Case:
    """Compare a tensor that `fill` has filled with what each element must be."""

    def case(device: torch.device) -> Tensors:
        results = []
        for count in SIZES:
            if device.type == "cpu":
                values = [expected(at, count) for at in _some(count)]
                results.append(torch.tensor(values, dtype=kind))
                continue
            torch.cuda.manual_seed(SEED)
            results.append(fill(torch.empty(count, device=device, dtype=kind))[_some(count)])
        return results

    return case


def _strided(device: torch.device) -> Tensors:
    """The order of elements is that of memory, not of the indices."""
    x = torch.zeros(6, 5, 8, device=device)
    part = x[:, :, ::2].transpose(0, 2)
    if device.type == "cpu":
        flat = torch.tensor([_uniform(at, 120) for at in range(120)])
        x[:, :, ::2] = flat.view(6, 5, 4)
    else:
        torch.cuda.manual_seed(SEED)
        part.uniform_()
    return [x]


def _dropout(device: torch.device) -> Tensors:
    results = []
    for count, vector in ((1000, 4), (1002, 2), (1001, 1)):
        x = torch.arange(1, count + 1, device=device).float()
        if device.type == "cuda":
            torch.cuda.manual_seed(SEED)
            results.append(F.dropout(x, 0.3))
            continue
        values = [_dropped(at, count, vector) for at in range(count)]
        scale = torch.tensor(1 / torch.tensor(0.7).item(), dtype=torch.float32)
        results.append(x * torch.tensor(values) * scale)
    return results


def _dropped(element: int, count: int, vector: int) -> float:
    """1 when the element is kept: vectors lie side by side, single elements a grid apart."""
    if vector == 1:
        words, number = _place(element, count)
    else:
        thread, number = divmod(element, vector)
        words = _words(thread % _threads(count), thread // _threads(count))
    return float(_float(words[number]) < torch.tensor(0.7).item())


def _slopes(device: torch.device) -> Tensors:
    """Leaky ReLU with slopes drawn for what is not positive, and their gradient."""
    results = []
    for count in (300, 5):
        x = torch.linspace(-2, 1, count).to(device).requires_grad_()
        if device.type == "cuda":
            torch.cuda.manual_seed(SEED)
            y = F.rrelu(x, 0.1, 0.4, training=True)
        else:
            places = (_place(at, count) for at in range(count))
            drawn = [_float(words[number]) for words, number in places]
            slopes = torch.tensor(drawn, dtype=torch.float64) * (0.4 - 0.1) + 0.1
            y = torch.where(x > 0, x, x * slopes.float())
        results += [y.detach(), *torch.autograd.grad(y.sum(), x)]
    return results


def _bernoulli(device: torch.device) -> Tensors:
    chances = torch.linspace(0, 1, 1001).to(device)
    if device.type == "cuda":
        torch.cuda.manual_seed(SEED)
        return [torch.bernoulli(chances), torch.bernoulli(chances[:1000].view(40, 25).t())[:0]]
    drawn = torch.tensor([_float(_words(at // 4, 0)[at % 4]) for at in range(1001)])
    return [(drawn <= chances).float(), torch.empty(0, 40)]


def _multinomial(device: torch.device) -> Tensors:
    """Each sample is the first place whose running sum reaches the number of its thread."""
    results = []
    for rows, samples in ((1, 3), (5, 300), (3, 128)):
        chances = torch.rand(rows, 11, generator=torch.Generator().manual_seed(rows))
        chances[:, 4], chances[:, -1] = 0, 0
        if device.type == "cuda":
            torch.cuda.manual_seed(SEED)
            results.append(torch.multinomial(chances.to(device), samples, replacement=True))
            continue
        across = -(-samples // 128) * 128
        threads = [[row * across + at for at in range(samples)] for row in range(rows)]
        drawn = torch.tensor([[_float(_words(thread, 0)[0]) for thread in row] for row in threads])
        sums = (chances / chances.sum(1, keepdim=True)).cumsum(1)
        results.append((sums[:, None] < drawn[:, :, None]).sum(2))
    return results


CASES: dict[str, Case] = {
    "uniform": _filled(torch.Tensor.uniform_, _uniform),
    "uniform between": _filled(lambda x: x.uniform_(-1, 3), lambda *at: _uniform(*at) * 4 - 1),
    "uniform doubles": _filled(torch.Tensor.uniform_, _double, torch.float64),
    "normal": _filled(lambda x: x.normal_(1, 2), lambda *at: _normal(*at) * 2 + 1),
    "normal doubles": _filled(torch.Tensor.normal_, _normal_double, torch.float64),
    "exponential": _filled(lambda x: x.exponential_(1.5), _exponential),
    "bernoulli": _filled(lambda x: x.bernoulli_(0.25), lambda *at: float(_uniform(*at) < 0.25)),
    "integers": _filled(
        lambda x: x.random_(-5, 20), lambda *at: _integer(*at) % 25 - 5, torch.int64
    ),
    "bytes": _filled(lambda x: x.random_(), lambda *at: _integer(*at) % 256, torch.uint8),
    "chances": _bernoulli,
    "multinomial": _multinomial,
    "strided": _strided,
    "dropout": _dropout,
    "slopes": _slopes,
}
