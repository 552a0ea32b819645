"""cuDNN graphs and batch norm of the CPU device against torch, on memory of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cudnn_descriptors import (
    FILTER_GRADIENT,
    FORWARD,
    IMAGE_GRADIENT,
    Raw,
    convolution,
    descriptor,
    enum,
    graph,
    heuristic,
    integers,
    movement,
    nested,
    plan,
    pointwise,
    tensor,
)
from test_blas import Device

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu import cudnn
from mnemosyne.server.errors import ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.journal import Journal


class CudnnDevice(Device):
    """A session as far as cuDNN's handlers look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.session = SimpleNamespace(
            memory=self.memory, check_cudnn=lambda handle, stream: None, plans={}, journal=Journal()
        )

    def call(self, name: str, *values: Any) -> Any:
        return cudnn.HANDLERS[name](self.session, 1, 0, *values)

    def run(self, of: Raw, data: dict[int, int | bytes], number: int = 1) -> None:
        """Asks for an engine, builds a plan and executes it."""
        assert self.call("cudnn_heuristic", heuristic(of)) is not None
        assert self.call("cudnn_plan", number, plan(of)) == (0,)
        self.call("cudnn_execute", number, [[n, place] for n, place in data.items()], 0)


@pytest.fixture
def device() -> CudnnDevice:
    torch.manual_seed(0)
    return CudnnDevice()


BEFORE, AFTER, STRIDES, DILATIONS = (2, 0), (1, 3), (1, 2), (2, 1)
MODES = {"cross-correlation": 1, "convolution": 0}


def _padded_convolution(x: torch.Tensor, w: torch.Tensor, mode: int) -> torch.Tensor:
    w = w if mode else w.flip(2, 3)
    x = F.pad(x, (BEFORE[1], AFTER[1], BEFORE[0], AFTER[0]))
    return F.conv2d(x, w, stride=STRIDES, dilation=DILATIONS, groups=2)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    ("which", "result"), [(FORWARD, 2), (FILTER_GRADIENT, 1), (IMAGE_GRADIENT, 0)],
    ids=["forward", "filter gradient", "image gradient"],
)  # fmt: skip
def test_convolutions_pad_each_side_by_itself(device, which, result: int, mode: int) -> None:
    x = torch.randn(2, 4, 8, 9, requires_grad=True)
    w = torch.randn(6, 2, 3, 3, requires_grad=True)
    y = _padded_convolution(x, w, mode)
    grad = torch.randn_like(y)
    wanted = (*torch.autograd.grad(y, (x, w), grad), y.detach())[result]
    given = [x.detach(), w.detach(), grad]
    given[result] = torch.full_like(given[result], float("nan"))
    places = [device.put(t) for t in given]
    tensors = [tensor(n, t) for n, t in enumerate(given)]
    moves = movement(BEFORE, AFTER, STRIDES, DILATIONS, mode)
    device.run(graph(convolution(which, moves, tensors)), dict(enumerate(places)))
    torch.testing.assert_close(device.get(places[result], given[result]), wanted)


def test_alpha_and_beta_blend_with_what_is_there(device) -> None:
    x, w, y = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 2, 2), torch.randn(1, 3, 3, 3)
    places = [device.put(t) for t in (x, w, y)]
    tensors = [tensor(n, t) for n, t in enumerate((x, w, y))]
    operation = convolution(FORWARD, movement((0, 0), (0, 0)), tensors, alpha=0.5, beta=-2)
    device.run(graph(operation), dict(enumerate(places)))
    torch.testing.assert_close(device.get(places[2], y), 0.5 * F.conv2d(x, w) - 2 * y)


