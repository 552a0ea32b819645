"""What a program and ``mnemosyne status`` say when there is no server for them, and why."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from conftest import ROOT, Server, wait_until

from mnemosyne.protocol.control import Refusal, encode

#: A client without PyTorch: is there a device, and which error is there if not?
COUNT = """
import ctypes
n = ctypes.c_int(7)
print(ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(n)), n.value)
"""
NO_DEVICE = "100 0\n"


def client(path: Path, code: str = COUNT) -> subprocess.Popen[str]:
    return Server(None, path).python(code)  # type: ignore[arg-type]


def status(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mnemosyne.cli", "status", "--socket", str(path)], cwd=ROOT,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lines(path: Path) -> list[str]:
    """What both say, each in one line; a client has no device then."""
    one, other = client(path), status(path)
    (printed, said), (nothing, told) = one.communicate(timeout=60), other.communicate(timeout=60)
    assert (printed, nothing, other.returncode) == (NO_DEVICE, "", 1)
    assert said.count("\n") == told.count("\n") == 1
    return [said.removeprefix("mnemosyne: ").strip(), told.removeprefix("mnemosyne: ").strip()]


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server that answers two connections in its own way."""

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                (size,) = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
                connection.recv(size, socket.MSG_WAITALL)
                answer(connection)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=serve)
        thread.start()
        yield
        thread.join()


def test_the_line_about_a_missing_server_starts_one_at_this_socket(tmp_path: Path) -> None:
    path = tmp_path / "here.sock"
    for line in lines(path):
        assert line.startswith(f"no server at {path} (No such file or directory); start one with: ")
        assert line.endswith(f" --socket {path}")


def test_the_usual_socket_needs_no_option(tmp_path: Path) -> None:
    environment = Server(None, Path()).environment() | {"XDG_RUNTIME_DIR": str(tmp_path)}  # type: ignore[arg-type]
    environment["MNEMOSYNE_SOCKET"] = ""
    commands = [[sys.executable, "-c", COUNT], [sys.executable, "-m", "mnemosyne.cli", "status"]]
    said = [
        subprocess.run(c, env=environment, cwd=ROOT, text=True, capture_output=True).stderr.strip()
        for c in commands
    ]
    missing = f"mnemosyne: no server at {tmp_path}/mnemosyne.sock (No such file or directory); "
    assert said[0] == f"{missing}start one with: python -m mnemosyne.server --clients 4"
    assert said[1].endswith("start one with: mnemosyne server")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (encode(Refusal("it is another one; use it")), "refused: it is another one; use it"),
        (encode(Refusal("")), "refused"),
        (b"", "hung up ("),
    ],
    ids=["reason", "no reason", "hangs up"],
)
def test_a_server_that_refuses_is_not_to_be_started(
    tmp_path: Path, answer: bytes, says: str
) -> None:
    path = tmp_path / "s"
    with listening(path, lambda connection: connection.sendall(answer)):
        said = lines(path)
    for line in said:
        assert line.startswith(f"the server at {path} {says}")
        assert "start one" not in line


def test_a_server_that_does_not_answer_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        said = lines(path)
    for line in said:
        assert line.startswith(f"the server at {path} did not answer within 20 s; ")


#: Who listens last owns the socket, as far as its peers can see.
FOREIGN = """
import os, socket, sys
os.setuid(65534)
socket.socket(fileno=int(sys.argv[1])).listen()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_the_socket_of_another_user_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chown(path, 65534, 65534)
        giver = subprocess.Popen(
            [sys.executable, "-c", FOREIGN, str(listener.fileno())], pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert giver.stdout is not None
        giver.stdout.readline()
        said = lines(path)
        giver.communicate()
    for line in said:
        assert line.startswith(f"the socket {path} belongs to another user; ")


def test_clients_of_a_start_that_fails_get_its_reason(tmp_path: Path) -> None:
    """They connect while the worker has not said yet that it cannot serve."""
    path = tmp_path / "s"
    server = subprocess.Popen(
        [sys.executable, "-m", "mnemosyne.server", "--device", "cpu", "--socket", str(path),
         "--memory-per-client", "1TiB"],
        cwd=ROOT, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert wait_until(path.exists)
    said = lines(path)
    _, log = server.communicate(timeout=30)
    assert server.returncode == 1
    (line,) = log.splitlines()
    reason = line.split("ERROR: ")[1]
    assert reason.startswith("device cpu cannot be used: ")
    assert said == [f"the server at {path} refused: {reason}"] * 2
