"""A server process, and clients that speak the handshake only: refusals, survival, clean-up."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, Server, wait_until
from logged_server import logged_server
from ring import MESSAGES, RingClient

from mnemosyne.api import SPEC
from mnemosyne.protocol import PROTOCOL_VERSION
from mnemosyne.protocol.control import (
    MAX_CONTROL,
    Control,
    Hello,
    Reader,
    Refusal,
    Welcome,
    encode,
)
from mnemosyne.protocol.frames import encode as encode_frame
from mnemosyne.server.errors import OUT_OF_MEMORY

OwnServer = Callable[..., Server]
SLOT_BYTES = 1 << 40


def hello(purpose: str = "attach", digest: str = SPEC.digest, **changes: object) -> Hello:
    values = {"protocol": PROTOCOL_VERSION, "memory": 0, **changes}
    return Hello(purpose, values["protocol"], digest, os.getpid(), "test", [], values["memory"], 0)  # type: ignore[arg-type]


def connect(server: Server) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(20)
    sock.connect(str(server.socket))
    return sock


def receive(sock: socket.socket) -> tuple[Control, list[int]]:
    """One message and its file descriptors. Raises EOFError when the server hangs up."""
    reader, all_fds = Reader(), []
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 8)
        all_fds += fds
        if not data:
            raise EOFError
        if messages := reader.feed(data):
            return messages[0], all_fds


def ask(server: Server, message: Hello) -> Control:
    with closing(connect(server)) as sock:
        sock.sendall(encode(message))
        answer, fds = receive(sock)
    for fd in fds:
        os.close(fd)
    return answer


def attach(server: Server, **changes: object) -> tuple[socket.socket, Welcome]:
    """A session that lasts as long as the socket is open."""
    sock = connect(server)
    sock.sendall(encode(hello(**changes)))  # type: ignore[arg-type]
    answer, fds = receive(sock)
    assert isinstance(answer, Welcome), answer
    assert len(fds) == 2
    for fd in fds:
        os.close(fd)
    return sock, answer


HOLD = """
import os, socket, sys
from mnemosyne.api import SPEC
from mnemosyne.protocol import PROTOCOL_VERSION
from mnemosyne.protocol.control import Hello, encode
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(encode(Hello("attach", PROTOCOL_VERSION, SPEC.digest, 1, "hold", [], 0, 0)))
data, fds, _, _ = socket.recv_fds(sock, 1 << 20, 8)
print("attached" if len(fds) == 2 else data, flush=True)
"""
FORKED = HOLD + "os.fork() or (sys.stdin.read(), os._exit(0))\nsys.stdin.read()\n"
EXECED = HOLD + "os.execvp('sleep', ['sleep', '60'])\n"


def hold(server: Server, code: str = HOLD + "sys.stdin.read()\n") -> subprocess.Popen[str]:
    """A process of its own that holds a slot."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(server.socket)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "attached\n"
    return process


def test_a_probe_learns_the_device_and_takes_no_slot(server: Server) -> None:
    answer = ask(server, hello("probe"))
    assert isinstance(answer, Welcome)
    assert (answer.session, answer.device_bytes) == (0, 0)
    assert "H200" in answer.name
    assert server.sessions() == []


def test_attached_clients_have_slots_of_their_own(server: Server) -> None:
    first, one = attach(server)
    second, two = attach(server)
    assert one.session != two.session
    assert abs(one.device_base - two.device_base) >= SLOT_BYTES
    assert abs(one.host_base - two.host_base) >= SLOT_BYTES
    assert 0 < one.staging_bytes < one.host_bytes
    first.close()
    second.close()
    assert wait_until(lambda: server.sessions() == [])