def test_operations_run_in_the_order_of_their_data(device) -> None:
    x, w, y = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 2, 2), torch.randn(1, 3, 3, 3)
    px, pw, py = (device.put(t) for t in (x, w, y))
    between = tensor(9, y, virtual=True)
    relu = pointwise(100, between, tensor(3, y))
    product = convolution(FORWARD, movement((0, 0), (0, 0)), [tensor(1, x), tensor(2, w), between])
    device.run(graph(relu, product), {1: px, 2: pw, 3: py})
    torch.testing.assert_close(device.get(py, y), F.conv2d(x, w).relu())


def test_a_mask_is_made_of_indices_a_comparison_and_a_choice(device) -> None:
    scores = torch.randn(1, 2, 4, 5)
    whole, flags = torch.zeros(1, 2, 4, 5, dtype=torch.int32), torch.zeros_like(scores).bool()
    rows, columns = (tensor(n, whole, virtual=True) for n in (11, 12))
    inside = tensor(13, flags, virtual=True)
    fill = tensor(2, torch.zeros(1, 1, 1, 1), by_value=True)
    px, py = device.put(scores), device.put(scores)
    x = tensor(1, scores)
    device.run(
        graph(
            pointwise(501, x, rows, how={9: integers(2)}),
            pointwise(501, x, columns, how={9: integers(3)}),
            pointwise(303, rows, inside, columns),
            pointwise(601, x, tensor(3, scores), fill, inside),
        ),
        {1: px, 2: torch.tensor(-7.0).numpy().tobytes(), 3: py},
    )
    causal = torch.ones(4, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(device.get(py, scores), scores.where(causal, torch.tensor(-7.0)))


def test_products_reductions_and_reshapes(device) -> None:
    a, b = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 5, 6)
    product, fewer = torch.zeros(2, 4, 3, 6), torch.zeros(2, 2, 1, 6)
    turned = torch.zeros(2, 2, 6, 1).transpose(2, 3).contiguous().transpose(2, 3)
    pa, pb, py = device.put(a), device.put(b), device.put(turned)
    between, summed = tensor(11, product, virtual=True), tensor(12, fewer, virtual=True)
    matmul = descriptor(19, {
        1520: nested(tensor(1, a)), 1521: nested(tensor(2, b)), 1522: nested(between),
        1523: nested(descriptor(18, {1500: enum(0)})),
    })  # fmt: skip
    reduction = descriptor(22, {
        1610: nested(between), 1611: nested(summed),
        1612: nested(descriptor(21, {1600: enum(0, 18), 1601: enum(0)})),
    })  # fmt: skip
    reshape = descriptor(31, {2200: nested(summed), 2201: nested(tensor(3, turned))})
    device.run(graph(matmul, reduction, reshape), {1: pa, 2: pb, 3: py})
    wanted = (a @ b.repeat_interleave(2, 1)).unflatten(1, (2, 2)).sum((2, 3))
    torch.testing.assert_close(device.get(py, turned[..., 0]), wanted)


def _add(**changes: Any) -> Raw:
    x = torch.zeros(2, 3)
    parts = {"x": tensor(1, x), "b": tensor(2, x), "y": tensor(3, x), "mode": 0, **changes}
    return pointwise(parts.pop("mode"), parts.pop("x"), parts.pop("y"), parts.pop("b"), **parts)


