"""cuDNN's recurrent layers on the CPU device against torch, on memory of the test's own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from test_cudnn import CudnnDevice
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.errors import ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, CallError

RELU, TANH, LSTM, GRU = range(4)
SEQUENCE_MAJOR, PACKED, BATCH_MAJOR = range(3)
INFERENCE, TRAINING = range(2)
ADD, SET = range(2)
NO_DROPOUT = (0.0, 0, 0, 0)


@pytest.fixture
def device() -> CudnnDevice:
    torch.manual_seed(0)
    return CudnnDevice()


def rnn(mode: int = LSTM, direction: int = 0, projection: int = 5, layers: int = 1) -> list[int]:
    """Of input size 6 and hidden size 5, in 32-bit floats."""
    return [0, mode, 2, direction, 0, 0, 0, 0, 6, 5, projection, layers, 1]


def data(vector: int, lengths: Sequence[int], layout: int, fill: bytes = b"") -> list[Any]:
    """Of 32-bit floats, at most seven steps."""
    packed = struct.pack(f"<{len(lengths)}i", *lengths)
    return [0, layout, 7, len(lengths), vector, packed, fill]


def state(*sizes: int) -> list[Any]:
    return [0, [*sizes, 1, 1], [sizes[1] * sizes[2], sizes[2], 1, 1, 1]]


@dataclass
class Layer:
    """A bidirectional GRU on three sequences, beside the same in torch. Fields: what is sent."""

    device: CudnnDevice
    lengths: Sequence[int] = (7, 7, 7)
    layout: int = SEQUENCE_MAJOR
    fill: bytes = b""
    module: nn.GRU = field(default_factory=lambda: nn.GRU(6, 5, bidirectional=True))

    def __post_init__(self) -> None:
        self.rnn = rnn(GRU, direction=1)
        self.x, self.hx = torch.randn(7, 3, 6), torch.randn(2, 3, 5)
        self.y = torch.full((7, 3, 10), 77.0)
        weights = list(self.module.parameters())
        matrices, biases = weights[0:2] + weights[4:6], weights[2:4] + weights[6:8]
        self.flat = torch.cat([w.detach().flatten() for w in (*matrices, *biases)])
        given, made = (data(n, self.lengths, self.layout, self.fill) for n in (6, 10))
        self.sizes = given, made
        asked = (self.rnn, *NO_DROPOUT, TRAINING, given)
        _, size = self.device.call("cudnn_rnn_temp_space", *asked)
        self.reserve = size, self.device.put(torch.zeros(size, dtype=torch.uint8))
        self.weights = self.flat.nbytes, self.device.put(self.flat)
        self.places = [self.device.put(self.stored(t)) for t in (self.x, self.y)]
        self.states = [self.device.put(t) for t in (self.hx, torch.zeros(2, 3, 5))]

    def stored(self, t: torch.Tensor) -> torch.Tensor:
        """(time, sequence, vector) as it lies in memory."""
        if self.layout == PACKED:
            return pack_padded_sequence(t, torch.tensor(self.lengths)).data
        return t.transpose(0, 1) if self.layout == BATCH_MAJOR else t

    def got(self, place: int, like: torch.Tensor) -> torch.Tensor:
        found = self.device.get(place, self.stored(like))
        return found.transpose(0, 1) if self.layout == BATCH_MAJOR else found

    def forward(self, **changes: Any) -> None:
        """``changes``: other values of a message's fields."""
        fields = {
            "rnn": self.rnn, "dropout": NO_DROPOUT, "mode": TRAINING,
            "x": (self.sizes[0], self.places[0]), "y": (self.sizes[1], self.places[1]),
            "h": (state(2, 3, 5), *self.states), "c": ([], 0, 0), "weights": self.weights,
            "work": (0, 0), "reserve": self.reserve, **changes,
        }  # fmt: skip
        rnn, dropout, mode, *groups = fields.values()
        self.device.call(
            "cudnn_rnn_forward", rnn, *dropout, mode, *(v for group in groups for v in group)
        )

    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Output, padded, and last states."""
        lengths = torch.tensor(self.lengths)
        packed = pack_padded_sequence(self.x, lengths, enforce_sorted=False)
        y, hy = self.module(packed, self.hx)
        return pad_packed_sequence(y, total_length=7)[0], hy


@pytest.mark.parametrize("layout", [SEQUENCE_MAJOR, BATCH_MAJOR])
@pytest.mark.parametrize("fill", [b"", struct.pack("<f", -2.5)], ids=["blank", "filled"])
def test_padding_is_left_out_and_filled(device: CudnnDevice, layout: int, fill: bytes) -> None:
    layer = Layer(device, (3, 7, 5), layout, fill)
    layer.forward()
    wanted, hy = (t.detach() for t in layer.expected())
    for sequence, length in enumerate(layer.lengths):
        wanted[length:, sequence] = -2.5 if fill else 0
    torch.testing.assert_close(layer.got(layer.places[1], layer.y), wanted)
    torch.testing.assert_close(device.get(layer.states[1], hy), hy)


def test_packed_sequences_lie_one_step_after_the_other(device: CudnnDevice) -> None:
    layer = Layer(device, (7, 5, 3), PACKED)
    layer.forward()
    wanted, hy = (t.detach() for t in layer.expected())
    stored = layer.stored(wanted)
    torch.testing.assert_close(device.get(layer.places[1], stored), stored)
    torch.testing.assert_close(device.get(layer.states[1], hy), hy)


def test_states_that_are_not_given_are_zero_and_not_written(device: CudnnDevice) -> None:
    layer = Layer(device)
    layer.forward(h=([], 0, 0), mode=INFERENCE, reserve=(0, 0))
    layer.hx.zero_()
    torch.testing.assert_close(device.get(layer.places[1], layer.y), layer.expected()[0].detach())


def _backward(layer: Layer, dy: torch.Tensor, add: int, out: int) -> tuple[int, int]:
    """The places of dx and of dhx."""
    device = layer.device
    dx, dhx = device.put(torch.zeros_like(layer.x)), device.put(torch.zeros(2, 3, 5))
    place = device.put(layer.stored(dy))
    x, y = layer.sizes
    spaces = (*layer.weights, 0, 0, *layer.reserve)
    device.call(
        "cudnn_rnn_backward_data", layer.rnn, *NO_DROPOUT, y, layer.places[1], place, x, dx,
        state(2, 3, 5), layer.states[0], 0, dhx, [], 0, 0, 0, *spaces,
    )  # fmt: skip
    device.call(
        "cudnn_rnn_backward_weights", layer.rnn, *NO_DROPOUT, add, x, layer.places[0],
        state(2, 3, 5), layer.states[0], y, layer.places[1], layer.weights[0], out, 0, 0,
        *layer.reserve,
    )  # fmt: skip
    return dx, dhx


@pytest.mark.parametrize("add", [ADD, SET], ids=["added", "set"])
def test_gradients_of_weights_are_added_or_set(device: CudnnDevice, add: int) -> None:
    layer = Layer(device, (3, 7, 5), BATCH_MAJOR)
    layer.forward()
    dy, before = torch.randn(7, 3, 10), torch.ones_like(layer.flat)
    out = device.put(before)
    dx, dhx = _backward(layer, dy, add, out)
    leaves = layer.x.requires_grad_(), layer.hx.requires_grad_()
    y, _ = layer.expected()
    weights = list(layer.module.parameters())
    found = torch.autograd.grad(y, [*leaves, *weights], dy)
    torch.testing.assert_close(layer.got(dx, layer.x), found[0])
    torch.testing.assert_close(device.get(dhx, found[1]), found[1])
    ordered = [*found[2:4], *found[6:8], *found[4:6], *found[8:10]]
    flat = torch.cat([g.flatten() for g in ordered])
    torch.testing.assert_close(device.get(out, flat), flat + before * (add == ADD))


def test_weights_of_a_layer_are_where_torch_expects_them(device: CudnnDevice) -> None:
    """Gates one after the other; each matrix and bias inside the weight space, and none twice."""
    network = rnn(LSTM, direction=1, projection=3, layers=2)
    (size,) = device.call("cudnn_rnn_weight_space", network)
    module = nn.LSTM(6, 5, num_layers=2, bidirectional=True, proj_size=3)
    assert size == 4 * sum(p.numel() for p in module.parameters())
    space = device.put(torch.zeros(size // 4))
    taken = torch.zeros(size // 4)
    for number in range(4):
        (params,) = device.call("cudnn_rnn_weight_params", network, number, size, space)
        assert len(params) == 9
        for matrix, bias in params:
            for offset, (_, sizes, strides) in [matrix, bias] if bias else [matrix]:
                assert strides == [sizes[1] * sizes[2], sizes[2], 1]
                taken[offset // 4 : offset // 4 + sizes[1] * sizes[2]] += 1
        gates = [params[gate][0][0] for gate in range(4)]
        assert [b - a for a, b in pairwise(gates)] == [4 * 5 * 6] * 3
    assert taken.eq(1).all()


def test_an_lstm_without_projection_has_none(device: CudnnDevice) -> None:
    (size,) = device.call("cudnn_rnn_weight_space", rnn())
    space = device.put(torch.zeros(size // 4))
    (params,) = device.call("cudnn_rnn_weight_params", rnn(), 0, size, space)
    assert params[8] == [[], []]


def test_dropout_states_are_set_by_a_seed_and_move_on(device: CudnnDevice) -> None:
    (size,) = device.call("cudnn_dropout_states")
    place = device.put(torch.zeros(size, dtype=torch.uint8))
    network = rnn(RELU, layers=2)
    drops = (0.5, place, size, 0)
    x = data(6, (7, 7, 7), SEQUENCE_MAJOR)
    (_, reserve) = device.call("cudnn_rnn_temp_space", network, *drops, TRAINING, x)
    (without,) = device.call("cudnn_rnn_temp_space", network, *NO_DROPOUT, TRAINING, x)[1:]
    assert reserve == without + 7 * 3 * 5  # a byte for each element between the layers
    device.call("cudnn_dropout_init", 0.5, place, size, 2**64 - 1)
    assert device.memory.read(place, size) == struct.pack("<QQ", 2**64 - 1, 0)
    with pytest.raises(CallError):
        device.call("cudnn_dropout_init", 0.5, place, size - 1, 1)
    with pytest.raises(CallError) as refused:
        device.call("cudnn_dropout_init", 0.5, 4096, size, 1)
    assert refused.value.code == ILLEGAL_ADDRESS


def _changed(at: int, value: int) -> list[int]:
    return [value if i == at else n for i, n in enumerate(rnn(GRU, direction=1))]


NETWORKS = {
    "an algorithm that is compiled": (_changed(0, 2), NOT_SUPPORTED, "algorithm 2"),
    "an unknown mode": (_changed(1, 4), NOT_SUPPORTED, "mode 4"),
    "one bias": (_changed(2, 1), NOT_SUPPORTED, "bias mode 1"),
    "an unknown direction": (_changed(3, 2), NOT_SUPPORTED, "direction mode 2"),
    "no first matrix": (_changed(4, 1), NOT_SUPPORTED, "input mode 1"),
    "integers": (_changed(5, 4), NOT_SUPPORTED, "int32"),
    "an unknown type": (_changed(5, 99), NOT_SUPPORTED, "data type 99"),
    "no input": (_changed(8, 0), INVALID_VALUE, "sizes"),
    "a projection to more": (_changed(10, 6), INVALID_VALUE, "sizes"),
    "a projection of a GRU": (_changed(10, 3), NOT_SUPPORTED, "projection"),
    "layers without end": (_changed(11, 2**62), INVALID_VALUE, "bytes"),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_networks_that_cannot_be_computed_are_refused_by_name(
    device: CudnnDevice, case: str
) -> None:
    network, code, what = NETWORKS[case]
    with pytest.raises(CallError) as refused:
        device.call("cudnn_rnn_weight_space", network)
    assert refused.value.code == code
    assert what in refused.value.text


def _with_data(layer: Layer, **changes: Any) -> dict[str, Any]:
    names = ("kind", "layout", "longest", "batch", "vector", "lengths", "fill")
    raw = dict(zip(names, layer.sizes[0], strict=True))
    return {"x": ([*{**raw, **changes}.values()], layer.places[0])}


WRONG = {
    # what does not fit: changes of a forward, the code
    "weights": (lambda a: {"weights": (a.weights[0] - 1, a.weights[1])}, INVALID_VALUE),
    "weights of others": (lambda a: {"weights": (a.weights[0], 4096)}, ILLEGAL_ADDRESS),
    "a work space of others": (lambda a: {"work": (8, 4096)}, ILLEGAL_ADDRESS),
    "a reserve space": (lambda a: {"reserve": (a.reserve[0] - 1, a.reserve[1])}, INVALID_VALUE),
    "a reserve space of others": (lambda a: {"reserve": (a.reserve[0], 4096)}, ILLEGAL_ADDRESS),
    "an input of others": (lambda a: {"x": (a.sizes[0], 4096)}, ILLEGAL_ADDRESS),
    "an output of others": (lambda a: {"y": (a.sizes[1], 4096)}, ILLEGAL_ADDRESS),
    "a state of others": (lambda a: {"h": (state(2, 3, 5), 4096, 0)}, ILLEGAL_ADDRESS),
    "a last state of others": (lambda a: {"h": (state(2, 3, 5), 0, 4096)}, ILLEGAL_ADDRESS),
    "a state without a tensor": (lambda a: {"h": ([], a.states[0], 0)}, INVALID_VALUE),
    "a state of another size": (lambda a: {"h": (state(1, 3, 5), a.states[0], 0)}, INVALID_VALUE),
    "dropout states of others": (lambda a: {"dropout": (0.5, 4096, 16, 0)}, ILLEGAL_ADDRESS),
    "dropout of more than all": (lambda a: {"dropout": (1.5, 4096, 16, 0)}, INVALID_VALUE),
    "another vector": (lambda a: _with_data(a, vector=7), INVALID_VALUE),
    "another type": (lambda a: _with_data(a, kind=2), INVALID_VALUE),
    "fewer lengths": (lambda a: _with_data(a, lengths=bytes(8)), INVALID_VALUE),
    "longer than the longest": (lambda a: _with_data(a, longest=6), INVALID_VALUE),
    "other lengths": (lambda a: _with_data(a, lengths=struct.pack("<3i", 7, 7, 6)), INVALID_VALUE),
    "empty sequences": (lambda a: _with_data(a, lengths=bytes(12)), NOT_SUPPORTED),
    "an unknown layout": (lambda a: _with_data(a, layout=3), NOT_SUPPORTED),
    "not sorted": (
        lambda a: _with_data(a, layout=PACKED, lengths=struct.pack("<3i", 5, 7, 6)), INVALID_VALUE),
    "half an element": (lambda a: _with_data(a, fill=b"12"), INVALID_VALUE),
    "sequences without end": (lambda a: _with_data(a, longest=2**62), ILLEGAL_ADDRESS),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_ends_in_an_error_and_nothing_is_written(
    device: CudnnDevice, case: str
) -> None:
    layer = Layer(device)
    changes, code = WRONG[case]
    with pytest.raises(CallError) as refused:
        layer.forward(**changes(layer))
    assert refused.value.code == code
    assert "\n" not in refused.value.text
    assert layer.got(layer.places[1], layer.y).eq(77).all()


MALFORMED: dict[str, dict[str, Any]] = {
    "numbers": {"rnn": rnn()[:-1]},
    "text": {"rnn": [*rnn()[:-1], b"1"]},
    "no data": {"x": ([], 0)},
    "data without lengths": {"x": ([0, 0, 7, 3, 6, 7, b""], 0)},
    "lengths of three bytes": {"x": ([0, 0, 7, 3, 6, b"123", b""], 0)},
    "a size that is none": {"x": ([0, 0, 7, 3, b"6", bytes(12), b""], 0)},
    "a fill that is none": {"x": ([0, 0, 7, 3, 6, bytes(12), 0], 0)},
    "a state that is none": {"h": ([0, [1]], 4096, 0)},
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_description_breaks_the_protocol(device: CudnnDevice, case: str) -> None:
    layer = Layer(device)
    with pytest.raises(ProtocolError):
        layer.forward(**MALFORMED[case])
