"""Device memory and events of one client in another one: what torch.multiprocessing sends."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Server, wait_until
from logged_server import LoggedServer, logged_server
from ring import RingClient

from mnemosyne.server.admin import ask_status

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 1, 2, 201
INVALID_RESOURCE_HANDLE, ILLEGAL_ADDRESS = 400, 700
BYTES = 4096
CHUNK = 2 << 20
STREAM, EVENT = 0x100, 0x101
TIMED, INTERPROCESS = 4, 6  # both are interprocess
TENSORS_IN_A_QUEUE = """
import torch, torch.multiprocessing as mp

def work(questions, answers):
    x = questions.get()
    y = x * 2
    x += 1
    torch.cuda.synchronize()
    answers.put(y)
    questions.get()

if __name__ == "__main__":
    mp.set_start_method("spawn")
    questions, answers = mp.Queue(), mp.Queue()
    child = mp.Process(target=work, args=(questions, answers))
    child.start()
    x = torch.arange(100000, dtype=torch.float64, device="cuda")
    questions.put(x)
    y = answers.get()
    print(x.sum().item(), y.sum().item(), (y - 2 * x).unique().item())
    del y
    questions.put(None)
    child.join()
    print(child.exitcode)
"""


def test_tensors_go_through_queues_between_processes(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # a child that is spawned imports it
    program.write_text(TENSORS_IN_A_QUEUE)
    done = server.start(sys.executable, str(program))
    output, errors = done.communicate(timeout=120)
    total = 100000 * 99999 / 2
    assert output.split() == [str(total + 100000), str(2 * total), "-2.0", "0"], errors


WAITS_FOR_AN_EVENT = """
import torch, torch.multiprocessing as mp

def work(x, handle, questions, answers):
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), handle)
    torch.cuda.synchronize()
    for _ in range(300): x.add_(1)
    event.record()
    answers.put("recorded")
    questions.get()
    torch.cuda.synchronize()

if __name__ == "__main__":
    mp.set_start_method("spawn")
    questions, answers = mp.Queue(), mp.Queue()
    x, event = torch.zeros(1 << 20, device="cuda"), torch.cuda.Event(interprocess=True)
    child = mp.Process(target=work, args=(x, event.ipc_handle(), questions, answers))
    child.start()
    answers.get()
    event.wait()
    print(x.clone().unique().tolist())
    questions.put(None)
    child.join()
