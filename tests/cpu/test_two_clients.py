"""Two clients of one server: neither can name what the other has, in any message there is.

How this works: for every message of the specification there are sound values, of the client's own
objects. Then each field that names an object gets the other client's, and the call must fail as it
does natively for a handle or pointer that does not exist.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from cubin_images import FakeCubin, FakeKernel, cubin, entry, fatbin
from cudnn_descriptors import graph, heuristic, plan, pointwise, tensor
from logged_server import LoggedServer, logged_server
from ring import MESSAGES, RingClient

from mnemosyne._native import fnv1a
from mnemosyne.api import SPEC, Field, Kind, Message
from mnemosyne.api.spec import Way
from mnemosyne.protocol.carried import NUMBER_OF

INVALID_VALUE, INVALID_DEVICE_FUNCTION, INVALID_RESOURCE_HANDLE, ILLEGAL_ADDRESS = 1, 98, 400, 700
NOT_INITIALIZED, EXECUTION_FAILED = 1, 13  # cublasStatus_t
FFT_EXECUTION_FAILED = 6  # cufftResult
DNN_NOT_INITIALIZED, DNN_BAD_PARAM, DNN_EXECUTION_FAILED = 1001, 2000, 5000  # cudnnStatus_t
#: void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, std::array<char*, 1>>(...)
FILL = (
    "_ZN2at6native29vectorized_elementwise_kernel"
    "ILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
)
ROW = torch.zeros(2, 3)
ADD = graph(pointwise(0, tensor(1, ROW), tensor(3, ROW), tensor(2, ROW)))  # of 1 and 2 into 3
INTERPROCESS = 4
FFT = [1, struct.pack("<q", 8), b"", 1, 8, 4, b"", 1, 8, 4, 3, 4]  # three rows of eight
ELEMENTS = 64
BYTES = 4 * ELEMENTS


@dataclass(frozen=True)
class Client:
    """A session and what it has. Numbers start at ``first``, so that no two clients share any."""

    ring: RingClient
    first: int
    pointers: tuple[int, int, int]
    array: int  # of two pointers to the last of those
    host: int
    function: int

    @property
    def stream(self) -> int:
        return self.first

    @property
    def event(self) -> int:
        return self.first + 1

    @property
    def blas(self) -> int:
        return self.first + 2

    @property
    def cudnn(self) -> int:
        return self.first + 3

    @property
    def plan(self) -> int:
        return self.first + 4

    def named(self, kind: Kind, turn: int = 0) -> int:
        """One of its objects of a kind."""
        if kind in (Kind.PTR, Kind.RESULT):
            return self.pointers[turn % 3]
        numbers = {
            Kind.STREAM: self.stream, Kind.EVENT: self.event, Kind.BLAS: self.blas,
            Kind.CUDNN: self.cudnn, Kind.FUNCTION: self.function,
        }  # fmt: skip
        return numbers[kind]


def _sound(ring: RingClient, name: str, *values: Any) -> Any:
    status, *outputs = ring.call(name, *values)
    assert status == 0, (name, values, outputs)
    return outputs[0] if outputs else None


def _new_client(ring: RingClient, first: int, module: list[Any], functions: int) -> Client:
    """It asks for the kernel ``functions`` times: each time it gets the next number, from 1."""
    pointers = tuple(_sound(ring, "malloc", BYTES) for _ in range(3))
    host = _sound(ring, "host_alloc", 4096)
    _sound(ring, "cudaStreamCreateWithPriority", first, 1, 0)
    _sound(ring, "cudaEventCreateWithFlags", first + 1, INTERPROCESS)
    _sound(ring, "event_record", first + 1, first, 0)
    _sound(ring, "cublasCreate_v2", first + 2)
    _sound(ring, "cudnnCreate", first + 3)
    _sound(ring, "cudnn_plan", first + 3, first, first + 4, plan(ADD))
    _sound(ring, "graph_frames", 0, b"")
    _sound(ring, "cufft_call", "cufftCreate", 0, [first + 5])
    _sound(ring, "cufft_call", "cufftXtMakePlanMany", 0, [first + 5, *FFT])
    _sound(ring, "cusolver_call", "cusolverDnCreate", 0, [first + 6])
    _sound(ring, "cusparse_call", "cusparseCreate", 0, [first + 7])
    for _ in range(functions):
        function = _sound(ring, "kernel", module, FILL)
    array = _sound(ring, "malloc", 16)
    _sound(ring, "copy_inline", array, struct.pack("<2Q", *pointers[2:] * 2), first)
    client = Client(ring, first, pointers, array, host, function)  # type: ignore[arg-type]
    _fill(client)
    return client


def _pattern(client: Client) -> bytes:
    return struct.pack("<f", client.first) * ELEMENTS


def _fill(client: Client) -> None:
    for pointer in client.pointers:
        _sound(client.ring, "copy_inline", pointer, _pattern(client), client.stream)
    client.ring.drain()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedServer]:
    with logged_server(tmp_path_factory.mktemp("two")) as running:
        yield running


@pytest.fixture(scope="module")
def module_in_memory() -> bytes:
    """A fatbin with the kernel FILL."""
    fake = FakeKernel(FILL, ((0, 4), (4, 4), (8, 8)), 16)
    return fatbin(entry(cubin(FakeCubin([fake]))))


@pytest.fixture(scope="module")
def clients(
    server: LoggedServer, module_in_memory: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Client]]:
    """(owner, intruder)"""
    path: Path = tmp_path_factory.mktemp("module") / "fill.fatbin"
    blob = module_in_memory
    path.write_bytes(blob)
    module = [str(path), 0, len(blob), fnv1a(blob)]
    rings = server.client(), server.client()
    yield _new_client(rings[0], 0x5000, module, 2), _new_client(rings[1], 0x6000, module, 1)
    for ring in rings:
        ring.close()


INTEGERS = {
    "m": 2, "n": 2, "k": 2, "lda": 2, "ldb": 2, "ldc": 2, "incx": 1, "incy": 1, "strideA": 4,
    "strideB": 4, "strideC": 4, "batchCount": 2, "batchSize": 2, "nrhs": 2, "computeType": 68,
    "count": 8, "width": 4, "height": 2, "pitch": 8, "dpitch": 8, "spitch": 8,
    "gridX": 1, "gridY": 1, "gridZ": 1, "blockX": 64, "blockY": 1, "blockZ": 1, "blockSize": 64,
    "statesBytes": 16, "weightBytes": 64, "workBytes": 8, "reserveBytes": 128,
    "attribute": 8,
}  # fmt: skip
SQUARE = [0, 2, 2, 2, []]  # a layout: 32-bit floats, 2 x 2
IMAGE, CHANNELS = [0, [2, 2, 1, 1], [2, 1, 1, 1]], [0, [1, 2, 1, 1], [2, 1, 1, 1]]
STEPS = [0, 0, 1, 2, 1, struct.pack("<2i", 1, 1), b""]  # two sequences of one element
STATE = [0, [1, 2, 1], [2, 1, 1]]
PROBS = [0, [1, 2, 2], [4, 2, 1]]  # one step, two samples of nothing
LISTS = {
    "rnn": [0, 2, 2, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0],  # an LSTM: all sizes are one
    "xData": STEPS, "yData": STEPS, "hDesc": STATE, "cDesc": STATE,
    "desc": [68, 0, []], "attributes": [], "preference": [],
    "heuristic": heuristic(ADD), "descriptor": plan(ADD),
    "xDesc": IMAGE, "yDesc": IMAGE, "dxDesc": IMAGE, "dyDesc": IMAGE, "paramDesc": CHANNELS,
    "zDesc": IMAGE, "biasDesc": CHANNELS, "wDesc": [0, 0, [2, 2, 1, 1]],
    "convolution": [1, 0, 1, 0, [0, 0], [1, 1], [1, 1]], "activation": [1, 0],
    "pooling": [0, 0, 1, 1, 0, 0, 1, 1], "transformer": [0, 0, [2, 2, 1, 1]],
    "ctc": [0, 1, 0, -1], "probsDesc": PROBS, "gradientsDesc": PROBS,
}  # fmt: skip
#: Arrays of pointers in device memory.
ARRAYS = {"Aarray", "Barray", "Carray", "TauArray"}
#: In the frame itself; "inline" is sound for others.
HOST_BYTES = {"labels": b"", "labelLengths": bytes(8), "inputLengths": struct.pack("<2i", 1, 1)}
#: Fields that the CPU device does not read: it computes without scratch memory.
UNREAD = {"workspace", "reserve", "workArea"}
#: Messages without a field that names an object, or that are tested by hand below.
NAMELESS = {
    "malloc", "host_alloc", "host_free", "kernel", "module_bytes", "lt_heuristic", "cudaMemGetInfo",
    "cudaDeviceSynchronize", "cudnn_plan_destroy", "ipc_open_memory", "ipc_close_memory",
    "graph_frames", "graph_destroy", "cudnn_ctc", "max_clusters", "module_load", "module_function",
    "module_unload", "tensor_map", "tensor_map_im2col",
    "lt_algo_check", "lt_algo_get", "lt_algo_init", "lt_algo_set",
}  # fmt: skip
CREATING = {
    message.name for message in SPEC.messages.values()
    if any(field.way is Way.NEW for field in message.fields)
}  # fmt: skip
new_plan = count(0x8000)
#: A call for each message that carries some: it makes a handle.
CALLS = {
    "cufft_call": "cufftCreate", "cusolver_call": "cusolverDnCreate",
    "cusparse_call": "cusparseCreate",
}  # fmt: skip
#: One for each that carries some that run: its function, and the arguments.
RUNS: dict[str, tuple[str, Callable[[Client], list[int]]]] = {
    "cufft_run": ("cufftXtExec", lambda c: [c.first + 5, *c.pointers[:2], -1]),
    "cusolver_run": (
        "cusolverDnSpotrf_bufferSize", lambda c: [c.first + 6, 0, 2, c.pointers[0], 2],
    ),
    "cusparse_run": (
        "cusparseXcoosort_bufferSizeExt", lambda c: [c.first + 7, 2, 2, 2, *c.pointers[:2]],
    ),
}  # fmt: skip


def _is_named(field: Field) -> bool:
    kinds = (
        Kind.PTR, Kind.RESULT, Kind.STREAM, Kind.EVENT, Kind.BLAS, Kind.CUDNN, Kind.FUNCTION,
    )  # fmt: skip
    return field.kind in kinds and field.way is not Way.NEW


NAMING = [
    (message, field)
    for message in SPEC.messages.values()
    if message.name not in NAMELESS
    for field in message.fields
    if _is_named(field) and field.name not in UNREAD
]


def _values(client: Client, message: Message) -> list[Any]:
    """Sound ones, of the client's own objects."""
    pointers = iter(range(3))
    return [_value(client, message, field, pointers) for field in message.fields]


