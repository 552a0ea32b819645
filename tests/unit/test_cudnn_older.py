"""Calls of cuDNN's older API on the CPU device, on memory of the test's own."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_cudnn import CudnnDevice

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.errors import ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, CallError

FLOAT, DOUBLE, INT8 = 0, 1, 3  # cudnnDataType_t
SOFTMAX, PROBABILITIES = 1, 0
ZERO, SKIP = 0, 1  # cudnnCTCGradMode_t
STEPS, BATCH, LETTERS = 6, 2, 4


@pytest.fixture
def device() -> CudnnDevice:
    torch.manual_seed(0)
    return CudnnDevice()


def shape(tensor: torch.Tensor, kind: int = FLOAT) -> list[Any]:
    return [kind, list(tensor.shape), list(tensor.stride())]


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def ctc_values(device: CudnnDevice, **changes: Any) -> list[Any]:
    """The fields of a loss with labels from the host: two samples, of labels 1 2 and 3."""
    x = torch.randn(STEPS, BATCH, LETTERS)
    fields = {
        "ctc": [FLOAT, SOFTMAX, SKIP, -1], "algo": 0, "probsDesc": shape(x), "probs": device.put(x),
        "labels": ints(1, 2, 3), "labelLengths": ints(2, 1), "inputLengths": ints(STEPS, 5),
        "costs": device.put(torch.zeros(BATCH)), "gradientsDesc": shape(x),
        "gradients": device.put(torch.full_like(x, 7)), "workspace": 0, "bytes": 0,
    }  # fmt: skip
    return list({**fields, **changes}.values())


def expected_ctc(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    loss = F.ctc_loss(
        x.log_softmax(2), torch.tensor([1, 2, 3]), (STEPS, 5), (2, 1), reduction="none"
    )
    loss.sum().backward()
    assert x.grad is not None
    return loss.detach(), x.grad


@pytest.mark.parametrize("normalization", [SOFTMAX, PROBABILITIES])
def test_a_ctc_loss_is_that_of_torch(device: CudnnDevice, normalization: int) -> None:
    x = torch.randn(STEPS, BATCH, LETTERS)
    given = x if normalization == SOFTMAX else x.softmax(2)
    values = ctc_values(device, ctc=[FLOAT, normalization, SKIP, 255], probs=device.put(given))
    device.call("cudnn_ctc_host", *values)
    loss, gradient = expected_ctc(x)
    torch.testing.assert_close(device.get(values[7], loss), loss)
    torch.testing.assert_close(device.get(values[9], gradient), gradient)


def test_only_costs_are_wanted_where_there_is_no_gradient(device: CudnnDevice) -> None:
    values = ctc_values(device, gradientsDesc=[], gradients=0)
    device.call("cudnn_ctc_host", *values)
    assert (device.get(values[7], torch.zeros(BATCH)) > 0).all()


@pytest.mark.parametrize(("mode", "left"), [(ZERO, 0.0), (SKIP, 7.0)])
def test_labels_that_do_not_fit_have_no_gradient(
    device: CudnnDevice, mode: int, left: float
) -> None:
    lengths = {"inputLengths": ints(1, 5), "ctc": [FLOAT, SOFTMAX, mode, -1]}
    values = ctc_values(device, **lengths)
    device.call("cudnn_ctc_host", *values)
    assert device.get(values[7], torch.zeros(BATCH))[0] == torch.inf
    found = device.get(values[9], torch.zeros(STEPS, BATCH, LETTERS))
    assert (found[:, 0] == left).all()
    assert (found[:, 1] != 7).all()


BAD_CTC: dict[str, tuple[dict[str, Any], int]] = {
    "no descriptor": ({"ctc": []}, INVALID_VALUE),
    "an unknown algorithm": ({"algo": 2}, INVALID_VALUE),
    "an unknown normalization": ({"ctc": [FLOAT, 2, 0, -1]}, INVALID_VALUE),
    "doubles": ({"ctc": [DOUBLE, SOFTMAX, 0, -1]}, NOT_SUPPORTED),
    "two dimensions": ({"probsDesc": [FLOAT, [6, 8], [8, 1]]}, INVALID_VALUE),
    "another gradient": ({"gradientsDesc": [FLOAT, [6, 2, 3], [6, 3, 1]]}, INVALID_VALUE),
    "too few labels": ({"labels": ints(1, 2)}, INVALID_VALUE),
    "too few lengths": ({"labelLengths": ints(3)}, INVALID_VALUE),
    "a negative length": ({"labelLengths": ints(-1, 4)}, INVALID_VALUE),
    "a label that is too long": ({"ctc": [FLOAT, SOFTMAX, 0, 1]}, INVALID_VALUE),
    "an input that is too long": ({"inputLengths": ints(7, 5)}, INVALID_VALUE),
    "an unknown letter": ({"labels": ints(1, 4, 3)}, INVALID_VALUE),
    "a negative letter": ({"labels": ints(1, -1, 3)}, INVALID_VALUE),
    "foreign memory": ({"costs": 64}, ILLEGAL_ADDRESS),
}


@pytest.mark.parametrize("case", BAD_CTC)
def test_a_ctc_loss_that_cannot_be_fails_in_one_line(device: CudnnDevice, case: str) -> None:
    changes, code = BAD_CTC[case]
    with pytest.raises(CallError) as error:
        device.call("cudnn_ctc_host", *ctc_values(device, **changes))
    assert error.value.code == code
    assert "\n" not in error.value.text


@pytest.mark.parametrize(
    "changes", [{"ctc": [0]}, {"ctc": [0, 1, 0, b""]}, {"labels": b"abc"}, {"probsDesc": [0, 1, 2]}]
)
def test_descriptors_that_are_none_break_the_protocol(
    device: CudnnDevice, changes: dict[str, Any]
) -> None:
    with pytest.raises(ProtocolError):
        device.call("cudnn_ctc_host", *ctc_values(device, **changes))


def test_labels_on_the_device_are_read_there(device: CudnnDevice) -> None:
    x = torch.randn(STEPS, BATCH, LETTERS)
    arrays = [torch.tensor(v, dtype=torch.int32) for v in ([1, 2, 3], [2, 1], [STEPS, 5])]
    values = ctc_values(device, probs=device.put(x))
    values[4:7] = [device.put(array) for array in arrays]
    device.call("cudnn_ctc", *values)
    torch.testing.assert_close(device.get(values[7], torch.zeros(BATCH)), expected_ctc(x)[0])


def test_samples_are_blended_into_what_is_there(device: CudnnDevice) -> None:
    x, grid = torch.randn(1, 2, 4, 5), torch.randn(1, 3, 3, 2)
    before = torch.randn(1, 2, 3, 3)
    y = device.put(before)
    device.call(
        "cudnn_sampler", [0, FLOAT, [1, 2, 3, 3]], 2.0, 0.5, shape(x), device.put(x),
        device.put(grid), shape(before), y,
    )  # fmt: skip
    expected = 2 * F.grid_sample(x, grid, align_corners=True) + 0.5 * before
    torch.testing.assert_close(device.get(y, before), expected)


@pytest.mark.parametrize(
    ("transformer", "code"),
    [
        ([], INVALID_VALUE),
        ([1, FLOAT, [1, 2, 3, 3]], NOT_SUPPORTED),
        ([0, FLOAT, [2, 3, 3]], NOT_SUPPORTED),
        ([0, FLOAT, [1, 2, 3, 4]], INVALID_VALUE),
        ([0, DOUBLE, [1, 2, 3, 3]], INVALID_VALUE),
    ],
)
def test_a_transformer_that_does_not_fit_is_refused(
    device: CudnnDevice, transformer: list[Any], code: int
) -> None:
    x, y = torch.zeros(1, 2, 4, 5), torch.zeros(1, 2, 3, 3)
    with pytest.raises(CallError) as error:
        device.call(
            "cudnn_sampler", transformer, 1.0, 0.0, shape(x), device.put(x),
            device.put(torch.zeros(1, 3, 3, 2)), shape(y), device.put(y),
        )  # fmt: skip
    assert error.value.code == code


MOVES = [1, FLOAT, 1, 3, [1, 0], [2, 1], [1, 2]]


def test_a_convolution_is_blended_into_what_is_there(device: CudnnDevice) -> None:
    x, w = torch.randn(2, 3, 7, 8), torch.randn(4, 3, 3, 3)
    expected = F.conv2d(x, w, padding=(1, 0), stride=(2, 1), dilation=(1, 2))
    before = torch.randn_like(expected)
    y = device.put(before)
    device.call(
        "cudnn_convolution", 0, 1, 3.0, 2.0, MOVES, shape(x), device.put(x),
        [FLOAT, 0, list(w.shape)], device.put(w), shape(before), y, 0, 0,
    )  # fmt: skip
    torch.testing.assert_close(device.get(y, before), 3 * expected + 2 * before)


def test_the_algorithm_keeps_the_precision_that_was_asked_for(device: CudnnDevice) -> None:
    x, w, y = (torch.zeros(n) for n in ((2, 3, 7, 8), (4, 3, 3, 3), (2, 4, 4, 4)))
    operands = shape(x), [FLOAT, 0, list(w.shape)], shape(y)
    for direction in range(3):
        ((found,),) = device.call("cudnn_convolution_algorithms", direction, 8, MOVES, *operands)
        assert found == [1, 0, -1.0, 0, 1, 3]
        assert device.call("cudnn_convolution_room", direction, 1, MOVES, *operands) == (0,)


@pytest.mark.parametrize(
    ("direction", "moves", "filter_", "code"),
    [
        (3, MOVES, [FLOAT, 0, [4, 3, 3, 3]], INVALID_VALUE),
        (0, [], [FLOAT, 0, [4, 3, 3, 3]], INVALID_VALUE),
        (0, [1, FLOAT, 1, 0, [1], [2, 1], [1, 2]], [FLOAT, 0, [4, 3, 3, 3]], INVALID_VALUE),
        (0, [1, FLOAT, 3, 0, *MOVES[4:]], [FLOAT, 0, [4, 3, 3, 3]], INVALID_VALUE),
        (0, MOVES, [FLOAT, 0, [4, 2, 3, 3]], INVALID_VALUE),
        (0, MOVES, [FLOAT, 2, [4, 3, 3, 3]], NOT_SUPPORTED),
    ],
)
def test_a_convolution_that_does_not_fit_is_refused(
    device: CudnnDevice, direction: int, moves: list[Any], filter_: list[Any], code: int
) -> None:
    x, y = torch.zeros(2, 3, 7, 8), torch.zeros(2, 4, 4, 4)
    with pytest.raises(CallError) as error:
        device.call("cudnn_convolution_room", direction, 1, moves, shape(x), filter_, shape(y))
    assert error.value.code == code


@pytest.mark.parametrize("mode", range(4))
def test_pooling_is_that_of_torch(device: CudnnDevice, mode: int) -> None:
    x = torch.randn(2, 3, 7, 8)
    if mode in (0, 3):
        expected = F.max_pool2d(x, (3, 2), (2, 1), (1, 1))
    else:
        expected = F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=mode == 1)
    y = device.put(torch.zeros_like(expected))
    settings = [mode, 1, 3, 2, 1, 1, 2, 1]
    device.call(
        "cudnn_pooling", settings, 1.0, 0.0, shape(x), device.put(x), shape(expected), y
    )  # fmt: skip
    torch.testing.assert_close(device.get(y, expected), expected)


def test_bytes_are_pooled_as_they_are(device: CudnnDevice) -> None:
    x = torch.randint(-128, 128, (1, 2, 4, 4), dtype=torch.int8)
    expected = F.max_pool2d(x.float(), 2).to(torch.int8)
    y = device.put(torch.zeros_like(expected))
    device.call(
        "cudnn_pooling", [0, 1, 2, 2, 0, 0, 2, 2], 1.0, 0.0, shape(x, INT8), device.put(x),
        shape(expected, INT8), y,
    )  # fmt: skip
    assert device.get(y, expected).equal(expected)
