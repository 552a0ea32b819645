"""Recurrent layers on the CUDA device: what cuDNN is called with for the frames of a client.

The driver is the fake one, and so is cuDNN: it writes each call into the server's log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from cuda_server import CudaServer, FakeGpu, finish
from fakecuda.build import build_cudnn
from ring import MESSAGES, RingClient
from servers import wait_until

from mnemosyne.api import Kind

BAD_PARAM, NOT_SUPPORTED = 2000, 3000
LSTM, PROJECTED = [3, 2, 2, 1, 0, 0, 0, 3, 6, 5, 5, 2, 1], [0, 2, 2, 0, 0, 0, 0, 0, 6, 5, 3, 1, 0]
LSTM_TEXT = "rnn 3,2,2,1,0,0,0,3,6,5,5,2,1"
NO_DROPOUT = "dropout 0 at (nil) 0 seed 0"
X = [0, 1, 9, 3, 6, struct.pack("<3i", 9, 4, 2), b""]
Y = [0, 0, 9, 3, 10, struct.pack("<3i", 9, 4, 2), struct.pack("<f", 2.5)]
X_TEXT, Y_TEXT = "data 0,1,9,6 (9,4,2)", "data 0,0,9,10 (9,4,2) fill 2.5"
H, C = [0, [4, 3, 5], [15, 5, 1]], [0, [4, 3, 7], [21, 7, 1]]
H_TEXT, C_TEXT = "tensor 0(4,3,5)(15,5,1)", "tensor 0(4,3,7)(21,7,1)"
MADE = "fakecudnn made a handle"
LISTS = {"rnn": LSTM, "xData": X, "yData": Y, "hDesc": H, "cDesc": C}


class Client(RingClient):
    """A session with a cuDNN handle 16, a stream 32 and memory at ``p``."""

    def __init__(self, server: CudaServer) -> None:
        super().__init__(server.socket)
        self.log = server.log
        self.p = self.call("malloc", 1 << 20)[1]
        self.post("cudnnCreate", 16)
        self.post("cudaStreamCreateWithPriority", 32, 1, 0)

    def fields(self, name: str, **changes: Any) -> list[Any]:
        """Each pointer is 16 bytes after the one before it; integers count from 1."""
        pointers = iter(range(self.p, self.p + 4096, 16))
        numbers = iter(range(1, 100))
        values = {
            "handle": 16,
            "stream": 32,
            "dropout": 0.0,
            "states": 0,
            "statesBytes": 0,
            "seed": 0,
        }
        values |= {**LISTS, **changes}
        return [
            values[f.name] if f.name in values
            else next(pointers) if f.kind is Kind.PTR else next(numbers)
            for f in MESSAGES[name].fields
        ]  # fmt: skip

    def said(self, name: str, **changes: Any) -> str:
        """What cuDNN was called with; the call must succeed."""
        before = self._lines()
        assert self.call(name, *self.fields(name, **changes))[0] == 0
        assert wait_until(lambda: len(self._lines()) == len(before) + 1)
        text, _, live = self._lines()[-1].rpartition(" live ")
        self.descriptors = int(live)  # that there were in that moment
        return text

    def _lines(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line.split(": ", 1)[1] for line in lines if line.startswith("fakecudnn: ")]

    def at(self, *numbers: int) -> str:
        return " ".join(f"{self.p + 16 * number:#x}" for number in numbers)


@pytest.fixture(scope="module")
def server(gpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaServer]:
    folder = tmp_path_factory.mktemp("cudnn")
    library = {"FAKECUDA_CUDNN": str(build_cudnn(folder))}
    running = gpu.serve(folder, "--clients", "2", "--memory-per-client", "64MiB", **library)
    yield running
    finish(running)


@pytest.fixture
def client(server: CudaServer) -> Iterator[Client]:
    one = Client(server)
    yield one
    one.close()


def test_a_forward_pass_has_all_its_values_in_their_places(client: Client) -> None:
    said = client.said("cudnn_rnn_forward")
    assert said == (
        f"forward 1 lengths 0 {LSTM_TEXT} {NO_DROPOUT} x {X_TEXT} {client.at(0)} y {Y_TEXT} "
        f"{client.at(1)} h {H_TEXT} {client.at(2, 3)} c {C_TEXT} {client.at(4, 5)} "
        f"spaces 2 {client.at(6)} 3 {client.at(7)} 4 {client.at(8)}"
    )


def test_backward_passes_have_all_their_values_in_their_places(client: Client) -> None:
    assert client.said("cudnn_rnn_backward_data") == (
        f"backward lengths 0 {LSTM_TEXT} {NO_DROPOUT} y {Y_TEXT} {client.at(0, 1)} x {X_TEXT} "
        f"{client.at(2)} h {H_TEXT} {client.at(3, 4, 5)} c {C_TEXT} {client.at(6, 7, 8)} "
        f"spaces 1 {client.at(9)} 2 {client.at(10)} 3 {client.at(11)}"
    )
    assert client.said("cudnn_rnn_backward_weights", cDesc=None) == (
        f"gradients 1 lengths 0 {LSTM_TEXT} {NO_DROPOUT} x {X_TEXT} {client.at(0)} h {H_TEXT} "
        f"{client.at(1)} y {Y_TEXT} {client.at(2)} spaces 2 {client.at(3)} 3 {client.at(4)} "
        f"4 {client.at(5)}"
    )


def test_what_is_not_given_is_no_descriptor_and_no_memory(client: Client) -> None:
    said = client.said("cudnn_rnn_forward", cDesc=[], cx=0, cy=0, hx=0, workSpace=0, workBytes=0)
    assert "c no tensor (nil) (nil) spaces" in said
    assert " 0 (nil) " in said


def test_dropout_is_initialised_once_and_restored_for_each_call(client: Client) -> None:
    assert client.call("cudnn_dropout_states", 16, 0) == [0, 2080768]
    drops = {"dropout": 0.25, "states": client.p, "statesBytes": 4096, "seed": 2**64 - 1}
    wanted = f"0.25 at {client.at(0)} 4096 seed {2**64 - 1}"
    assert client.said("cudnn_dropout_init", **drops) == f"set dropout {wanted}"
    for _ in range(2):
        assert f"{LSTM_TEXT} restored {wanted} x" in client.said("cudnn_rnn_forward", **drops)


def test_a_session_has_one_real_handle_and_leaves_it_to_the_next(
    client: Client, server: CudaServer
) -> None:
    assert wait_until(lambda: len(server.sessions()) == 1)
    made = server.log.read_text().count(MADE)
    client.post("cudnnCreate", 17)
    for handle in (16, 17):
        client.said("cudnn_rnn_forward", handle=handle)
    client.post("cudnnDestroy", 16)
    client.said("cudnn_rnn_forward", handle=17)
    client.close()
    assert wait_until(lambda: server.sessions() == [])
    following = Client(server)
    following.said("cudnn_rnn_forward")
    following.close()
    assert server.log.read_text().count(MADE) <= max(made, 1)


def test_sizes_are_those_of_the_pass_that_is_asked_for(client: Client) -> None:
    assert client.call("cudnn_rnn_weight_space", 16, 0, LSTM) == [0, 4096]
    for mode, reserve in ((0, 0), (1, 222)):
        fields = client.fields("cudnn_rnn_temp_space", fwdMode=mode)
        assert client.call("cudnn_rnn_temp_space", *fields) == [0, 111, reserve]
        said = client.said("cudnn_rnn_temp_space", fwdMode=mode)
        assert said == f"space {mode} reserve {mode} {LSTM_TEXT} {NO_DROPOUT} x {X_TEXT}"


@pytest.mark.parametrize(("network", "projection"), [(LSTM, []), (PROJECTED, [2048 - 1024])])
def test_weights_lie_at_offsets_into_the_weight_space(
    client: Client, network: list[int], projection: list[int]
) -> None:
    matrix, bias = [0, [1, 2, 3], [6, 3, 1]], [0, [1, 2, 1], [2, 1, 1]]
    status, params = client.call("cudnn_rnn_weight_params", 16, 0, network, 0, 4096, client.p)
    assert status == 0
    assert params[:8] == [[[128 * n, matrix], [128 * n + 64, bias]] for n in range(8)]
    assert params[8:] == [[[*projection, matrix] if projection else [], []]]


def test_no_descriptor_is_left_over(client: Client) -> None:
    counts = set()
    for length in range(1, 6):
        client.said("cudnn_rnn_forward", xData=[*X[:5], struct.pack("<3i", length, 1, 1), b""])
        counts.add(client.descriptors)
    assert len(counts) == 1


def test_cudnns_own_refusals_are_the_clients_answers(client: Client) -> None:
    one_bias = [*LSTM[:2], 1, *LSTM[3:]]
    assert client.call("cudnn_rnn_weight_space", 16, 0, one_bias)[0] == NOT_SUPPORTED
    fields = client.fields("cudnn_rnn_forward", rnn=one_bias)
    assert client.call("cudnn_rnn_forward", *fields)[0] == NOT_SUPPORTED
    assert client.call("cudnn_rnn_weight_params", 16, 0, LSTM, 4, 4096, client.p)[0] == BAD_PARAM
    assert client.call("cudnn_rnn_weight_params", 16, 0, LSTM, 0, 4095, client.p)[0] == BAD_PARAM


MALFORMED: dict[str, dict[str, Any]] = {
    "twelve numbers": {"rnn": LSTM[:-1]},
    "numbers that are none": {"rnn": [*LSTM[:-1], b"1"]},
    "no data": {"xData": []},
    "fewer lengths than sequences": {"xData": [*X[:5], bytes(8), b""]},
    "more sequences than lengths": {"xData": [*X[:3], 2**31 - 1, *X[4:]]},
    "no sequences": {"xData": [*X[:3], 0, 6, b"", b""]},
    "a negative number of them": {"yData": [*X[:3], -1, 6, b"", b""]},
    "a length beyond the longest": {"yData": [*X[:5], struct.pack("<3i", 10, 4, 2), b""]},
    "a negative length": {"xData": [*X[:5], struct.pack("<3i", 9, 4, -2), b""]},
    "a fill without end": {"xData": [*X[:6], bytes(17)]},
    "a state that is none": {"hDesc": [0, [1]]},
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_does_not_fit_never_reaches_cudnn(client: Client, case: str) -> None:
    fields = client.fields("cudnn_rnn_forward", **MALFORMED[case])
    assert client.call("cudnn_rnn_forward", *fields)[0] == BAD_PARAM
    assert "forward 1" in client.said("cudnn_rnn_forward")