def _value(client: Client, message: Message, field: Field, pointers: Iterator[int]) -> Any:
    if field.name in ARRAYS:
        return client.array
    if field.kind is Kind.PTR:
        return client.named(Kind.PTR, next(pointers, 0))
    if _is_named(field):
        return client.named(field.kind)
    if field.name == "plan":
        return next(new_plan) if message.name == "cudnn_plan" else client.plan
    if field.name == "data" and field.kind is Kind.LIST:
        return [[number + 1, pointer] for number, pointer in enumerate(client.pointers)]
    if message.name in RUNS and field.name in ("function", "arguments"):
        function, arguments = RUNS[message.name]
        return NUMBER_OF[function] if field.name == "function" else arguments(client)
    if field.kind is Kind.INT:
        return client.host if field.name == "hostOffset" else INTEGERS.get(field.name, 0)
    if field.kind is Kind.REAL:
        return 1.0
    if field.kind is Kind.SCALAR:
        return _one(message.name.removeprefix("cublas")[0], field.size)
    if field.kind is Kind.BYTES:
        if field.name == "args":
            return _arguments(client.pointers[0])
        return HOST_BYTES.get(field.name, b"inline")
    if message.name in CALLS:
        return CALLS[message.name] if field.kind is Kind.TEXT else [next(new_plan)]
    if field.kind is Kind.LIST:
        return LISTS.get(field.name, SQUARE)
    raise AssertionError(f"{message.name}: what is a sound {field.name}?")


