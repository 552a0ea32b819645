"""Demangled names: template arguments, lambdas, types; and the functors that names stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from mnemosyne.server.devices.cpu.kernels import UnsupportedKernel
from mnemosyne.server.devices.cpu.kernels.functors import candidates, choose, place
from mnemosyne.server.devices.cpu.kernels.names import (
    dtype,
    enclosing_function,
    lambda_numbers,
    lambda_parameters,
    parameters,
    split,
    template_arguments,
)
from mnemosyne.server.devices.cpu.kernels.table import bind

CLAMP = (
    "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, "
    "c10::Scalar, at::native::detail::ClampLimits)::{lambda()#1}::operator()() const::"
    "{lambda()#7}::operator()() const::{lambda(float)#1}"
)
EQUAL_HALF = (
    "at::native::AUnaryFunctor<c10::Half, c10::Half, bool, "
    "at::native::(anonymous namespace)::CompareEqFunctor<c10::Half> >"
)
WHERE = (
    "at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::{lambda()#1}::"
    "operator()() const::{lambda()#3}::operator()() const::{lambda(bool, float, float)#1}"
)


def vectorized(functor: str, tensors: int) -> str:
    """The whole name of a kernel on contiguous tensors."""
    array = f"std::array<char*, {tensors}ul>"
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >"
        f"(int, {functor}, {array})"
    )


@dataclass(frozen=True)
class Kernel:
    """A kernel as a registry describes it."""

    demangled: str
    params: tuple[tuple[int, int], ...]
    name: str = "_Z"


def test_template_arguments_of_nested_names() -> None:
    assert template_arguments(vectorized(CLAMP, 2), "vectorized_elementwise_kernel") == [
        "4",
        CLAMP,
        "std::array<char*, 2ul>",
    ]


def test_template_arguments_that_are_not_there() -> None:
    with pytest.raises(UnsupportedKernel, match="reduce_kernel"):
        template_arguments(vectorized(CLAMP, 2), "reduce_kernel")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("int", ["int"]),
        ("a<b, c>, d(e, f), {g, h}", ["a<b, c>", "d(e, f)", "{g, h}"]),
        ("c10::complex<float>, 3ul", ["c10::complex<float>", "3ul"]),
    ],
)
def test_split(text: str, parts: Sequence[str]) -> None:
    assert split(text) == list(parts)


def test_parameters_of_a_kernel() -> None:
    name = "void at::native::gather<16, long>(char*, std::array<char*, 2ul>, long)"
    assert parameters(name, "gather") == ["char*", "std::array<char*, 2ul>", "long"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("float", torch.float32),
        ("double const*", torch.float64),
        ("c10::Half", torch.float16),
        ("c10::BFloat16&", torch.bfloat16),
        ("signed char", torch.int8),
        ("unsigned char", torch.uint8),
        ("long long", torch.int64),
        ("c10::complex<double>", torch.complex128),
    ],
)
def test_types(name: str, kind: torch.dtype) -> None:
    assert dtype(name) == kind


def test_a_type_without_tensors() -> None:
    with pytest.raises(UnsupportedKernel, match="qint8"):
        dtype("c10::qint8")


def test_what_a_lambda_is_known_by() -> None:
    assert enclosing_function(CLAMP) == "launch_clamp_scalar"
    assert lambda_parameters(WHERE) == ["bool", "float", "float"]
    assert lambda_numbers(CLAMP) == [1, 7, 1]
    assert enclosing_function(EQUAL_HALF) == "AUnaryFunctor"


def test_members_lie_as_in_cpp() -> None:
    assert place([torch.bool, torch.float64, torch.float16]) == ([0, 8, 16], 18, 8)
    assert place([]) == ([], 0, 1)


def test_captures_of_a_lambda() -> None:
    """An enum and two floats, then the pointer that nvcc adds."""
    (functor,) = candidates(CLAMP)
    assert (functor.size, functor.inputs, functor.result) == (24, (torch.float32,), torch.float32)
    captured = b"\x02\0\0\0" + b"\0\0\x80\xbf" + b"\0\0\0\x40" + bytes(12)
    assert functor.read is not None
    assert functor.read(b"xx" + captured, 2) == (2, -1.0, 2.0)


def test_a_lambda_without_captures_has_two_forms() -> None:
    found = candidates(WHERE)
    assert [functor.size for functor in found] == [1, 8]
    assert found[0].result == torch.float32
    assert found[0].inputs == (torch.bool, torch.float32, torch.float32)


def test_the_scalar_of_a_wrapper_has_the_type_that_the_functor_takes() -> None:
    (functor,) = candidates(EQUAL_HALF)
    assert (functor.size, functor.result) == (8, torch.bool)
    assert functor.read is not None
    assert functor.read(b"\x01\0\0\0" + b"\x00\x3c" + b"\xff\xff", 0) == (1.0, 1)


def test_no_form_fits() -> None:
    with pytest.raises(UnsupportedKernel, match="32 bytes, expected"):
        choose(candidates(CLAMP), 32, lambda functor: functor.size)


def test_an_unknown_operation_is_named() -> None:
    unknown = CLAMP.replace("launch_clamp_scalar", "launch_a_new_thing")
    kernel = Kernel(vectorized(unknown, 2), ((0, 4), (8, 24), (32, 16)))
    with pytest.raises(UnsupportedKernel, match="launch_a_new_thing"):
        bind(kernel)


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(UnsupportedKernel, match="no kernel new_kernel"):
        bind(Kernel("void at::native::new_kernel<float>(float*)", ((0, 8),)))


@pytest.mark.parametrize(
    "params",
    [
        ((0, 4), (8, 32), (40, 16)),  # another state
        ((0, 4), (8, 24), (32, 24)),  # another number of tensors
        ((0, 8), (8, 24), (32, 16)),  # another count
        ((0, 4), (8, 24)),
    ],
)
def test_another_layout_is_refused(params: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(UnsupportedKernel):
        bind(Kernel(vectorized(CLAMP, 2), params))