def test_the_client_after_the_last_is_refused(own_server: OwnServer) -> None:
    server = own_server("--clients", "2")
    held = [attach(server)[0] for _ in range(2)]
    answer = ask(server, hello())
    assert isinstance(answer, Refusal)
    assert answer.reason == (
        f"all 2 client slots are in use (pids {os.getpid()}, {os.getpid()}); "
        "start the server with a larger --clients"
    )
    held[0].close()
    assert wait_until(lambda: len(server.sessions()) == 1)
    attach(server)[0].close()


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (hello(digest="0123456789abcdef"), ("0123456789abcdef", SPEC.digest)),
        (hello(protocol=99), ("protocol 99", str(PROTOCOL_VERSION))),
        (hello("dance"), ("'dance'",)),
        (hello(memory=1 << 50), ("1073741824 MiB of device memory", "--memory-per-client")),
        (hello(memory=1), ("a client needs 2 MiB at least",)),
    ],
    ids=["digest", "protocol", "purpose", "too much", "too little"],
)
def test_a_client_that_does_not_fit_is_told_why(
    server: Server, message: Hello, says: tuple[str, ...]
) -> None:
    answer = ask(server, message)
    assert isinstance(answer, Refusal)
    assert "\n" not in answer.reason
    assert all(part in answer.reason for part in says), answer.reason


def test_a_wanted_quota_is_given(server: Server) -> None:
    sock, welcome = attach(server, memory=64 << 20)
    assert welcome.quota == 64 << 20
    sock.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack("<I", 1 << 31),
        struct.pack("<I", 4) + b"\xc1\xc1\xc1\xc1",
        struct.pack("<I", 0),
        encode(Refusal("me?")),
        encode(hello("attach"))[:-1] + b"\xc1",
        encode(replace(hello("attach"), libraries=[["cudnn"]])),
    ],
    ids=["http", "oversized", "no msgpack", "empty", "wrong message", "broken hello", "libraries"],
)
def test_garbage_ends_that_connection_only(server: Server, data: bytes) -> None:
    with closing(connect(server)) as sock:
        sock.sendall(data)
        with pytest.raises(EOFError):
            receive(sock)
    assert isinstance(ask(server, hello("probe")), Welcome)


def test_file_descriptors_in_a_hello_are_refused(server: Server) -> None:
    with closing(connect(server)) as sock, open(os.devnull) as file:
        socket.send_fds(sock, [encode(hello())], [file.fileno()])
        with pytest.raises(EOFError):
            receive(sock)


def test_bytes_after_the_welcome_end_the_session(server: Server) -> None:
    sock, _ = attach(server)
    sock.sendall(encode(hello()))
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(sock)
    assert wait_until(lambda: server.sessions() == [])


def test_slow_handshakes_block_nobody_and_are_dropped(server: Server) -> None:
    slow = [connect(server) for _ in range(20)]
    for sock in slow:
        sock.sendall(encode(hello())[:3])
    started = time.monotonic()
    assert isinstance(ask(server, hello("probe")), Welcome)
    assert time.monotonic() - started < 2
    answer, _ = receive(slow[0])
    assert isinstance(answer, Refusal)
    for sock in slow:
        sock.close()


def test_too_many_unfinished_handshakes_are_turned_away(own_server: OwnServer) -> None:
    server = own_server("--clients", "1")
    idle = [connect(server) for _ in range(80)]
    for sock in idle:
        sock.close()
    assert wait_until(lambda: isinstance(ask_or_none(server), Welcome))


def ask_or_none(server: Server) -> Control | None:
    try:
        return ask(server, hello("probe"))
    except (OSError, EOFError):
        return None


@pytest.mark.parametrize("code", [None, FORKED, EXECED], ids=["plain", "forked child", "exec"])
def test_a_killed_client_frees_its_slot_within_two_seconds(
    server: Server, code: str | None
) -> None:
    process = hold(server) if code is None else hold(server, code)
    started = time.monotonic()
    if code is not EXECED:
        assert len(server.sessions()) == 1
        process.kill()
    assert wait_until(lambda: server.sessions() == [])
    assert time.monotonic() - started < 2
    process.kill()
    process.wait()