def _one(letter: str, size: str) -> bytes:
    """1, and zeros up to the size: a number's imaginary part, or what a rotation needs not."""
    one = struct.pack("<d" if letter in "DZ" else "<f", 1)
    return one.ljust(int(size) if size.isdigit() else len(one), b"\0")


def _arguments(pointer: int) -> bytes:
    """Of the kernel: how many elements, their value, where."""
    return struct.pack("<ifQ", ELEMENTS, 2.5, pointer)


def _refusal(message: Message, field: Field) -> int:
    """The code that CUDA, or cuBLAS, gives for an object that does not exist."""
    if message.name.startswith("cudnn"):
        return DNN_EXECUTION_FAILED if field.kind is Kind.PTR else DNN_NOT_INITIALIZED
    if message.name in CALLS or message.name in RUNS:
        return NOT_INITIALIZED  # in each library's own words
    if message.name.startswith(("cublas", "blas_", "lt_")):
        return EXECUTION_FAILED if field.kind in (Kind.PTR, Kind.RESULT) else NOT_INITIALIZED
    if field.kind is Kind.PTR:
        own = message.name in ("free", "ipc_export_memory")
        return INVALID_VALUE if own else ILLEGAL_ADDRESS
    return INVALID_DEVICE_FUNCTION if field.kind is Kind.FUNCTION else INVALID_RESOURCE_HANDLE


