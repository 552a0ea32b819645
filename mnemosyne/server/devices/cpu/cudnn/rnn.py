"""cuDNN's recurrent layers on the CPU device.

How this works: the forward pass keeps its input and dropout masks in the reserve space. The
backward pass of the data runs the layers again from there, under autograd, and leaves the gradients
of the weights in the reserve space, where the backward pass of the weights finds them.
Source: cudnn_adv.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.cudnn.dropout import Dropout
from mnemosyne.server.devices.cpu.cudnn.rnn_content import LSTM, Data, Network, Part
from mnemosyne.server.devices.cpu.cudnn.rnn_layers import Dropped, Order, Stack, read, write
from mnemosyne.server.devices.cpu.cudnn.rnn_reserve import Reserve
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Handlers, Outputs

_TRAINING = 1  # CUDNN_FWD_MODE_TRAINING
_ADD = 0  # CUDNN_WGRAD_MODE_ADD


def _weight_space(s: CpuSession, handle: int, stream: int, rnn: list[Any]) -> Outputs:
    s.check_cudnn(handle, stream)
    return (Network.of(rnn).weight_bytes,)


def _weight_params(
    s: CpuSession, handle: int, stream: int, rnn: list[Any], pseudo_layer: int, size: int,
    start: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    network = Network.of(rnn)
    _need(0 <= pseudo_layer < network.pseudo_layers, f"without a pseudo-layer {pseudo_layer}")
    _need(size >= network.weight_bytes, f"of {network.weight_bytes} bytes of weights, not {size}")
    s.memory.check(start, size)
    pairs = network.linear_layers(pseudo_layer)
    return ([[_param(part, rnn[5], network) for part in pair] for pair in pairs],)


def _param(part: Part | None, kind: int, network: Network) -> list[Any]:
    """[byte offset, tensor of (1, rows, columns)], or an empty list."""
    if part is None:
        return []
    sizes, strides = [1, part.rows, part.columns], [part.numel, part.columns, 1]
    return [part.offset * network.dtype.itemsize, [kind, sizes, strides]]


def _need(fits: bool, what: str) -> None:
    if not fits:
        raise CallError(INVALID_VALUE, f"a cuDNN RNN {what}")


def _temp_space(
    s: CpuSession, handle: int, stream: int, rnn: list[Any], share: float, states: int,
    states_bytes: int, seed: int, mode: int, x_data: list[Any],
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    Dropout(share, states, states_bytes, seed).check(s.memory)
    reserve = Reserve(Network.of(rnn), Data.of(x_data), share > 0)
    return (0, reserve.bytes if mode == _TRAINING else 0)


@dataclass(frozen=True, slots=True)
class _Call:
    """What forward and backward have in common."""

    s: CpuSession
    network: Network
    dropout: Dropout
    input: Data
    output: Data

    @classmethod
    def of(
        cls, s: CpuSession, place: tuple[int, int], rnn: list[Any], dropout: Dropout,
        x_data: list[Any], y_data: list[Any],
    ) -> _Call:  # fmt: skip
        """``place``: handle and stream. Raises ProtocolError and CallError."""
        s.check_cudnn(*place)
        dropout.check(s.memory)
        call = cls(s, Network.of(rnn), dropout, Data.of(x_data), Data.of(y_data))
        network, sizes = call.network, (call.input.vector, call.output.vector)
        wanted = network.input, network.output * network.directions
        _need(sizes == wanted, f"with vectors of {sizes}, not {wanted}")
        _need(call.input.dtype is network.dtype, f"of {network.dtype} with {call.input.dtype}")
        call.input.check_goes_with(call.output)
        return call

    @property
    def reserve(self) -> Reserve:
        return Reserve(self.network, self.input, self.dropout.share > 0)

    def check_spaces(self, weights: int, work: tuple[int, int], reserve: tuple[int, int]) -> None:
        """``weights``: bytes of the weight space; the others: (bytes, address)."""
        needed = self.network.weight_bytes
        _need(weights >= needed, f"of {needed} bytes of weights, not {weights}")
        for size, start in (work, reserve):
            if size:
                self.s.memory.check(start, size)

    def check_reserve(self, size: int) -> None:
        needed = self.reserve.bytes
        _need(size >= needed, f"that keeps {needed} bytes for its gradients, not {size}")

    def states(self, h: tuple[list[Any], int], c: tuple[list[Any], int]) -> list[_State]:
        """The memory of h, and of c in an LSTM, from (descriptor, address)."""
        found = [self._state(*h, self.network.output)]
        if self.network.mode == LSTM:
            found.append(self._state(*c, self.network.hidden))
        return found

    def _state(self, raw: list[Any], start: int, size: int) -> _State:
        sizes = (self.network.pseudo_layers, self.input.batch, size)
        if start == 0:
            return _State(sizes, None)
        self.network.check_state(raw, self.input.batch, size)
        strides = (sizes[1] * size, size, 1)
        return _State(sizes, self.s.memory.view(start, self.network.dtype, sizes, strides))

    def weights(self, start: int) -> list[list[torch.Tensor]]:
        """By pseudo-layer, in torch's order."""
        dtype = self.network.dtype
        flat = self.s.memory.view(start, dtype, (self.network.numel,), (1,))
        layers = map(self.network.parts, range(self.network.pseudo_layers))
        return [[_cut(flat, part) for part in parts] for parts in layers]


