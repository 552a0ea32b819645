"""Matrix products of the CPU device against torch.matmul, on memory of the test's own."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from blas_device import PLAIN, Device, column_major, host, operate, sample

from mnemosyne.server.devices.cpu import algorithms
from mnemosyne.server.errors import ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, CallError

CODE = {
    torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14, torch.int8: 3,
    torch.int32: 10, torch.complex64: 4, torch.complex128: 5,
}  # fmt: skip


@pytest.fixture
def device() -> Device:
    torch.manual_seed(0)
    return Device()


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("transa", [0, 1, 2])
@pytest.mark.parametrize("transb", [0, 1, 2])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (1, 1), (-0.5, 2), (0, 3)])
def test_gemm(device: Device, letter: str, transa: int, transb: int, alpha, beta) -> None:
    dtype, (m, n, k) = PLAIN[letter], (5, 7, 3)
    a = sample(*((k, m) if transa else (m, k)), dtype=dtype)
    b = sample(*((n, k) if transb else (k, n)), dtype=dtype)
    c = sample(m, n, dtype=dtype)
    expected = alpha * operate(a, transa) @ operate(b, transb) + beta * c
    stored = column_major(c if beta else c * float("nan"), 9)
    pa, pb, pc = (device.put(t) for t in (column_major(a, 8), column_major(b, 11), stored))
    device.call(
        f"cublas{letter}gemm_v2", 1, transa, transb, m, n, k, host(alpha, dtype), pa, 8, pb, 11,
        host(beta, dtype), pc, 9,
    )  # fmt: skip
    result = device.get(pc, stored)
    torch.testing.assert_close(result[:, :m].mT, expected)
    assert result[:, m:].isnan().all()  # the padding is nobody's


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize(("stride_a", "stride_b"), [(1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("beta", [0, 0.5])
def test_gemm_strided_batched(device: Device, letter: str, stride_a, stride_b, beta) -> None:
    dtype, (count, m, n, k) = PLAIN[letter], (4, 5, 6, 3)
    a = sample(count if stride_a else 1, m, k, dtype=dtype)
    b = sample(count if stride_b else 1, n, k, dtype=dtype)
    c = sample(count, m, n, dtype=dtype)
    expected = 2 * a @ b.mT + beta * c
    stored = column_major(c, 5)
    pa, pb, pc = (device.put(t) for t in (column_major(a, 7), column_major(b, 6), stored))
    device.call(
        f"cublas{letter}gemmStridedBatched", 1, 0, 1, m, n, k, host(2, dtype), pa, 7,
        stride_a * 7 * k, pb, 6, stride_b * 6 * k, host(beta, dtype), pc, 5, 5 * n, count,
    )  # fmt: skip
    torch.testing.assert_close(device.get(pc, stored).mT, expected)


EX = [
    (torch.float32, torch.float32, 68), (torch.float32, torch.float32, 77),
    (torch.float64, torch.float64, 70), (torch.float16, torch.float16, 68),
    (torch.float16, torch.float16, 64), (torch.bfloat16, torch.bfloat16, 68),
    (torch.float16, torch.float32, 68), (torch.bfloat16, torch.float32, 68),
    (torch.int8, torch.int32, 72), (torch.complex64, torch.complex64, 68),
]  # fmt: skip
SCALE = {
    64: torch.float16,
    68: torch.float32,
    77: torch.float32,
    70: torch.float64,
    72: torch.int32,
}


@pytest.mark.parametrize(("operand", "result", "compute"), EX)
@pytest.mark.parametrize("beta", [0, 1])
def test_gemm_ex(device: Device, operand, result, compute: int, beta: int) -> None:
    (m, n, k), scale = (4, 6, 8), SCALE[compute]
    scale = torch.complex64 if operand.is_complex else scale
    a, b = sample(k, m, dtype=operand), sample(k, n, dtype=operand)
    c = sample(m, n, dtype=result)
    wide = torch.complex128 if operand.is_complex else torch.float64
    expected = (a.mT.to(wide) @ b.to(wide) + beta * c.to(wide)).to(result)
    stored = column_major(c if beta or result is torch.int32 else c * float("nan"), m)
    pa, pb, pc = (device.put(t) for t in (column_major(a, k), column_major(b, k), stored))
    device.call(
        "cublasGemmEx", 1, 1, 0, m, n, k, host(1, scale), pa, CODE[operand], k, pb, CODE[operand],
        k, host(beta, scale), pc, CODE[result], m, compute, -1,
    )  # fmt: skip
    torch.testing.assert_close(device.get(pc, stored).mT, expected, rtol=2e-2, atol=2e-2)


def test_scalars_may_lie_on_the_device(device: Device) -> None:
    a, c = sample(3, 3), sample(3, 3)
    pa, pc = device.put(column_major(a, 3)), device.put(column_major(c, 3))
    alpha, beta = device.put(torch.tensor([3.0])), device.put(torch.tensor([-1.0]))
    device.call("cublasSgemm_v2", 1, 0, 0, 3, 3, 3, alpha, pa, 3, pa, 3, beta, pc, 3)
    torch.testing.assert_close(device.get(pc, c).mT, 3 * a @ a - c)


def test_a_product_over_nothing_is_beta_c(device: Device) -> None:
    c = sample(3, 3)
    pc = device.put(column_major(c, 3))
    one, two = host(1, torch.float32), host(2, torch.float32)
    device.call("cublasSgemm_v2", 1, 0, 0, 3, 3, 0, one, 0, 3, 0, 1, two, pc, 3)
    torch.testing.assert_close(device.get(pc, c).mT, 2 * c)
    assert device.call("cublasSgemm_v2", 1, 0, 0, 0, 3, 3, one, 0, 3, 0, 3, two, 0, 3) is None


GEMM = {
    "transa": 0, "transb": 0, "m": 4, "n": 4, "k": 4, "alpha": host(1, torch.float32), "A": 0,
    "Atype": 0, "lda": 4, "B": 0, "Btype": 0, "ldb": 4, "beta": host(0, torch.float32), "C": 0,
    "Ctype": 0, "ldc": 4, "compute": 68, "algo": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"lda": 3}, INVALID_VALUE),
        ({"ldc": 0}, INVALID_VALUE),
        ({"m": -1}, INVALID_VALUE),
        ({"transa": 3}, INVALID_VALUE),
        ({"alpha": b"123"}, INVALID_VALUE),
        ({"Atype": 2}, NOT_SUPPORTED),
        ({"Atype": 28, "Btype": 28}, NOT_SUPPORTED),
        ({"compute": 64}, NOT_SUPPORTED),
        ({"compute": 12345}, NOT_SUPPORTED),
        ({"A": 4096}, ILLEGAL_ADDRESS),
        ({"alpha": 4096}, ILLEGAL_ADDRESS),
        ({"n": 1 << 30}, ILLEGAL_ADDRESS),
        ({"ldc": 1 << 30}, ILLEGAL_ADDRESS),
    ],
)
def test_what_cannot_be_done_is_refused(device: Device, change: dict[str, Any], code: int) -> None:
    pointers = {name: device.put(torch.zeros(16)) for name in "ABC"}
    with pytest.raises(CallError) as refused:
        device.call("cublasGemmEx", 1, *{**GEMM, **pointers, **change}.values())
    assert refused.value.code == code


def test_results_that_overlap_are_refused(device: Device) -> None:
    p, one = device.put(torch.zeros(64)), host(1, torch.float32)
    with pytest.raises(CallError) as refused:
        device.call(
            "cublasSgemmStridedBatched", 1, 0, 0, 4, 4, 4, one, p, 4, 0, p, 4, 0, one, p, 4, 0, 2
        )
    assert refused.value.code == NOT_SUPPORTED


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("beta", [0, 2])
def test_gemv(device: Device, letter: str, trans: int, beta: int) -> None:
    dtype, (m, n) = PLAIN[letter], (5, 3)
    a = sample(m, n, dtype=dtype)
    x, y = sample(m if trans else n, 2, dtype=dtype), sample(n if trans else m, 3, dtype=dtype)
    expected = 2 * operate(a, trans) @ x[:, 0] + (beta * y[:, 0] if beta else 0)
    if not beta:
        y[:, 0] = float("nan")
    pa, px, py = device.put(column_major(a, 6)), device.put(x), device.put(y)
    two = host(2, dtype)
    device.call(
        f"cublas{letter}gemv_v2", 1, trans, m, n, two, pa, 6, px, 2, host(beta, dtype), py, 3
    )
    result = device.get(py, y)
    torch.testing.assert_close(result[:, 0], expected)
    torch.testing.assert_close(result[:, 1:], y[:, 1:])


def test_dot(device: Device) -> None:
    x, y = sample(10), sample(20)
    px, py, where = device.put(x), device.put(y), device.put(torch.zeros(1))
    (data,) = device.call("cublasSdot_v2", 1, 10, px, 1, py, 2, 0)
    expected = torch.dot(x, y[::2])
    torch.testing.assert_close(torch.tensor(struct.unpack("<f", data)[0]), expected)
    assert device.call("cublasSdot_v2", 1, 10, px, 1, py, 2, where) is None
    torch.testing.assert_close(device.get(where, torch.zeros(1))[0], expected)


class Lt:
    """A cublasLt product of fp32 (m, k) by (k, n), with attributes to choose."""

    def __init__(self, device: Device, m: int = 8, n: int = 5, k: int = 3) -> None:
        self.device = device
        self.a, self.b, self.d = sample(k, m), sample(k, n), torch.full((m, n), float("nan"))
        self.pa, self.pb = device.put(column_major(self.a, k)), device.put(column_major(self.b, k))
        self.pd = device.put(column_major(self.d, m))
        self.layouts = [[0, k, m, k, []], [0, k, n, k, []], *[[0, m, n, m, []]] * 2]
        self.product = self.a.mT @ self.b

    def run(self, attributes: dict[int, int], alpha: float = 1, beta: float = 0) -> torch.Tensor:
        layouts, one = self.layouts, lambda v: struct.pack("<f", v)
        desc = [68, 0, [[n, encode(n, v)] for n, v in {3: 1, **attributes}.items()]]
        offered = self.device.call("lt_heuristic", desc, *layouts, [], 1)
        assert offered == ([[algorithms.DEFAULT, 0, 1.0]],)
        self.device.call(
            "lt_matmul", 0, desc, one(alpha), self.pa, layouts[0], self.pb, layouts[1], one(beta),
            self.pd, layouts[2], self.pd, layouts[3], bytes(64), 0, 0,
        )  # fmt: skip
        return self.device.get(self.pd, self.d.mT).mT


POINTERS = (8, 10, 11, 12, 13, 17, 18, 19, 20, 21)  # attributes of 64 bits


def encode(attribute: int, value: int) -> bytes:
    return struct.pack("<q" if attribute in POINTERS else "<i", value)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def test_lt_plain_with_alpha_and_beta(device: Device) -> None:
    product = Lt(device)
    torch.testing.assert_close(product.run({}), product.product)
    torch.testing.assert_close(product.run({}, 2, 3), 5 * product.product)


@pytest.mark.parametrize(
    ("epilogue", "after"),
    [(4, lambda x: x), (6, torch.relu), (36, gelu)],
    ids=["bias", "relu", "gelu"],
)
def test_lt_bias_and_activation(device: Device, epilogue: int, after: Any) -> None:
    product, bias = Lt(device), sample(8)
    result = product.run({7: epilogue, 8: device.put(bias)}, alpha=2)
    torch.testing.assert_close(result, after(2 * product.product + bias[:, None]))


@pytest.mark.parametrize(("epilogue", "after"), [(2, torch.relu), (32, gelu)])
def test_lt_activation(device: Device, epilogue: int, after: Any) -> None:
    product = Lt(device)
    torch.testing.assert_close(product.run({7: epilogue}), after(product.product))


@pytest.mark.parametrize("bias_too", [False, True])
def test_lt_gelu_keeps_its_input_for_the_gradient(device: Device, bias_too: bool) -> None:
    product, bias, aux = Lt(device), sample(8), torch.zeros(5, 8)
    where = {11: device.put(aux), 12: 8}
    given = {7: 160 | 4, 8: device.put(bias)} if bias_too else {7: 160}
    before = product.product + (bias[:, None] if bias_too else 0)
    torch.testing.assert_close(product.run({**given, **where}), gelu(before))
    torch.testing.assert_close(device.get(where[11], aux).mT, before)

    gradient = torch.ops.aten.gelu_backward(product.product, before, approximate="tanh")
    torch.testing.assert_close(product.run({7: 192, **where}), gradient)
    sums = device.put(torch.zeros(8))
    torch.testing.assert_close(product.run({7: 208, 8: sums, **where}), gradient)
    torch.testing.assert_close(device.get(sums, torch.zeros(8)), gradient.sum(1))


@pytest.mark.parametrize("bias_too", [False, True])
def test_lt_relu_keeps_its_mask_for_the_gradient(device: Device, bias_too: bool) -> None:
    product, bias, mask = Lt(device), sample(8), torch.zeros(5, 16, dtype=torch.uint8)
    where = {11: device.put(mask), 12: 128}
    given = {7: 130 | 4, 8: device.put(bias)} if bias_too else {7: 130}
    before = product.product + (bias[:, None] if bias_too else 0)
    torch.testing.assert_close(product.run({**given, **where}), torch.relu(before))

    gradient = product.product * (before > 0)
    torch.testing.assert_close(product.run({7: 136, **where}), gradient)
    sums = device.put(torch.zeros(8))
    torch.testing.assert_close(product.run({7: 152, 8: sums, **where}), gradient)
    torch.testing.assert_close(device.get(sums, torch.zeros(8)), gradient.sum(1))


def test_lt_bias_gradients_of_the_operands(device: Device) -> None:
    product, sums = Lt(device), device.put(torch.zeros(8))
    torch.testing.assert_close(product.run({7: 256, 8: sums}), product.product)
    torch.testing.assert_close(device.get(sums, torch.zeros(8)), product.a.sum(0))
    torch.testing.assert_close(product.run({7: 512, 8: sums}), product.product)
    torch.testing.assert_close(device.get(sums, torch.zeros(5)), product.b.sum(0))


def test_lt_row_major_operands(device: Device) -> None:
    product = Lt(device)
    row = [[1, struct.pack("<i", 1)]]
    product.layouts[0] = [0, 3, 8, 8, row]
    product.pa = device.put(product.a)
    torch.testing.assert_close(product.run({}), product.product)


def test_lt_batches(device: Device) -> None:
    a, b = sample(4, 3, 8), sample(4, 3, 5)
    d = torch.zeros(4, 5, 8)
    pa, pb, pd = device.put(a.mT), device.put(b.mT), device.put(d)

    def layout(rows: int, columns: int) -> list[Any]:
        batch = [[5, struct.pack("<i", 4)], [6, struct.pack("<q", rows * columns)]]
        return [0, rows, columns, rows, batch]

    layouts, one = (layout(3, 8), layout(3, 5), layout(8, 5)), struct.pack("<f", 1)
    device.call(
        "lt_matmul", 0, [68, 0, [[3, encode(3, 1)]]], one, pa, layouts[0], pb, layouts[1], bytes(4),
        pd, layouts[2], pd, layouts[2], b"", 0, 0,
    )  # fmt: skip
    torch.testing.assert_close(device.get(pd, d).mT, a.mT @ b)


@pytest.mark.parametrize(
    "attributes",
    [{7: 3}, {17: 4096}, {2: 3}, {31: 2}, {5: 1}],
    ids=["epilogue", "scale pointer", "pointer mode", "scale mode", "transposed C"],
)
def test_lt_refuses_what_it_does_not_understand(device: Device, attributes) -> None:
    with pytest.raises(CallError) as refused:
        Lt(device).run(attributes)
    assert refused.value.code == NOT_SUPPORTED


def test_algorithms_are_values_of_attributes(device: Device) -> None:
    (algorithm,) = device.call("lt_algo_init", 68, 0, 0, 0, 0, 0, 0)
    assert algorithm == algorithms.DEFAULT
    assert device.call("lt_algo_get", algorithm, 2, 4) == (struct.pack("<i", 1), 4)
    (changed,) = device.call("lt_algo_set", algorithm, 1, struct.pack("<i", 18))
    assert device.call("lt_algo_get", changed, 1, 4) == (struct.pack("<i", 18), 4)
    assert device.call("lt_algo_get", changed, 8, 0) == (b"", 2)
    for bad in (("lt_algo_set", algorithm, 0, bytes(4)), ("lt_algo_set", algorithm, 1, b""),
                ("lt_algo_set", b"", 1, bytes(4)), ("lt_algo_get", algorithm, 99, 4),
                ("lt_algo_get", algorithm, 1, 3)):  # fmt: skip
        with pytest.raises(CallError) as refused:
            device.call(*bad)
        assert refused.value.code == INVALID_VALUE
    with pytest.raises(CallError) as refused:
        device.call("lt_algo_init", 68, 0, 3, 3, 3, 3, 0)
    assert refused.value.code == NOT_SUPPORTED