def _expect_undisturbed(owner: Client) -> None:
    for pointer in owner.pointers:
        assert _sound(owner.ring, "copy_fetch", pointer, BYTES, 0) == _pattern(owner)
    _sound(owner.ring, "cudaStreamSynchronize", owner.stream)
    _sound(owner.ring, "cudaEventSynchronize", owner.event)
    _sound(owner.ring, "blas_configure", owner.blas, owner.stream, 0, 0, 0, 0, 0)
    assert _sound(owner.ring, "occupancy", owner.function, 64, 0, 0) == 32
    assert owner.ring.take_error() == (0, "")


def test_every_message_is_tried_or_names_nothing() -> None:
    assert {message.name for message, _ in NAMING} | NAMELESS | CREATING == set(MESSAGES)


@pytest.mark.parametrize(
    ("message", "field"), NAMING, ids=[f"{m.name}-{f.name}" for m, f in NAMING]
)
def test_the_objects_of_another_client_do_not_exist(
    clients: tuple[Client, Client], message: Message, field: Field
) -> None:
    owner, intruder = clients
    at = message.fields.index(field)
    values = _values(intruder, message)
    if field.way is not Way.GONE and message.name != "free":
        assert intruder.ring.call(message.name, *values)[0] == 0
    values[at] = owner.named(field.kind)
    assert intruder.ring.call(message.name, *values)[0] == _refusal(message, field)
    assert intruder.ring.dead == ""
    _expect_undisturbed(owner)


def test_memory_of_another_client_cannot_be_reached_by_a_kernel(
    clients: tuple[Client, Client],
) -> None:
    owner, intruder = clients
    values = _values(intruder, MESSAGES["launch"])
    for foreign in (owner.pointers[0], owner.ring.welcome.host_base + owner.host):
        values[-1] = _arguments(foreign)
        assert intruder.ring.call("launch", *values)[0] == ILLEGAL_ADDRESS
    _expect_undisturbed(owner)