def test_a_hung_worker_does_not_keep_the_slot(own_server: OwnServer) -> None:
    server = own_server("--clients", "1")
    (worker,) = psutil.Process(server.process.pid).children()
    process = hold(server)
    worker.suspend()
    process.kill()
    process.wait()
    started = time.monotonic()
    sock = connect(server)  # this session opens when the worker goes on
    try:
        assert wait_until(lambda: refused_or_held(server) == "held", 5)
        assert time.monotonic() - started < 3
    finally:
        worker.resume()
    sock.close()


def refused_or_held(server: Server) -> str:
    """Whether a client is refused, or waits for the worker to open its session."""
    with closing(connect(server)) as sock:
        sock.sendall(encode(hello()))
        sock.settimeout(0.2)
        try:
            receive(sock)
        except TimeoutError:
            return "held"
        return "refused"


def test_a_worker_that_dies_is_replaced_and_idle_sessions_go_on(own_server: OwnServer) -> None:
    server = own_server("--clients", "2")
    sock, _ = attach(server)
    (worker,) = psutil.Process(server.process.pid).children()
    worker.kill()
    assert wait_until(lambda: isinstance(ask_or_none(server), Welcome))
    assert len(server.sessions()) == 1
    attach(server)[0].close()
    sock.close()
    assert wait_until(lambda: server.sessions() == [])


def replace_worker(server: Server) -> None:
    """Kills it, and waits for the next one to serve."""
    supervisor = psutil.Process(server.process.pid)
    (worker,) = supervisor.children()
    worker.kill()
    assert wait_until(lambda: supervisor.children() not in ([], [worker]))
    assert wait_until(lambda: isinstance(ask_or_none(server), Welcome))


def test_a_session_with_more_than_a_message_can_carry_goes_on(own_server: OwnServer) -> None:
    server = own_server("--clients", "2")
    hoarder, neighbour = RingClient(server.socket), RingClient(server.socket)
    where = hoarder.call("malloc", 4096)[1]
    frame = encode_frame(MESSAGES["copy_inline"], where, b"x" * 4000, 0)
    piece = (len(frame).to_bytes(4, "little") + frame) * 240
    pieces = MAX_CONTROL // len(piece) + 10
    for _ in range(pieces):
        hoarder.post("graph_frames", 7, piece)
    hoarder.drain()
    replace_worker(server)
    for client in (hoarder, neighbour):
        assert client.call("malloc", 4096)[0] == 0
        client.close()


def test_a_client_is_out_of_memory_before_the_server_is_out_of_files(
    own_server: OwnServer,
) -> None:
    server = own_server("--clients", "2", files=600)
    hoarder, neighbour = RingClient(server.socket), RingClient(server.socket)
    replies = [hoarder.call("malloc", 2 << 20) for _ in range(150)]
    refused = [reply for reply in replies if reply[0]]
    assert {reply[0] for reply in refused} == {OUT_OF_MEMORY}
    assert "the limit of open files, 600" in refused[0][1]
    assert len(replies) - len(refused) > 50  # a few chunks of 16 MiB follow the small ones
    replace_worker(server)
    assert hoarder.call("free", replies[0][1])[0] == 0
    assert hoarder.call("malloc", 2 << 20)[0] == 0
    assert neighbour.call("malloc", 4096)[0] == 0
    for client in (hoarder, neighbour):
        client.close()


def test_a_worker_that_keeps_dying_ends_the_server(own_server: OwnServer) -> None:
    server = own_server("--clients", "1", "--device", "null")

    def kill_workers() -> bool:
        for child in psutil.Process(server.process.pid).children() if alive(server) else []:
            child.kill()
        return not alive(server)

    assert wait_until(kill_workers, 15)
    assert server.process.wait(5) == 1
    assert not server.socket.exists()


def alive(server: Server) -> bool:
    return server.process.poll() is None