@dataclass(frozen=True, slots=True)
class _State:
    """A state's memory, if the program has given any."""

    sizes: tuple[int, int, int]
    memory: torch.Tensor | None

    def read(self, dtype: torch.dtype) -> torch.Tensor:
        if self.memory is None:
            return torch.zeros(self.sizes, dtype=dtype)
        return self.memory.to(dtype)

    def write(self, value: torch.Tensor) -> None:
        if self.memory is not None:
            self.memory.copy_(value)


def _cut(flat: torch.Tensor, part: Part) -> torch.Tensor:
    found = flat[part.offset : part.offset + part.numel]
    return found if part.columns == 1 and part.rows == part.numel else found.view(part.rows, -1)


def _forward(
    s: CpuSession, handle: int, stream: int, rnn: list[Any], share: float, dropout_states: int,
    states_bytes: int, seed: int, mode: int, x_data: list[Any], x: int, y_data: list[Any], y: int,
    h_desc: list[Any], hx: int, hy: int, c_desc: list[Any], cx: int, cy: int, weight_bytes: int,
    weights: int, work_bytes: int, work: int, reserve_bytes: int, reserve: int,
) -> Outputs:  # fmt: skip
    dropout = Dropout(share, dropout_states, states_bytes, seed)
    call = _Call.of(s, (handle, stream), rnn, dropout, x_data, y_data)
    call.check_spaces(weight_bytes, (work_bytes, work), (reserve_bytes, reserve))
    wide, out = call.network.wide, call.output.at(s.memory, y)
    states, last = call.states((h_desc, hx), (c_desc, cx)), call.states((h_desc, hy), (c_desc, cy))
    params = [[w.to(wide) for w in layer] for layer in call.weights(weights)]
    memory = call.input.at(s.memory, x)
    stack = Stack(call.network, Order.of(call.input))
    values = read(memory, stack.order)
    dropped = Dropped()
    if mode == _TRAINING:
        call.check_reserve(reserve_bytes)
        dropped = _keep(call, values, reserve)
    result, after = stack.run(values.to(wide), [one.read(wide) for one in states], params, dropped)
    write(out, result, stack.order, call.output.fill)
    for state, value in zip(last, after, strict=True):
        state.write(value)
    return None


def _keep(call: _Call, values: torch.Tensor, reserve: int) -> Dropped:
    """Fills the reserve space, with new masks."""
    memory = call.s.memory
    call.reserve.input(memory, reserve).copy_(values)
    masks = call.reserve.masks(memory, reserve)
    for mask in masks:
        mask.copy_(call.dropout.draw(memory, mask.shape))
    return Dropped(masks, call.dropout.scale)


