"""Frames as a hostile or unlucky client may send them to the CUDA lane's executor."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda_server import CudaServer, Program
from fakecuda.kernels import kernels_fatbin
from ring import MESSAGES, RingClient, random_value

from mnemosyne._native import fnv1a
from mnemosyne.api import Kind, Message
from mnemosyne.protocol.frames import encode

MIB = 1 << 20
LANE = [message for message in MESSAGES.values() if message.lane]
OF_KIND = {Kind.BYTES: b"", Kind.LIST: [], Kind.REAL: 0.0}  # else a number
ENDED = "the server ended this session"


class Attacker(RingClient):
    """A session with memory at ``p``, a stream 16, an event 32, and functions by name."""

    def __init__(self, cuda: CudaServer) -> None:
        super().__init__(cuda.socket)
        status, self.p = self.call("malloc", 2 * MIB)
        assert status == 0
        self.post("cudaStreamCreateWithPriority", 16, 1, 0)
        self.post("cudaEventCreateWithFlags", 32, 0)
        image = kernels_fatbin()
        self.module = ["/nonexistent", 0, len(image), fnv1a(image)]
        self.post("module_bytes", fnv1a(image).to_bytes(8, "little"), len(image), 0, image)
        self.function = self.call("kernel", self.module, "fake_fill")[1]
        self.free_end = self.welcome.device_base + self.welcome.device_bytes

    def sleep(self, microseconds: int) -> None:
        function = self.call("kernel", self.module, "fake_sleep")[1]
        args = microseconds.to_bytes(4, "little")
        self.post("launch", function, 1, 1, 1, 1, 1, 1, 0, 0, args)

    def launch(self, args: bytes, function: int | None = None, grid: int = 1) -> bytes:
        number = self.function if function is None else function
        return encode(MESSAGES["launch"], number, grid, 1, 1, 1, 1, 1, 0, 0, args)

    def fill(self, value: int) -> bytes:
        return (
            self.p.to_bytes(8, "little") + value.to_bytes(8, "little") + (4).to_bytes(8, "little")
        )


@pytest.fixture
def attacker(cuda: CudaServer) -> Iterator[Attacker]:
    one = Attacker(cuda)
    yield one
    one.close()


@pytest.fixture(scope="module")
def neighbour(cuda: CudaServer) -> Iterator[Program]:
    """Another client, which must not notice anything."""
    one = cuda.program("p, data = malloc(1 << 20), bytes(range(256)) * 4096\nput(p, data)\n")
    yield one
    assert one.end() == ""


@pytest.fixture(autouse=True)
def undisturbed(cuda: CudaServer, neighbour: Program) -> Iterator[None]:
    worker = cuda.worker().pid
    yield
    assert cuda.worker().pid == worker
    assert neighbour.get("get(p, len(data)) == data")
    neighbour.do("q = malloc(16); fill(q, 5, 4); copy(q, p + 1, 4, D2D)")
    assert neighbour.get("get(q, 16)") == bytes([1, 2, 3, 4]) + bytes([5, 0, 0, 0]) * 3
    neighbour.do("free(q)")


def test_frames_in_order_have_their_effects(attacker: Attacker) -> None:
    a = attacker
    a.put(a.launch(a.fill(7)))
    a.post("cudaMemset2DAsync", a.p + 16, 8, 0x41, 2, 3, 0)
    assert a.call("copy_fetch", a.p, 40, 0) == [
        0, bytes([7, 0, 0, 0]) * 4 + b"AA\0\0\0\0\0\0" * 3,
    ]  # fmt: skip
    a.post("event_record", 32, 16, 0)
    assert a.call("cudaEventSynchronize", 32) == [0]
    assert a.take_error() == (0, "")


REFUSED: dict[str, Callable[[Attacker, int], tuple[str, tuple[Any, ...], int]]] = {
    # of the attacker and a neighbour's address: message, fields, code
    "inline to a neighbour": lambda a, n: ("copy_inline", (n, b"x", 0), 1),
    "inline to nowhere": lambda a, n: ("copy_inline", (4096, b"x", 0), 1),
    "inline past the slot": lambda a, n: ("copy_inline", (a.free_end - 1, b"xy", 0), 1),
    "inline to what is not mapped": lambda a, n: ("copy_inline", (a.free_end - 64, b"x", 0), 1),
    "inline into an unknown stream": lambda a, n: ("copy_inline", (a.p, b"x", 99), 400),
    "fetch from a neighbour": lambda a, n: ("copy_fetch", (n, 8, 0), 1),
    "fetch too much": lambda a, n: ("copy_fetch", (a.p, 8177, 0), 1),
    "fetch without end": lambda a, n: ("copy_fetch", (a.p, 2**64 - 1, 0), 1),
    "fetch in an unknown stream": lambda a, n: ("copy_fetch", (a.p, 8, 99), 400),
    "from past the host slot": lambda a, n: (
        "copy_from_host", (a.p, a.welcome.host_bytes - 1, 2, 0), 1),
    "from far past it": lambda a, n: ("copy_from_host", (a.p, 2**64 - 8, 16, 0), 1),
    "to past the host slot": lambda a, n: ("copy_to_host", (a.welcome.host_bytes, a.p, 1, 0), 1),
    "half of it staging": lambda a, n: (
        "copy_to_host", (a.welcome.staging_bytes - 8, a.p, 16, 0), 1),
    "to the host without end": lambda a, n: ("copy_to_host", (0, a.p, 2**63, 0), 1),
    "to the host from a neighbour": lambda a, n: ("copy_to_host", (0, n, 8, 0), 1),
    "from the host to a neighbour": lambda a, n: ("copy_from_host", (n, 0, 8, 0), 1),
    "device from a neighbour": lambda a, n: ("copy_device", (a.p, n, 8, 0), 1),
    "device to a neighbour": lambda a, n: ("copy_device", (n, a.p, 8, 0), 1),
    "device past what is mapped": lambda a, n: ("copy_device", (a.p, a.p + 8, 1 << 30, 0), 1),
    "device in an unknown stream": lambda a, n: ("copy_device", (a.p, a.p + 8, 8, 17), 400),
    "rows into a neighbour": lambda a, n: ("copy_device_2d", (n, 8, a.p, 8, 4, 4, 0), 1),
    "rows that reach a neighbour": lambda a, n: (
        "copy_device_2d", (a.p, (n - a.p) % 2**64, a.p, 8, 4, 2, 0), 1),
    "rows that wrap around": lambda a, n: (
        "copy_device_2d", (a.p, 1 << 32, a.p, 1 << 32, 4, (1 << 32) + 1, 0), 1),
    "rows wider than their pitch": lambda a, n: ("copy_device_2d", (a.p, 4, a.p, 8, 5, 2, 0), 1),
    "rows without end": lambda a, n: (
        "copy_device_2d", (a.p, 8, a.p, 8, 4, 2**64 - 1, 0), 1),
    "memset of a neighbour": lambda a, n: ("cudaMemsetAsync", (n, 1, 8, 0), 1),
    "memset past the slot": lambda a, n: ("cudaMemsetAsync", (a.p, 1, 1 << 41, 0), 1),
    "memset of rows of a neighbour": lambda a, n: ("cudaMemset2DAsync", (n, 8, 1, 4, 2, 0), 1),
    "memset of rows that reach a neighbour": lambda a, n: (
        "cudaMemset2DAsync", (a.p, (n - a.p) % 2**64, 1, 4, 2, 0), 1),
    "memset of rows that wrap around": lambda a, n: (
        "cudaMemset2DAsync", (a.p, 1 << 32, 1, 4, (1 << 32) + 1, 0), 1),
    "an unknown event": lambda a, n: ("event_record", (33, 0, 0), 400),
    "an event in an unknown stream": lambda a, n: ("event_record", (32, 99, 0), 400),
    "a query of an unknown event": lambda a, n: ("event_query", (33,), 400),
    "a query of an unknown stream": lambda a, n: ("stream_query", (99,), 400),
    "an unknown stream waits": lambda a, n: ("cudaStreamWaitEvent", (99, 32, 0), 400),
    "a wait for an unknown event": lambda a, n: ("cudaStreamWaitEvent", (0, 33, 0), 400),
    "synchronise an unknown stream": lambda a, n: ("cudaStreamSynchronize", (99,), 400),
    "synchronise an unknown event": lambda a, n: ("cudaEventSynchronize", (2**64 - 1,), 400),
    "time from an unknown event": lambda a, n: ("cudaEventElapsedTime", (33, 32), 400),
    "time of what was not recorded": lambda a, n: ("cudaEventElapsedTime", (32, 32), 400),
    "an empty grid": lambda a, n: (
        "launch", (a.function, 0, 1, 1, 1, 1, 1, 0, 0, a.fill(1)), 1),
    "a block of too many threads": lambda a, n: (
        "launch", (a.function, 1, 1, 1, 1025, 1, 1, 0, 0, a.fill(1)), 1),
    "too much shared memory": lambda a, n: (
        "launch", (a.function, 1, 1, 1, 1, 1, 1, 2**32 - 1, 0, a.fill(1)), 1),
    "a launch in an unknown stream": lambda a, n: (
        "launch", (a.function, 1, 1, 1, 1, 1, 1, 0, 99, a.fill(1)), 400),
    "a launch attribute of graphs": lambda a, n: (
        "launch_ex", (a.function, 1, 1, 1, 1, 1, 1, 0, 0, a.fill(1), [[13, bytes(64)]]), 801),
    "a launch with an unknown event": lambda a, n: (
        "launch_ex", (a.function, 1, 1, 1, 1, 1, 1, 0, 0, a.fill(1), [[7, bytes(64)]]), 400),
    "a launch with a neighbour's memory in its window": lambda a, n: (
        "launch_ex",
        (a.function, 1, 1, 1, 1, 1, 1, 0, 0, a.fill(1), [[1, struct.pack("<QQ48x", n, 8)]]), 1),
    "clusters that are counted with an unknown event": lambda a, n: (
        "max_clusters", (a.function, 1, 1, 1, 1, 1, 1, 0, [[12, bytes(64)]]), 400),
    "words of a neighbour": lambda a, n: ("memset_words", (n, 1, 2, 0), 1),
    "words without end": lambda a, n: ("memset_words", (a.p, 1, 2**62, 0), 1),
    "words in an unknown stream": lambda a, n: ("memset_words", (a.p, 1, 2, 99), 400),
    "a map of a neighbour": lambda a, n: (
        "tensor_map", (0, n, [16, 2], [16], [1, 1], [1, 1], 0, 0, 0, 0), 1),
    "a map that reaches a neighbour": lambda a, n: (
        "tensor_map", (0, a.p, [16, 2], [(n - a.p) % 2**64], [1, 1], [1, 1], 0, 0, 0, 0), 1),
    "a map of nothing": lambda a, n: ("tensor_map", (0, a.p, [], [], [], [], 0, 0, 0, 0), 1),
    "a map whose lists differ in length": lambda a, n: (
        "tensor_map", (0, a.p, [16, 2], [16, 16], [1, 1], [1, 1], 0, 0, 0, 0), 1),
    "an im2col map of a neighbour": lambda a, n: (
        "tensor_map_im2col",
        (0, n, [16, 2, 2], [16, 32], [0], [0], 1, 1, [1, 1, 1], 0, 0, 0, 0), 1),
    "an im2col map of two dimensions": lambda a, n: (
        "tensor_map_im2col", (0, a.p, [16, 2], [16], [], [], 1, 1, [1, 1], 0, 0, 0, 0), 1),
    "an unknown module": lambda a, n: ("module_unload", (7,), 1),
    "a function of an unknown module": lambda a, n: ("module_function", (7, "fake_fill"), 1),
    "an attribute that no function has": lambda a, n: (
        "function_attribute", (a.function, 11, 2), 1),
    "an attribute of an unknown function": lambda a, n: ("function_attribute", (99, 8, 2), 98),
    "an unknown cache": lambda a, n: ("function_attribute", (a.function, -1, 4), 1),
    "a CTC loss without a handle": lambda a, n: (
        "cudnn_ctc_room", (99, 0, [0, 1, 0, -1], 0, [], []), 1001),
    "a convolution without a handle": lambda a, n: (
        "cudnn_convolution", (99, 0, 0, 0, 1.0, 0.0, [], [], 0, [], 0, [], 0, 0, 0), 1001),
    "a product without a handle": lambda a, n: (
        "cublasSgemm_v2", (99, 0, 0, 1, 1, 1, b"\0" * 4, 0, 1, 0, 1, b"\0" * 4, 0, 1), 1),
    "cuDNN without a handle": lambda a, n: ("cudnn_execute", (99, 0, 1, [], 0), 2000),
    "recurrent layers without a handle": lambda a, n: ("cudnn_rnn_forward", _rnn(), 1001),
    "their sizes without a handle": lambda a, n: (
        "cudnn_rnn_temp_space", (99, 0, [], 0.0, 0, 0, 0, 1, []), 1001),
    "recurrent weights of a neighbour": lambda a, n: (
        "cudnn_rnn_forward", _rnn(weightBytes=64, weightSpace=n), 2000),
    "a work space that reaches a neighbour": lambda a, n: (
        "cudnn_rnn_forward", _rnn(workBytes=2**63, workSpace=a.p), 2000),
    "a reserve space past the slot": lambda a, n: (
        "cudnn_rnn_forward", _rnn(reserveBytes=2, reserveSpace=a.free_end - 1), 2000),
    "dropout states of a neighbour": lambda a, n: (
        "cudnn_dropout_init", (99, 0, 0.5, n, 64, 1), 2000),
}  # fmt: skip


def _rnn(**changes: int) -> tuple[Any, ...]:
    """Fields of a forward pass of nothing."""
    fields = MESSAGES["cudnn_rnn_forward"].fields
    return tuple(changes.get(f.name, OF_KIND.get(f.kind, 0)) for f in fields)


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_has_cudas_code_and_one_line_and_the_session_goes_on(
    attacker: Attacker, neighbour: Program, case: str
) -> None:
    name, values, code = REFUSED[case](attacker, neighbour.get("p"))
    status, *text = attacker.call(name, *values)
    assert status == code
    assert all("\n" not in line for line in text)
    attacker.post(name, *values)  # nobody waits for it: the error is latched, unless it only asks
    attacker.drain()
    assert attacker.take_error()[0] in (code, 0, 999)
    attacker.post("cudaMemsetAsync", attacker.p, 3, 4, 0)
    assert attacker.call("copy_fetch", attacker.p, 4, 0) == [0, b"\3\3\3\3"]


BROKEN: dict[str, Callable[[Attacker], bytes]] = {
    "an unknown function": lambda a: a.launch(a.fill(1), function=1000),
    "function 0": lambda a: a.launch(a.fill(1), function=0),
    "a function of the greatest number": lambda a: a.launch(a.fill(1), function=2**64 - 1),
    "arguments too short": lambda a: a.launch(a.fill(1)[:-1]),
    "arguments too long": lambda a: a.launch(a.fill(1) + b"\0"),
    "no arguments": lambda a: a.launch(b""),
    "a grid out of range": lambda a: a.launch(a.fill(1), grid=2**32),
    "a negative grid": lambda a: a.launch(a.fill(1), grid=-1),
    "a module without bytes": lambda a: encode(MESSAGES["module_load"], 7, bytes(8)),
    "a map of six dimensions": lambda a: encode(
        MESSAGES["tensor_map"], 0, a.p, [1] * 6, [1] * 5, [1] * 6, [1] * 6, 0, 0, 0, 0
    ),
    "a map of no numbers": lambda a: encode(
        MESSAGES["tensor_map"], 0, a.p, [b""], [], [1], [1], 0, 0, 0, 0
    ),
    "clusters of an unknown function": lambda a: encode(
        MESSAGES["max_clusters"], 99, 1, 1, 1, 1, 1, 1, 0, []
    ),
    "attributes that are none": lambda a: encode(
        MESSAGES["launch_ex"], a.function, 1, 1, 1, 1, 1, 1, 0, 0, a.fill(1), [[2, b"\1"]]
    ),
    "a scalar too long": lambda a: encode(
        MESSAGES["cublasSgemm_v2"], 1, 0, 0, 1, 1, 1, bytes(41), 0, 1, 0, 1, bytes(4), 0, 1
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_frame_that_cannot_be_meant_ends_that_session_alone(
    attacker: Attacker, case: str
) -> None:
    attacker.put(BROKEN[case](attacker))
    assert ENDED in attacker.wait_dead()


@pytest.mark.parametrize("message", LANE, ids=lambda message: message.name)
def test_fields_of_another_kind_or_count_end_that_session_alone(
    cuda: CudaServer, message: Message
) -> None:
    right = [OF_KIND.get(field.kind, 0) for field in message.fields]
    wrong: list[list[Any]] = [[*right, 0], [*right, [1, [2]]], right[:-1] if right else [b""]]
    for at, field in enumerate(message.fields):
        other = 1 if field.kind in (Kind.BYTES, Kind.LIST, Kind.REAL) else 1.5
        wrong.append([*right[:at], other, *right[at + 1 :]])
    for fields in wrong:
        one = cuda.ring()
        one.put(encode(message, *fields))
        assert ENDED in one.wait_dead(), fields
        one.close()


def test_frames_of_the_right_form_at_random_never_hurt_a_neighbour(
    cuda: CudaServer, neighbour: Program
) -> None:
    rng = random.Random(11)
    for _ in range(25):
        one = Attacker(cuda)
        one.post("cublasCreate_v2", 16)
        for _ in range(200):
            message = rng.choice(LANE)
            fields = [random_value(rng, f, [one.p]) for f in message.fields]
            one.put(encode(message, *fields))
        one.drain()
        one.close()
        assert neighbour.get("cuda.cudaDeviceSynchronize()") == 0


def test_the_place_of_a_session_that_is_ended_at_work_is_free_only_afterwards(
    cuda: CudaServer,
) -> None:
    one = Attacker(cuda)
    one.sleep(300_000)
    one.put(b"\xc1")
    assert ENDED in one.wait_dead()
    one.close()  # what the server hears twice: its frame, and that it is gone
    other = Attacker(cuda)
    assert other.welcome.device_base != one.welcome.device_base
    other.close()