def test_the_worker_dies_with_its_supervisor(own_server: OwnServer) -> None:
    server = own_server("--clients", "1")
    (worker,) = psutil.Process(server.process.pid).children()
    server.process.kill()
    server.process.wait()
    worker.wait(5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_in_order(own_server: OwnServer, number: signal.Signals) -> None:
    server = own_server("--clients", "2")
    sock, _ = attach(server)
    children = psutil.Process(server.process.pid).children()
    started = time.monotonic()
    server.process.send_signal(number)
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(sock)
    assert server.process.wait(5) == 0
    assert time.monotonic() - started < 2
    assert not server.socket.exists()
    assert not any(child.is_running() for child in children)


def test_a_second_signal_forces_a_server_with_a_hung_worker(own_server: OwnServer) -> None:
    server = own_server("--clients", "1")
    (worker,) = psutil.Process(server.process.pid).children()
    worker.suspend()
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: not server.socket.exists())
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5) in (0, 1)
    worker.wait(5)


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected to end by itself."""
    command = [sys.executable, "-m", "mnemosyne.server", "--clients", "1", *options]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=30)


def test_a_live_socket_is_left_alone(server: Server) -> None:
    done = serve("--device", "cpu", "--socket", str(server.socket))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"mnemosyne: a server is listening at {server.socket} already; choose another --socket"
    ]
    assert isinstance(ask(server, hello("probe")), Welcome)


def test_a_stale_socket_is_replaced(own_server: OwnServer, tmp_path: Path) -> None:
    path = tmp_path / "mnemosyne.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = own_server("--clients", "1")
    assert server.socket == path
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(ask(server, hello("probe")), Welcome)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--device", "cuda", "--gpu", "99"), 1, "device cuda cannot be used"),
        (("--device", "cpu", "--memory-per-client", "100TiB"), 1, "are promised"),
        (("--device", "tpu"), 2, "none of auto, cpu, cuda"),
        (("--clients", "0"), 2, "--clients"),
        (
            ("--device", "cpu", "--socket", "/nonexistent/x.sock"),
            1,
            "/nonexistent/x.sock: No such file or directory; make its folder or choose another --s",
        ),
        (("--device", "cpu", "--socket", "/tmp/" + "x" * 120), 1, "longer than 107 bytes"),
        (("--device", "cpu", "--socket", "/etc/hostname"), 1, "is no socket"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    options: tuple[str, ...], code: int, says: str
) -> None:
    done = serve(*options)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


@pytest.mark.skipif(find_library("cuda") is not None, reason="there is a driver here")
def test_a_server_without_a_driver_says_what_needs_none() -> None:
    done = serve("--device", "cuda")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "device cuda cannot be used: libcuda.so.1 was not found; --device cpu needs no GPU\n"
    )


def test_a_signal_while_the_server_starts_is_its_last_word(tmp_path: Path) -> None:
    """Ctrl-C goes to all processes of a terminal, the worker's too that still imports."""
    server = subprocess.Popen(
        [sys.executable, "-m", "mnemosyne.server", "--device", "cpu",
         "--socket", str(tmp_path / "s")],
        cwd=ROOT, text=True, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert wait_until(lambda: bool(psutil.Process(server.pid).children()))
    os.killpg(server.pid, signal.SIGINT)
    _, log = server.communicate(timeout=30)
    (line,) = log.splitlines()
    assert line.endswith("stopping: the server got SIGINT")
    assert server.returncode == 0
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("module", ["mnemosyne.server", "mnemosyne"])
def test_a_signal_while_the_command_still_imports_gives_no_traceback(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / "typer.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, text=True, capture_output=True, timeout=30,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


def test_the_log_says_when_another_worker_serves(tmp_path: Path) -> None:
    with logged_server(tmp_path) as server:
        client = server.client()
        server.kill_worker()
        assert wait_until(lambda: server.says("another worker is ready; 1 sessions go on"))
        client.close()