def test_memory_of_another_client_cannot_be_reached_by_an_array_of_pointers(
    clients: tuple[Client, Client],
) -> None:
    owner, intruder = clients
    batched = MESSAGES["cublasSgemmBatched"]
    for name in sorted(ARRAYS & {field.name for field in batched.fields}):
        values = _values(intruder, batched)
        foreign = struct.pack("<2Q", intruder.pointers[2], owner.pointers[2])
        _sound(intruder.ring, "copy_inline", intruder.pointers[0], foreign, 0)
        values[[field.name for field in batched.fields].index(name)] = intruder.pointers[0]
        assert intruder.ring.call(batched.name, *values)[0] == EXECUTION_FAILED
    _expect_undisturbed(owner)


@pytest.mark.parametrize(("attribute", "epilogue"), [(8, 4), (11, 130)])
def test_memory_of_another_client_cannot_be_reached_by_an_epilogue(
    clients: tuple[Client, Client], attribute: int, epilogue: int
) -> None:
    """BIAS_POINTER, and EPILOGUE_AUX_POINTER with RELU_AUX."""
    owner, intruder = clients
    values = _values(intruder, MESSAGES["lt_matmul"])
    leading = [12, struct.pack("<q", 128)]
    for pointer, status in ((intruder.pointers[2], 0), (owner.pointers[2], EXECUTION_FAILED)):
        chosen = [[7, struct.pack("<i", epilogue)], [attribute, struct.pack("<q", pointer)]]
        values[1] = [68, 0, [*chosen, leading]]
        assert intruder.ring.call("lt_matmul", *values)[0] == status
    _expect_undisturbed(owner)


def test_plans_and_their_tensors_are_a_clients_own(clients: tuple[Client, Client]) -> None:
    owner, intruder = clients
    values = _values(intruder, MESSAGES["cudnn_execute"])
    _sound(intruder.ring, "cudnn_execute", *values)
    values[2] = owner.plan
    assert intruder.ring.call("cudnn_execute", *values)[0] == DNN_BAD_PARAM
    assert intruder.ring.call("cudnn_plan_destroy", owner.plan)[0] == DNN_BAD_PARAM
    for foreign in range(3):
        values = _values(intruder, MESSAGES["cudnn_execute"])
        values[3][foreign][1] = owner.pointers[foreign]
        assert intruder.ring.call("cudnn_execute", *values)[0] == DNN_EXECUTION_FAILED
    _expect_undisturbed(owner)
    mine = _values(owner, MESSAGES["cudnn_execute"])
    _sound(owner.ring, "cudnn_execute", *mine)
    _fill(owner)


def test_modules_are_a_clients_own(clients: tuple[Client, Client], module_in_memory: bytes) -> None:
    """And so are the functions in them, and what is asked about functions."""
    owner, intruder = clients
    name = fnv1a(module_in_memory).to_bytes(8, "little")
    length = len(module_in_memory)
    owner.ring.post("module_bytes", name, length, 0, module_in_memory)
    _sound(owner.ring, "module_load", 5, name)
    owner.ring.post("module_bytes", name, length, 0, module_in_memory)
    assert owner.ring.call("module_load", 5, name)[0] == INVALID_VALUE
    assert intruder.ring.call("module_function", 5, FILL)[0] == INVALID_VALUE
    assert intruder.ring.call("module_unload", 5)[0] == INVALID_VALUE
    status, function, *_ = owner.ring.call("module_function", 5, FILL)
    assert status == 0
    launch = function, 1, 1, 1, 64, 1, 1, 0
    assert intruder.ring.call("launch", *launch, 0, _arguments(intruder.pointers[0]))[0] == 98
    assert intruder.ring.call("max_clusters", *launch, [])[0] == INVALID_DEVICE_FUNCTION
    _sound(owner.ring, "launch", *launch, 0, _arguments(owner.pointers[0]))
    _sound(owner.ring, "module_unload", 5)
    assert owner.ring.call("launch", *launch, 0, _arguments(owner.pointers[0]))[0] == 98
    _fill(owner)
    _expect_undisturbed(owner)