def _backward_data(
    s: CpuSession, handle: int, stream: int, rnn: list[Any], share: float, dropout_states: int,
    states_bytes: int, seed: int, y_data: list[Any], y: int, dy: int, x_data: list[Any], dx: int,
    h_desc: list[Any], hx: int, dhy: int, dhx: int, c_desc: list[Any], cx: int, dcy: int, dcx: int,
    weight_bytes: int, weights: int, work_bytes: int, work: int, reserve_bytes: int, reserve: int,
) -> Outputs:  # fmt: skip
    dropout = Dropout(share, dropout_states, states_bytes, seed)
    call = _Call.of(s, (handle, stream), rnn, dropout, x_data, y_data)
    call.check_spaces(weight_bytes, (work_bytes, work), (reserve_bytes, reserve))
    call.check_reserve(reserve_bytes)
    call.output.at(s.memory, y)
    out, gradient = call.input.at(s.memory, dx), call.output.at(s.memory, dy)
    starts, ends, results = (
        call.states((h_desc, h), (c_desc, c)) for h, c in ((hx, cx), (dhy, dcy), (dhx, dcx))
    )
    with torch.inference_mode(False), torch.enable_grad():  # what is read here is copied
        order = Order.of(call.input)
        stack, wide = Stack(call.network, order), call.network.wide
        given = [read(gradient, order).to(wide, copy=True), *(_copy(e, wide) for e in ends)]
        leaves = _Leaves.of(call, starts, weights, reserve)
        found = leaves.gradients(stack, given)
    write(out, found[0], order, b"")
    for state, value in zip(results, found[1:], strict=False):
        state.write(value)
    _put_gradients(call, found[1 + len(results) :], reserve)
    return None


def _copy(state: _State, dtype: torch.dtype) -> torch.Tensor:
    return state.read(dtype).clone()


@dataclass(frozen=True, slots=True)
class _Leaves:
    """What there are gradients of, as leaves of autograd, and the masks to use again."""

    x: torch.Tensor
    states: list[torch.Tensor]
    weights: list[list[torch.Tensor]]
    dropped: Dropped

    @classmethod
    def of(cls, call: _Call, states: Iterable[_State], weights: int, reserve: int) -> _Leaves:
        memory, wide = call.s.memory, call.network.wide
        x = call.reserve.input(memory, reserve).to(wide, copy=True).requires_grad_()
        params = [
            [w.to(wide, copy=True).requires_grad_() for w in layer]
            for layer in call.weights(weights)
        ]
        masks = [mask.clone() for mask in call.reserve.masks(memory, reserve)]
        starts = [_copy(state, wide).requires_grad_() for state in states]
        return cls(x, starts, params, Dropped(masks, call.dropout.scale))

    def gradients(self, stack: Stack, given: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Of the input, the states and all weights."""
        result, last = stack.run(self.x, self.states, self.weights, self.dropped)
        leaves = [self.x, *self.states, *(w for layer in self.weights for w in layer)]
        return torch.autograd.grad([result, *last], leaves, given)


def _put_gradients(call: _Call, found: Iterable[torch.Tensor], reserve: int) -> None:
    flat = call.reserve.gradients(call.s.memory, reserve)
    layers = map(call.network.parts, range(call.network.pseudo_layers))
    for part, gradient in zip((p for parts in layers for p in parts), found, strict=True):
        flat[part.offset : part.offset + part.numel] = gradient.flatten()


def _backward_weights(
    s: CpuSession, handle: int, stream: int, rnn: list[Any], share: float, dropout_states: int,
    states_bytes: int, seed: int, add: int, x_data: list[Any], x: int, h_desc: list[Any], hx: int,
    y_data: list[Any], y: int, weight_bytes: int, gradients: int, work_bytes: int, work: int,
    reserve_bytes: int, reserve: int,
) -> Outputs:  # fmt: skip
    dropout = Dropout(share, dropout_states, states_bytes, seed)
    call = _Call.of(s, (handle, stream), rnn, dropout, x_data, y_data)
    call.check_spaces(weight_bytes, (work_bytes, work), (reserve_bytes, reserve))
    call.check_reserve(reserve_bytes)
    call.input.at(s.memory, x)
    call.output.at(s.memory, y)
    call.states((h_desc, hx), ([], 0))
    found = call.reserve.gradients(s.memory, reserve)
    out = s.memory.view(gradients, call.network.dtype, (call.network.numel,), (1,))
    out.copy_(out + found if add == _ADD else found)
    return None


HANDLERS: Handlers = {
    "cudnn_rnn_weight_space": _weight_space,
    "cudnn_rnn_weight_params": _weight_params,
    "cudnn_rnn_temp_space": _temp_space,
    "cudnn_rnn_forward": _forward,
    "cudnn_rnn_backward_data": _backward_data,
    "cudnn_rnn_backward_weights": _backward_weights,
}
