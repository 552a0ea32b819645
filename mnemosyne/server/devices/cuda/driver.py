"""The CUDA driver through cuda-python: errors become exceptions."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from mnemosyne import _native
from mnemosyne.server.errors import CallError
from mnemosyne.server.session import DeviceLost

SUCCESS = 0


def check(result: tuple[Any, ...]) -> Any:
    """What a driver call returned besides its code: nothing, one value, or a tuple.

    Raises CallError with the driver's code, or DeviceLost when the context is lost for everybody.
    """
    code, *values = result
    if int(code) != SUCCESS:
        _raise(int(code))
    if len(values) == 1:
        return values[0]
    return tuple(values) or None


def check_code(code: int) -> None:
    """The same for a bare code."""
    if code != SUCCESS:
        _raise(code)


def _raise(code: int) -> None:
    name = driver.CUresult(code).name if code in _KNOWN else f"CUresult {code}"
    if _native.is_fatal(code):
        raise DeviceLost(code, name)
    raise CallError(code, name)


_KNOWN = {int(value) for value in driver.CUresult}