def test_labels_of_another_client_cannot_be_read(clients: tuple[Client, Client]) -> None:
    """Zeros are labels of no length."""
    owner, intruder = clients
    message = MESSAGES["cudnn_ctc"]
    for pointer in intruder.pointers:
        _sound(intruder.ring, "cudaMemsetAsync", pointer, 0, BYTES, 0)
    assert intruder.ring.call("cudnn_ctc", *_values(intruder, message)) == [0]
    for at, field in enumerate(message.fields):
        if not _is_named(field) or field.name == "workspace":
            continue
        values = _values(intruder, message)
        values[at] = owner.named(field.kind)
        found = intruder.ring.call("cudnn_ctc", *values)[0]
        assert found == (0 if field.name == "labels" else _refusal(message, field)), field.name
        for pointer in intruder.pointers:
            _sound(intruder.ring, "cudaMemsetAsync", pointer, 0, BYTES, 0)
    _fill(intruder)
    _expect_undisturbed(owner)


def test_handles_of_libraries_are_a_clients_own(clients: tuple[Client, Client]) -> None:
    owner, intruder = clients
    for client in (owner, intruder):
        _sound(client.ring, "cufft_call", "cufftCreate", 0, [0x77])
        _sound(client.ring, "cufft_call", "cufftXtMakePlanMany", 0, [0x77, *FFT])
    _sound(owner.ring, "cufft_call", "cufftCreate", 0, [0x88])
    for number in (0x88, 0x99):
        assert intruder.ring.call("cufft_call", "cufftDestroy", 0, [number])[0] == NOT_INITIALIZED
    _sound(intruder.ring, "cufft_call", "cufftDestroy", 0, [0x77])
    for place in range(2):
        run = [0x77, owner.pointers[0], owner.pointers[1], -1]
        run[1 + place] = intruder.pointers[0]
        status = owner.ring.call("cufft_run", NUMBER_OF["cufftXtExec"], 0, 0, run)[0]
        assert status == FFT_EXECUTION_FAILED
    _expect_undisturbed(owner)
    for number in (0x77, 0x88):
        _sound(owner.ring, "cufft_call", "cufftDestroy", 0, [number])


def test_pinned_memory_is_a_clients_own(clients: tuple[Client, Client]) -> None:
    """Offsets count in the sender's own slot, and what it has not allocated cannot be freed."""
    owner, intruder = clients
    at = owner.host
    owner.ring.host[at : at + 6] = b"secret"
    second = _sound(owner.ring, "host_alloc", 4096)
    assert intruder.ring.call("host_free", second)[0] == INVALID_VALUE
    _sound(intruder.ring, "copy_to_host", at, intruder.pointers[0], 6, 0)
    _sound(intruder.ring, "copy_from_host", intruder.pointers[1], at, 6, 0)
    own = _sound(intruder.ring, "copy_fetch", intruder.pointers[0], 6, 0)
    assert _sound(intruder.ring, "copy_fetch", intruder.pointers[1], 6, 0) == own
    assert owner.ring.host[at : at + 6] == b"secret"
    address = owner.ring.welcome.host_base + at
    assert intruder.ring.call("copy_fetch", address, 6, 0)[0] == ILLEGAL_ADDRESS
    _sound(owner.ring, "host_free", second)


def test_equal_numbers_of_two_clients_are_two_objects(clients: tuple[Client, Client]) -> None:
    owner, intruder = clients
    for name in ("cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cublasCreate_v2"):
        rest = [0] * (len(MESSAGES[name].fields) - 1)
        destroy = {"cudaS": "cudaStreamDestroy", "cudaE": "cudaEventDestroy"}
        for client in clients:
            _sound(client.ring, name, 0x7000, *rest)
        gone = destroy.get(name[:5], "cublasDestroy_v2")
        _sound(intruder.ring, gone, 0x7000)
        assert intruder.ring.call(gone, 0x7000)[0] != 0
        _sound(owner.ring, gone, 0x7000)
    _expect_undisturbed(owner)
