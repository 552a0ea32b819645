"""cuBLAS on vectors, on the CPU device: every routine of every type, against torch."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from blas_device import (
    PLAIN,
    REAL,
    Device,
    Steps,
    close,
    host,
    sample,
)

from mnemosyne.server.errors import NOT_SUPPORTED, CallError

#: How the letters of reductions and of mixed types stand for an element's type.
REDUCING = {"S": "S", "D": "D", "Sc": "C", "Dz": "Z"}
INDEXING = {"Is": "S", "Id": "D", "Ic": "C", "Iz": "Z"}
LETTERS = pytest.mark.parametrize("letter", PLAIN)
N = 6


@pytest.fixture
def device() -> Device:
    torch.manual_seed(0)
    return Device()


def parts(x: torch.Tensor) -> torch.Tensor:
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


@LETTERS
@pytest.mark.parametrize(("step_x", "step_y"), [(1, 1), (2, 3), (-1, 2)])
def test_vectors(device: Device, letter: str, step_x: int, step_y: int) -> None:
    dtype, alpha = PLAIN[letter], -1.5
    x, y = sample(N, dtype=dtype), sample(N, dtype=dtype)

    def both() -> tuple[Steps, Steps]:
        return Steps(device, x, step_x), Steps(device, y, step_y)

    a, b = both()
    device.call(f"cublas{letter}axpy_v2", 1, N, host(alpha, dtype), *a.args, *b.args)
    close(b.get(), y + alpha * x)
    device.call(f"cublas{letter}copy_v2", 1, N, *a.args, *b.args)
    close(b.get(), x)
    a, b = both()
    device.call(f"cublas{letter}swap_v2", 1, N, *a.args, *b.args)
    close(torch.stack([a.get(), b.get()]), torch.stack([y, x]))


@LETTERS
def test_scaling(device: Device, letter: str) -> None:
    dtype, x = PLAIN[letter], sample(N, dtype=PLAIN[letter])
    a = Steps(device, x, 2)
    device.call(f"cublas{letter}scal_v2", 1, N, host(2, dtype), *a.args)
    close(a.get(), 2 * x)
    if dtype.is_complex:
        name = {"C": "cublasCsscal_v2", "Z": "cublasZdscal_v2"}[letter]
        device.call(name, 1, N, host(0.25, REAL[letter]), *a.args)
        close(a.get(), 0.5 * x)


@pytest.mark.parametrize(
    ("name", "letter", "conjugated"),
    [("dot", "S", False), ("dot", "D", False), ("dotu", "C", False), ("dotu", "Z", False),
     ("dotc", "C", True), ("dotc", "Z", True)],
)  # fmt: skip
def test_vector_products(device: Device, name: str, letter: str, conjugated: bool) -> None:
    dtype = PLAIN[letter]
    x, y = sample(N, dtype=dtype), sample(N, dtype=dtype)
    args = (*Steps(device, x, 2).args, *Steps(device, y, -1).args)
    wanted = (torch.vdot if conjugated else torch.dot)(x, y)
    (data,) = device.call(f"cublas{letter}{name}_v2", 1, N, *args, 0)
    close(torch.frombuffer(bytearray(data), dtype=dtype)[0], wanted)
    place = device.put(torch.zeros(1, dtype=dtype))
    assert device.call(f"cublas{letter}{name}_v2", 1, N, *args, place) is None
    close(device.get(place, wanted), wanted)
    nothing = device.call(f"cublas{letter}{name}_v2", 1, 0, 0, 1, 0, 1, 0)
    assert nothing == (bytes(dtype.itemsize),)


CODES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.complex64: 4}


@pytest.mark.parametrize("dtype", CODES, ids=str)
def test_vector_products_of_a_type_by_number(device: Device, dtype: torch.dtype) -> None:
    x, y, code = sample(N, dtype=dtype), sample(N, dtype=dtype), CODES[dtype]
    wide = torch.complex64 if dtype.is_complex else torch.float32
    args = (1, N, device.put(x), code, 1, device.put(y), code, 1, 0, code, CODES[wide])
    (data,) = device.call("cublasDotEx", *args)
    wanted = torch.dot(x.to(wide), y.to(wide)).to(dtype)
    close(torch.frombuffer(bytearray(data), dtype=dtype)[0], wanted)
    with pytest.raises(CallError) as refused:
        device.call("cublasDotEx", *args[:3], 3, *args[4:])
    assert refused.value.code == NOT_SUPPORTED


@pytest.mark.parametrize(("letters", "element"), REDUCING.items())
def test_norms_and_sums(device: Device, letters: str, element: str) -> None:
    x = sample(N, dtype=PLAIN[element])
    vector, real = Steps(device, x, 3), REAL[element]
    for name, wanted in (("nrm2", torch.linalg.vector_norm(x)), ("asum", parts(x).sum())):
        (data,) = device.call(f"cublas{letters}{name}_v2", 1, N, *vector.args, 0)
        close(torch.frombuffer(bytearray(data), dtype=real)[0], wanted)
        nothing = device.call(f"cublas{letters}{name}_v2", 1, N, vector.pointer, -1, 0)
        assert nothing == (bytes(real.itemsize),)


@pytest.mark.parametrize(("letters", "element"), INDEXING.items())
def test_places_of_extremes_count_from_one(device: Device, letters: str, element: str) -> None:
    x = sample(N, dtype=PLAIN[element])
    args = Steps(device, x, 2).args
    for name, place in (("amax", parts(x).argmax()), ("amin", parts(x).argmin())):
        found = device.call(f"cublas{letters}{name}_v2", 1, N, *args, 0)
        assert found == (struct.pack("<i", place + 1),)
        assert device.call(f"cublas{letters}{name}_v2", 1, 0, *args, 0) == (bytes(4),)


ROTATIONS = [("S", "S", "S"), ("D", "D", "D"), ("C", "C", "C"), ("Z", "Z", "Z"),
             ("Cs", "C", "S"), ("Zd", "Z", "D")]  # fmt: skip


@pytest.mark.parametrize(("letters", "element", "sine"), ROTATIONS)
def test_rotation(device: Device, letters: str, element: str, sine: str) -> None:
    dtype = PLAIN[element]
    x, y = sample(N, dtype=dtype), sample(N, dtype=dtype)
    c, s = 0.6, 0.8j if sine in "CZ" else 0.8
    a, b = Steps(device, x, 1), Steps(device, y, -2)
    cos, sin = host(c, REAL[element]), host(s, PLAIN[sine])
    device.call(f"cublas{letters}rot_v2", 1, N, *a.args, *b.args, cos, sin)
    close(a.get(), c * x + s * y)
    close(b.get(), c * y - complex(s).conjugate() * x if dtype.is_complex else c * y - s * x)


@LETTERS
@pytest.mark.parametrize(("a", "b"), [(3, 4), (-4, 3), (0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("on_device", [False, True])
def test_making_a_rotation(device: Device, letter: str, a: float, b: float, on_device) -> None:
    dtype, real = PLAIN[letter], REAL[letter]
    types = (dtype, dtype, real, dtype)
    given = [host(v, t) for v, t in zip((a, b, 0, 0), types, strict=True)]
    if on_device:
        places = [device.put(torch.tensor([v], dtype=dtype)) for v in (a, b, 0, 0)]
        assert device.call(f"cublas{letter}rotg_v2", 1, *places) is None
        given = [device.memory.read(p, t.itemsize) for p, t in zip(places, types, strict=True)]
    else:
        given = device.call(f"cublas{letter}rotg_v2", 1, *given)
    r, _, c, s = (
        torch.frombuffer(bytearray(d), dtype=t).item() for d, t in zip(given, types, strict=True)
    )
    assert c * a + s * b == pytest.approx(r)
    assert c * b - complex(s).conjugate() * a == pytest.approx(0, abs=1e-6)
    assert abs(r) == pytest.approx(math.hypot(a, b))


@pytest.mark.parametrize("letter", "SD")
@pytest.mark.parametrize(
    ("given", "flag"),
    [((2, 3, 5, 1), 0), ((2, 3, 1, 5), 1), ((1e-9, 1e-9, 1, 2), -1), ((-1, 1, 1, 1), -1),
     ((1, 0, 1, 1), -2)],
)  # fmt: skip
def test_modified_rotation_makes_the_second_part_zero(
    device: Device, letter: str, given: tuple[float, ...], flag: float
) -> None:
    dtype = PLAIN[letter]
    d1, d2, x, y = given
    old = struct.pack("<5" + {"S": "f", "D": "d"}[letter], *[7.0] * 5)
    outputs = device.call(f"cublas{letter}rotmg_v2", 1, *(host(v, dtype) for v in given), old)
    new = [torch.frombuffer(bytearray(data), dtype=dtype) for data in outputs]
    assert new[3][0] == flag
    vectors = [Steps(device, torch.tensor([v], dtype=dtype), 1) for v in (x, y)]
    device.call(f"cublas{letter}rotm_v2", 1, 1, *vectors[0].args, *vectors[1].args, outputs[3])
    turned, zero = (v.get().item() for v in vectors)
    if d1 < 0 or d2 == 0:
        assert (turned, zero) == ((0, 0) if d1 < 0 else (x, y))
        return
    assert zero == pytest.approx(0, abs=1e-6)
    assert turned == pytest.approx(new[2].item())
    assert new[0].item() * turned**2 == pytest.approx(d1 * x**2 + d2 * y**2)
