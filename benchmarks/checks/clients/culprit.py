"""Commits one of the two faults an ordinary program can: an assertion, or a wild pointer."""

from __future__ import annotations

import ctypes
import time

import talk
import torch
from torch import Tensor

WILD = 0x1000  # below the lowest address that can be mapped
FLOAT, BITS = 2, 32  # DLPack's type
CUDA = 2  # DLPack's device


class DLTensor(ctypes.Structure):
    """The beginning of DLPack's DLManagedTensor; https://dmlc.github.io/dlpack/latest/c_api.html"""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


length, stride = (ctypes.c_int64 * 1)(1024), (ctypes.c_int64 * 1)(1)
wild = DLTensor(WILD, CUDA, 0, 1, FLOAT, BITS, 1, length, stride, 0, None, None)
capsule_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def wild_tensor() -> Tensor:
    """A tensor (1024,) at an address where there is nothing."""
    return torch.from_dlpack(capsule_of(ctypes.addressof(wild), b"dltensor", None))


def commit(fault: str) -> talk.Answer:
    """When the kernel was launched, and what the program was told of it."""
    values = torch.arange(8.0, device="cuda")
    outside = torch.tensor([99], device="cuda")
    torch.cuda.synchronize()
    launched = time.monotonic()
    try:
        print(values[outside] if fault == "assert" else wild_tensor() + 1)
        told = "nothing"
    except RuntimeError as error:
        told = str(error).splitlines()[0]
    return {"launched": launched, "told": told, "noticed": time.monotonic()}


talk.device()
talk.serve({"assert": lambda: commit("assert"), "illegal": lambda: commit("illegal")})