_ROW, _WIDE = torch.zeros(2, 4), torch.zeros(1 << 20, 1 << 20, device="meta")
_LOOP = tensor(7, torch.zeros(2, 3), virtual=True)
REFUSED = {
    "an operation": (descriptor(29, {}), NOT_SUPPORTED, "NORM_FORWARD"),
    "a mode": (_add(mode=5), NOT_SUPPORTED, "pointwise mode 5"),
    "an attribute": (_add(how={77: enum(1)}), NOT_SUPPORTED, "attribute 77"),
    "a type": (_add(x=tensor(1, _ROW, attributes={901: enum(12)})), NOT_SUPPORTED, "data type 12"),
    "a size": (
        _add(x=tensor(1, _WIDE, True), y=tensor(2, _WIDE, True), b=tensor(3, _WIDE, True)),
        NOT_SUPPORTED, "bytes",
    ),
    "shapes": (_add(b=tensor(2, _ROW)), INVALID_VALUE, "(2, 4)"),
    "a result in one place": (
        _add(y=tensor(3, torch.zeros(1, 1).expand(2, 3))), NOT_SUPPORTED, "tensor 3"
    ),
    "a missing operand": (_add(b=None), INVALID_VALUE, "1 tensors"),
    "a circle": (_add(x=_LOOP, y=_LOOP), INVALID_VALUE, "circles"),
    "two descriptions": (
        _add(x=_LOOP, y=tensor(7, _ROW, True), b=tensor(2, _ROW)), INVALID_VALUE, ""
    ),
    "negative sizes": (
        _add(x=tensor(1, _ROW, attributes={902: integers(-1, 3)})), INVALID_VALUE, "-1"
    ),
    "a convolution that does not fit": (
        convolution(
            FORWARD, movement((0, 0), (0, 0)),
            [tensor(n, torch.zeros(1, 2, 4, 4)) for n in range(3)],
        ),
        INVALID_VALUE, "(1, 2, 4, 4)",
    ),
    "a convolution without dimensions": (
        convolution(FORWARD, movement((), (), (), ()), [tensor(n, _ROW) for n in range(3)]),
        INVALID_VALUE, "",
    ),
    "no operations": (None, INVALID_VALUE, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused_when_an_engine_is_asked_for(device, case: str) -> None:
    operation, code, what = REFUSED[case]
    asked = heuristic(graph(operation) if operation else graph())
    with pytest.raises(CallError) as refused:
        device.call("cudnn_heuristic", asked)
    assert refused.value.code == code
    assert what in refused.value.text


@pytest.mark.parametrize(
    "raw",
    [[], [1], [4, 5], [4, [[1]]], [4, [["x", 3, b""]]], [4, [[1, 15, b""]]], [4, [[1, 3, []]]],
     [4, [[[], 3, b""]]], ["4", []]],
    ids=str,
)  # fmt: skip
def test_what_is_no_descriptor_breaks_the_protocol(device, raw: Raw) -> None:
    with pytest.raises(ProtocolError):
        device.call("cudnn_heuristic", raw)


def test_descriptors_may_not_be_nested_without_end(device) -> None:
    raw = descriptor(15, {})
    for _ in range(40):
        raw = descriptor(15, {801: nested(raw)})
    with pytest.raises(ProtocolError, match="deep"):
        device.call("cudnn_heuristic", raw)


def test_pointers_are_checked_when_a_plan_runs(device) -> None:
    place = device.put(torch.zeros(2, 3))
    device.run(graph(_add()), {1: place, 2: place, 3: place})
    for data, code in (
        ([[1, place], [2, place], [3, 4096]], ILLEGAL_ADDRESS),
        ([[1, place], [2, place]], INVALID_VALUE),
        ([[1, place], [2, b"1234"], [3, place]], INVALID_VALUE),
    ):
        with pytest.raises(CallError) as refused:
            device.call("cudnn_execute", 1, data, 0)
        assert refused.value.code == code
    for data in ([1], [[1]], [["x", place]], [[1, []]], [[[], 1]]):
        with pytest.raises(ProtocolError):
            device.call("cudnn_execute", 1, data, 0)


def test_a_plan_lives_until_it_is_destroyed_and_in_the_journal(device) -> None:
    x = torch.randn(2, 3)
    place, out = device.put(x), device.put(x)
    data = {1: place, 2: place, 3: out}
    device.run(graph(_add()), data, number=5)
    entries = device.session.journal.take()
    with pytest.raises(CallError):
        device.call("cudnn_plan", 5, plan(graph(_add())))
    device.session.plans.clear()
    device.memory.fill(out, 0, x.nbytes)
    cudnn.restore(device.session, entries)
    device.call("cudnn_execute", 5, list(data.items()), 0)
    torch.testing.assert_close(device.get(out, x), x + x)
    cudnn.HANDLERS["cudnn_plan_destroy"](device.session, 5)
    assert device.session.journal.take() == [["cudnn_plan/5", None]]
    with pytest.raises(CallError):
        device.call("cudnn_execute", 5, list(data.items()), 0)


def _shape(x: torch.Tensor) -> Raw:
    return [0, list(x.shape), list(x.stride())]


@pytest.mark.parametrize("sizes", [(1, 3, 1, 1), (1, 3, 4, 5)], ids=["spatial", "per activation"])
def test_batch_norm_blends_and_keeps_running_statistics(device, sizes: tuple[int, ...]) -> None:
    x, before = torch.randn(6, 3, 4, 5) + 2, torch.randn(6, 3, 4, 5)
    scale, bias, mean, variance = (torch.rand(sizes) + n for n in range(4))
    dims = [at for at, n in enumerate(sizes) if n == 1]
    px, py = device.put(x), device.put(before)
    params = [device.put(t) for t in (scale, bias, mean, variance, scale, scale)]
    device.call(
        "cudnn_batch_norm_training", 1, 2.0, 0.5, _shape(x), px, _shape(x), py, _shape(scale),
        *params[:2], 0.25, *params[2:4], 1e-3, *params[4:], 0, 0, 0, 0,
    )  # fmt: skip
    spread, centre = torch.var_mean(x, dims, correction=0, keepdim=True)
    normal = (x - centre) / (spread + 1e-3).sqrt()
    wanted = 2 * (normal * scale + bias) + 0.5 * before
    torch.testing.assert_close(device.get(py, x), wanted)
    unbiased = x.var(dims, keepdim=True)
    for place, value in zip(
        params[2:],
        (mean * 0.75 + centre * 0.25, variance * 0.75 + unbiased * 0.25, centre,
         (spread + 1e-3).rsqrt()),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(device.get(place, scale), value)


def test_the_gradient_of_batch_norm_needs_no_saved_statistics(device) -> None:
    x = (torch.randn(6, 3, 4, 5) + 2).requires_grad_()
    scale, bias = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    grad = torch.randn(6, 3, 4, 5)
    wanted = torch.autograd.grad(
        F.batch_norm(x, None, None, scale, bias, True, eps=1e-3), (x, scale, bias), grad
    )
    flat = scale.detach().view(1, 3, 1, 1)
    px, pg, pd = (device.put(t.detach()) for t in (x, grad, grad))
    params = [device.put(flat) for _ in range(3)]
    shape = _shape(grad)
    device.call(
        "cudnn_batch_norm_backward", 1, 1.0, 0.0, 1.0, 0.0, shape, px, shape, pg, shape, pd,
        _shape(flat), *params, 1e-3, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    got = device.get(pd, grad), *(device.get(p, flat).flatten() for p in params[1:])
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "params", "error"),
    [
        ([], [0, [1, 3], [3, 1]], CallError),
        ([0, [2, 3], [3, 1]], [0, [1, 4], [4, 1]], CallError),
        ([0, [2, 3], [3, 1]], [0, [3], [1]], CallError),
        ([0, [2, -3], [3, 1]], [0, [1, 3], [3, 1]], CallError),
        ([0, [2, 3]], [0, [1, 3], [3, 1]], ProtocolError),
        ([0, [2, "3"], [3, 1]], [0, [1, 3], [3, 1]], ProtocolError),
        ([0, 2, 3], [0, [1, 3], [3, 1]], ProtocolError),
    ],
)
def test_tensors_of_a_batch_norm_are_checked(device, x: Raw, params: Raw, error) -> None:
    place = device.put(torch.zeros(64))
    with pytest.raises(error):
        device.call(
            "cudnn_batch_norm_inference", 1, 1.0, 0.0, x, place, x, place, params,
            place, place, place, place, 1e-5,
        )  # fmt: skip
