"""A server that a test plays itself: real handshake, real channel, answers of the test's choice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from conftest import ROOT
from recorded import preload

from mnemosyne import _native
from mnemosyne.api import SPEC
from mnemosyne.protocol.control import Hello, Reader, Welcome, encode
from mnemosyne.server import slots
from mnemosyne.server.devices.cpu import hopper

QUOTA = 64 << 20
Answer = Callable[[list[Any]], list[Any]]  # a frame's fields to the outputs of its reply


class ScriptedServer:
    """Serves one client. ``frames``: (name, fields) as they came; ``hello``: the last one."""

    def __init__(self, folder: Path, answers: dict[str, Answer] | None = None) -> None:
        self.path = folder / "scripted.sock"
        self.channel = _native.create_channel()
        self.frames: list[tuple[str, list[Any]]] = []
        self.hello: Hello | None = None
        self._lane: _native.Lane | None = None
        self._closed = False
        self._event = os.eventfd(0)
        self._threads: list[threading.Thread] = []
        self._clients: list[subprocess.Popen[str]] = []
        self._answers = answers or {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._client: socket.socket | None = None
        self._start(self._accept)

    def python(self, code: str) -> subprocess.Popen[str]:
        """A client of this server."""
        environment = {
            **os.environ, "LD_PRELOAD": preload(), "PYTHONPATH": str(ROOT),
            "MNEMOSYNE_SOCKET": str(self.path),
        }  # fmt: skip
        client = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._clients.append(client)
        return client

    def output(self, code: str) -> str:
        client = self.python(code)
        output, errors = client.communicate(timeout=60)
        assert client.returncode == 0, errors
        return output.strip()

    def end(self) -> None:
        """Leaves no thread and no process behind."""
        self.close()
        for client in self._clients:
            client.kill()
            client.communicate()
        os.close(self.channel)

    def hang_up(self) -> None:
        """As the kernel does for a supervisor that was killed: nothing is said."""
        assert self._client is not None
        self._client.close()

    def close(self) -> None:
        """As a server that stops in order."""
        if self._closed:
            return
        self._closed = True
        if self._lane:
            self._lane.close("the test is over")
        os.eventfd_write(self._event, 1)
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()
        self._lane = None

    def _start(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        reader, messages = Reader(), []
        while not messages:
            messages = reader.feed(sock.recv(1 << 16))
        (self.hello,) = messages
        attaches = self.hello.purpose == "attach"
        at = slots.layout(0, QUOTA)
        place = (at.device_base, at.device_bytes, at.host_base, at.host_bytes, at.staging_bytes)
        welcome = Welcome(
            int(attaches), *(place if attaches else (0,) * 5), QUOTA, hopper.CUDA, hopper.NAME,
            hopper.UUID, hopper.properties(QUOTA * 2), hopper.attributes(),
        )  # fmt: skip
        if not attaches:
            return sock.sendall(encode(welcome))
        host = _native.create_memory("scripted-host", at.host_bytes)
        self._client, self._lane = sock, _native.Lane(self.channel, self._event)
        self._start(self._drain)
        socket.send_fds(sock, [encode(welcome)], [self.channel, host])
        os.close(host)

    def _drain(self) -> None:
        while os.eventfd_read(self._event) and not self._closed:
            while self._lane and (frames := self._lane.take(100)):
                for slot, data in frames:
                    self._execute(slot, data)

    def _execute(self, slot: int, data: bytes) -> None:
        assert self._lane is not None
        number, *fields = msgpack.unpackb(data)
        name = SPEC.messages[number].name
        self.frames.append((name, fields))
        outputs = self._answers.get(name, lambda fields: [])(fields)
        self._lane.done(1)
        if slot >= 0:
            self._lane.reply(slot, msgpack.packb([0, *outputs]))
