"""Plane rotations of cuBLAS, plain and modified; formulas as in the reference BLAS."""

from __future__ import annotations

import math
from typing import Any

from mnemosyne.server.devices.cpu.blas.operands import Routine, Scalar, Type, change, read, vector
from mnemosyne.server.devices.cpu.matrices import read_scalars
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Outputs


def _rot(
    s: CpuSession, t: Type, n: int, x: int, incx: int, y: int, incy: int, c: Scalar, sine: Scalar
) -> Outputs:
    (cos,), (sin,) = read(s, t.real, c), read(s, t.scale, sine)
    _rotate(s, t, (n, x, incx, y, incy), (cos, sin, -complex(sin).conjugate(), cos))
    return None


def _rotate(
    s: CpuSession, t: Type, where: tuple[int, int, int, int, int], h: tuple[Any, ...]
) -> None:
    """x, y = h[0] x + h[1] y, h[2] x + h[3] y"""
    n, x, incx, y, incy = where
    if n <= 0:
        return
    first, second = vector(s, x, t.element, n, incx), vector(s, y, t.element, n, incy)
    a, b = first.get().clone(), second.get().clone()
    if not t.element.is_complex:
        h = tuple(complex(value).real for value in h)
    first.put(h[0] * a + h[1] * b)
    second.put(h[2] * a + h[3] * b)


def _rotg(s: CpuSession, t: Type, a: Scalar, b: Scalar, c: Scalar, sine: Scalar) -> Outputs:
    x, y = read(s, t.element, a, b)
    new = _complex_rotation(x, y) if t.element.is_complex else _real_rotation(x, y)
    return change(s.memory, (a, b, c, sine), new, (t.element, t.element, t.real, t.element))


def _real_rotation(a: float, b: float) -> tuple[float, float, float, float]:
    """r, z, c, s"""
    norm = math.hypot(a, b)
    if norm == 0:
        return 0.0, 0.0, 1.0, 0.0
    r = math.copysign(norm, a if abs(a) > abs(b) else b)
    c, s = a / r, b / r
    z = s if abs(a) > abs(b) else 1 / c if c else 1.0
    return r, z, c, s


def _complex_rotation(a: complex, b: complex) -> tuple[complex, complex, float, complex]:
    """r, b, c, s"""
    if a == 0:
        return b, b, 0.0, 1.0
    norm = math.hypot(abs(a), abs(b))
    direction = a / abs(a)
    return direction * norm, b, abs(a) / norm, direction * b.conjugate() / norm


_NONE, _FULL, _OFF_DIAGONAL, _DIAGONAL = -2.0, -1.0, 0.0, 1.0  # the first element of ``param``


def _rotm(
    s: CpuSession, t: Type, n: int, x: int, incx: int, y: int, incy: int, param: Scalar
) -> Outputs:
    flag, h11, h21, h12, h22 = read_scalars(s.memory, param, t.element, 5)
    if flag == _NONE:
        return None
    if flag == _OFF_DIAGONAL:
        h11 = h22 = 1.0
    elif flag == _DIAGONAL:
        h21, h12 = -1.0, 1.0
    _rotate(s, t, (n, x, incx, y, incy), (h11, h12, h21, h22))
    return None


def _rotmg(
    s: CpuSession, t: Type, d1: Scalar, d2: Scalar, x1: Scalar, y1: Scalar, param: Scalar
) -> Outputs:
    a, b, x, y = read(s, t.element, d1, d2, x1, y1)
    new = _modified_rotation(a, b, x, y, read_scalars(s.memory, param, t.element, 5))
    types = (t.element,) * 4
    return change(s.memory, (d1, d2, x1, param), new, types)


def _modified_rotation(
    d1: float, d2: float, x1: float, y1: float, old: tuple[float, ...]
) -> tuple[float, float, float, tuple[float, ...]]:
    """d1, d2, x1 and ``param``, of which elements that its flag implies keep their values."""
    p2 = d2 * y1
    if d1 < 0:
        return 0.0, 0.0, 0.0, (_FULL, 0.0, 0.0, 0.0, 0.0)
    if p2 == 0:
        return d1, d2, x1, (_NONE, *old[1:])
    p1, q1, q2 = d1 * x1, d1 * x1 * x1, p2 * y1
    if abs(q1) > abs(q2):
        h21, h12 = -y1 / x1, p2 / p1
        u = 1 - h12 * h21
        if u <= 0:
            return 0.0, 0.0, 0.0, (_FULL, 0.0, 0.0, 0.0, 0.0)
        return _scaled(d1 / u, d2 / u, x1 * u, _OFF_DIAGONAL, [1.0, h21, h12, 1.0], old)
    if q2 < 0:
        return 0.0, 0.0, 0.0, (_FULL, 0.0, 0.0, 0.0, 0.0)
    h11, h22 = p1 / p2, x1 / y1
    u = 1 + h11 * h22
    return _scaled(d2 / u, d1 / u, y1 * u, _DIAGONAL, [h11, -1.0, 1.0, h22], old)


_GAMMA = 4096.0


def _scaled(
    d1: float, d2: float, x1: float, flag: float, h: list[float], old: tuple[float, ...]
) -> tuple[float, float, float, tuple[float, ...]]:
    """Keeps d1 and d2 between 1 / gamma**2 and gamma**2; ``h``: h11, h21, h12, h22."""
    while d1 and not 1 / _GAMMA**2 < d1 < _GAMMA**2:
        flag, step = _FULL, _GAMMA if d1 <= 1 / _GAMMA**2 else 1 / _GAMMA
        d1, x1, h[0], h[2] = d1 * step**2, x1 / step, h[0] / step, h[2] / step
    while d2 and not 1 / _GAMMA**2 < abs(d2) < _GAMMA**2:
        flag, step = _FULL, _GAMMA if abs(d2) <= 1 / _GAMMA**2 else 1 / _GAMMA
        d2, h[1], h[3] = d2 * step**2, h[1] / step, h[3] / step
    kept = list(old[1:])
    for at in {_FULL: (0, 1, 2, 3), _OFF_DIAGONAL: (1, 2), _DIAGONAL: (0, 3)}[flag]:
        kept[at] = h[at]
    return d1, d2, x1, (flag, *kept)


ROUTINES: dict[str, Routine] = {
    "rot_v2": _rot, "rotg_v2": _rotg, "rotm_v2": _rotm, "rotmg_v2": _rotmg,
}  # fmt: skip
