"""Reads demangled kernel names: template arguments, parameter lists, dtypes, the operation inside.

Lambda numbers differ between versions of PyTorch, so nothing here relies on them unless a caller
asks for them by name.
"""

from __future__ import annotations

import re

import torch

from . import UnsupportedKernel

_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
    "signed char": torch.int8,
    "char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "long long": torch.int64,
    "unsigned short": torch.uint16,
    "unsigned int": torch.uint32,
    "unsigned long": torch.uint64,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
    "c10::complex<c10::Half>": torch.complex32,
    "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "c10::Float8_e5m2": torch.float8_e5m2,
    "c10::Float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "c10::Float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "c10::Float8_e8m0fnu": torch.float8_e8m0fnu,
}
_OPEN, _CLOSE = "<({[", ">)}]"
_POINTER = re.compile(r"([\w: ]+\*)|[\w:]*\bdevice_ptr<([\w: ]+)>")


def dtype(name: str) -> torch.dtype:
    """The dtype of a C++ type; const, pointers and references do not matter."""
    bare = name.replace(" const", "").replace("const ", "").rstrip("*& ").strip()
    found = _DTYPES.get(bare)
    if found is None:
        raise UnsupportedKernel(f"no tensor has elements of type {bare}")
    return found


def pointed(name: str) -> torch.dtype:
    """The dtype of what an iterator points to: ``long*`` or thrust's ``device_ptr<long>``."""
    match = _POINTER.fullmatch(name)
    if match is None:
        raise UnsupportedKernel(f"an iterator {name}")
    return dtype(match[1] or match[2])


def split(text: str) -> list[str]:
    """The parts between commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in _OPEN) - (c in _CLOSE)
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def template_arguments(text: str, of: str) -> list[str]:
    """The template arguments of the first ``of<...>`` in ``text``."""
    start = text.find(of + "<")
    if start < 0:
        raise UnsupportedKernel(f"no {of}<...> in the name")
    start += len(of)
    return split(text[start + 1 : _closing(text, start)])


def parameters(text: str, of: str) -> list[str]:
    """The parameter types of ``of(...)`` or ``of<...>(...)``."""
    start = text.index(of) + len(of)
    if text[start] == "<":
        start = _closing(text, start) + 1
    return split(text[start + 1 : _closing(text, start)])


def lambda_parameters(text: str) -> list[str]:
    """The parameter types of the innermost, last lambda: ``{lambda(float, bool)#1}``."""
    start = text.rfind("{lambda(")
    if start < 0:
        raise UnsupportedKernel("no lambda in the name")
    start += len("{lambda")
    return split(text[start + 1 : _closing(text, start)])


def lambda_numbers(text: str) -> list[int]:
    """The numbers of all lambdas in order, from the outermost."""
    return [int(n) for n in re.findall(r"\}?\)#(\d+)\}", text)]


def enclosing_function(text: str) -> str:
    """The function a lambda lies in, or a class; no namespaces: ``direct_copy_kernel_cuda``."""
    bare = text.replace("(anonymous namespace)::", "")
    match = re.match(r"(?:\w+::)*(\w+)\s*(?:[<(]|$)", bare)
    if match is None:
        raise UnsupportedKernel(f"no function in {text[:80]}")
    return match[1]


def _closing(text: str, start: int) -> int:
    """Where the bracket at ``start`` closes."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        if depth == 0:
            return i
    raise UnsupportedKernel("the name's brackets do not match")
