"""Whether this machine has a GPU that answers; asked in a child, to keep CUDA out of here."""

from __future__ import annotations

import subprocess
import sys

_SECONDS = 20
_QUESTION = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
ok = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
raise SystemExit(0 if ok and count.value > 0 else 1)
"""


def answers(environ: dict[str, str]) -> bool:
    """Whether the driver loads and counts a GPU at least."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _QUESTION],
            env={name: value for name, value in environ.items() if name != "LD_PRELOAD"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == 0