"""


def test_a_wait_is_behind_the_work_of_the_process_that_recorded_the_event(
    server: Server, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WAITS_FOR_AN_EVENT)
    output, errors = server.start(sys.executable, str(program)).communicate(timeout=120)
    assert output.split() == ["[300.0]"], errors


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedServer]:
    with logged_server(tmp_path_factory.mktemp("ipc")) as running:
        yield running


@pytest.fixture
def clients(logged: LoggedServer) -> Iterator[tuple[RingClient, RingClient]]:
    both = logged.client(), logged.client()
    yield both
    for client in both:
        client.close()
    assert wait_until(lambda: ask_status(str(logged.socket)).sessions == [])


def sound(client: RingClient, name: str, *values: object) -> list[object]:
    status, *outputs = client.call(name, *values)
    assert status == 0, (name, values, outputs)
    return outputs


def shared(owner: RingClient, other: RingClient) -> tuple[int, int, bytes]:
    """Memory that both have: its address in each of them, and its token."""
    sound(owner, "malloc", BYTES)  # so that the other one does not begin its chunk
    (pointer,) = sound(owner, "malloc", BYTES)
    (token,) = sound(owner, "ipc_export_memory", pointer)
    opened, size = sound(other, "ipc_open_memory", token)
    assert size == BYTES
    return pointer, opened, token  # type: ignore[return-value]


def write(client: RingClient, pointer: int, value: int) -> None:
    sound(client, "copy_inline", pointer, struct.pack("<q", value), 0)


def read(client: RingClient, pointer: int) -> int:
    (data,) = sound(client, "copy_fetch", pointer, 8, 0)
    (value,) = struct.unpack("<q", data)  # type: ignore[arg-type]
    return int(value)


def test_both_see_what_either_writes(clients: tuple[RingClient, RingClient]) -> None:
    owner, other = clients
    pointer, opened, _ = shared(owner, other)
    assert opened != pointer
    write(owner, pointer, 17)
    assert read(other, opened) == 17
    write(other, opened + 8, 18)
    assert read(owner, pointer + 8) == 18


def test_memory_stays_when_its_owner_frees_it_or_ends(
    clients: tuple[RingClient, RingClient], logged: LoggedServer
) -> None:
    other, owner = clients[0], logged.client()
    pointer, opened, token = shared(owner, other)
    write(owner, pointer, 5)
    sound(owner, "free", pointer)
    assert clients[1].call("ipc_open_memory", token)[0] == INVALID_VALUE
    owner.close()
    with closing(logged.client()) as fresh:  # may get the owner's place
        (mine,) = sound(fresh, "malloc", BYTES)
        write(fresh, mine, 6)
        assert read(other, opened) == 5
    sound(other, "ipc_close_memory", opened)
    assert other.call("copy_fetch", opened, 8, 0)[0] == ILLEGAL_ADDRESS


def test_memory_opened_twice_is_closed_twice(clients: tuple[RingClient, RingClient]) -> None:
    owner, other = clients
    _, opened, token = shared(owner, other)
    assert sound(other, "ipc_open_memory", token)[0] == opened
    sound(other, "ipc_close_memory", opened)
    read(other, opened)
    sound(other, "ipc_close_memory", opened)
    assert other.call("ipc_close_memory", opened)[0] == INVALID_VALUE


def test_the_status_tells_what_counts_against_each_quota(
    clients: tuple[RingClient, RingClient], logged: LoggedServer
) -> None:
    """Memory of another client counts while it is open."""
    owner, other = clients
    _, opened, _ = shared(owner, other)

    def told() -> list[int]:
        return [row[3] for row in sorted(ask_status(str(logged.socket)).sessions)]

    def counted() -> list[int]:
        infos = [sound(client, "cudaMemGetInfo") for client in clients]
        return [total - free for free, total in infos]  # type: ignore[operator]

    assert min(counted()) >= BYTES
    assert wait_until(lambda: told() == counted())
    sound(other, "ipc_close_memory", opened)
    assert counted()[1] == 0
    assert wait_until(lambda: told() == counted())


def test_opened_memory_is_not_the_openers_to_free_or_export(
    clients: tuple[RingClient, RingClient],
) -> None:
    owner, other = clients
    _, opened, _ = shared(owner, other)
    assert other.call("free", opened)[0] == INVALID_VALUE
    assert other.call("ipc_export_memory", opened)[0] == INVALID_VALUE


def room(client: RingClient) -> int:
    free, _ = sound(client, "cudaMemGetInfo")
    return free  # type: ignore[return-value]


def test_memory_counts_against_each_that_has_it(
    clients: tuple[RingClient, RingClient], logged: LoggedServer
) -> None:
    """So what only the opener still has counts, too: whole chunks, for it keeps them."""
    other, owner = clients[0], logged.client()
    quota = other.welcome.quota
    _, opened, token = shared(owner, other)
    assert room(owner) == quota - 2 * BYTES
    assert room(other) == quota - CHUNK
    assert sound(other, "ipc_open_memory", token)[0] == opened
    owner.close()
    assert room(other) == quota - CHUNK
    sound(other, "ipc_close_memory", opened)
    assert room(other) == quota - CHUNK
    sound(other, "ipc_close_memory", opened)
    assert room(other) == quota


def test_two_clients_never_hold_more_than_their_quotas(
    clients: tuple[RingClient, RingClient],
) -> None:
    owner, other = clients
    quota = owner.welcome.quota
    third = quota // 3 // CHUNK * CHUNK
    for left in (2, 1, 0):
        (pointer,) = sound(owner, "malloc", third)
        (token,) = sound(owner, "ipc_export_memory", pointer)
        sound(other, "ipc_open_memory", token)
        sound(owner, "free", pointer)
        assert room(other) == quota - (3 - left) * third
    (pointer,) = sound(owner, "malloc", third)
    (token,) = sound(owner, "ipc_export_memory", pointer)
    status, text = other.call("ipc_open_memory", token)
    assert status == OUT_OF_MEMORY
    assert f"{third} bytes are more than is left of the quota" in text
    assert other.call("malloc", third)[0] == OUT_OF_MEMORY


def test_a_token_opens_only_what_it_names(clients: tuple[RingClient, RingClient]) -> None:
    owner, other = clients
    _, _, token = shared(owner, other)
    assert owner.call("ipc_open_memory", token)[0] == INVALID_CONTEXT
    assert other.call("ipc_open_memory", bytes(16))[0] == INVALID_VALUE
    assert other.call("ipc_open_event", EVENT, token)[0] == INVALID_VALUE
    assert owner.call("ipc_export_memory", 64)[0] == INVALID_VALUE


def test_an_event_is_waited_for_by_another_client(clients: tuple[RingClient, RingClient]) -> None:
    owner, other = clients
    sound(owner, "cudaEventCreateWithFlags", EVENT, INTERPROCESS)
    sound(owner, "event_record", EVENT, 0, 0)
    (token,) = sound(owner, "ipc_export_event", EVENT)
    sound(other, "ipc_open_event", EVENT + 5, token)
    sound(owner, "cudaEventDestroy", EVENT)
    sound(other, "cudaStreamWaitEvent", 0, EVENT + 5, 0)
    sound(other, "cudaEventSynchronize", EVENT + 5)
    sound(other, "cudaEventDestroy", EVENT + 5)
    sound(owner, "cudaEventCreateWithFlags", EVENT, 0)
    assert owner.call("ipc_export_event", EVENT)[0] == INVALID_RESOURCE_HANDLE


def test_a_new_worker_maps_the_same_memory_in_both(
    clients: tuple[RingClient, RingClient], logged: LoggedServer
) -> None:
    owner, other = clients
    pointer, opened, token = shared(owner, other)
    write(owner, pointer, 21)
    logged.kill_worker()
    assert read(other, opened) == 21
    write(other, opened, 22)
    assert read(owner, pointer) == 22
    assert room(other) == other.welcome.quota - CHUNK
    sound(other, "ipc_close_memory", opened)
    assert room(other) == other.welcome.quota
    assert sound(other, "ipc_open_memory", token)[1] == BYTES


def test_a_new_worker_has_the_same_events_in_both(
    clients: tuple[RingClient, RingClient], logged: LoggedServer
) -> None:
    """Whichever of the two it opens first: each owns one event and opens one."""
    pairs = clients, clients[::-1]
    tokens = []
    for owner, other in pairs:
        sound(owner, "cudaEventCreateWithFlags", EVENT, TIMED)
        tokens += sound(owner, "ipc_export_event", EVENT)
        sound(other, "ipc_open_event", EVENT + 5, tokens[-1])
    logged.kill_worker()
    both = EVENT + 5, EVENT + 5
    for (owner, other), token in zip(pairs, tokens, strict=True):
        assert other.call("cudaEventElapsedTime", *both)[0] == INVALID_RESOURCE_HANDLE
        sound(owner, "event_record", EVENT, 0, 0)
        assert sound(other, "cudaEventElapsedTime", *both) == [0.0]
        assert sound(owner, "ipc_export_event", EVENT) == [token]
        sound(owner, "cudaEventDestroy", EVENT)
        sound(other, "cudaEventDestroy", EVENT + 5)
        assert other.call("ipc_open_event", EVENT, token)[0] == INVALID_VALUE
