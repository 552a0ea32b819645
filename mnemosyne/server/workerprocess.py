"""Starting, watching and ending the worker process, from the supervisor's side."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import Control, Start
from mnemosyne.server.slots import slots_for
from mnemosyne.server.wire import Received, Wire

_PRELOADS = ("LD_PRELOAD", "LD_AUDIT")


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker is started with. ``memory``: bytes promised to clients, 0 for the default."""

    device: str
    gpu: str  # index or UUID, empty for the first
    slots: int
    threads: int
    memory: int
    log_level: str


@dataclass(frozen=True)
class Plan:
    """What a supervisor is started with. ``quota``: bytes per client, 0 for an equal share."""

    clients: int
    device: str
    gpu: str  # index or UUID, empty for the first
    threads: int
    quota: int
    log_level: str

    @property
    def worker(self) -> WorkerOptions:
        memory, slots = self.clients * self.quota, slots_for(self.clients)
        return WorkerOptions(self.device, self.gpu, slots, self.threads, memory, self.log_level)


def worker_environment(environ: Mapping[str, str], options: WorkerOptions) -> dict[str, str]:
    """The worker's environment: no preloads, no CUDA settings but the server's own.

    Without --gpu the caller's CUDA_VISIBLE_DEVICES says which GPU is the first.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _PRELOADS and not name.startswith("CUDA_")
    }
    fixed = {
        "CUDA_DEVICE_MAX_CONNECTIONS": "16",  # with 8 queues clients wait for each other
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of nvidia-smi
        "CUBLAS_WORKSPACE_CONFIG": ":16:8",  # 128 KiB a handle, not 32 MiB: clients bring their own
        "OMP_NUM_THREADS": str(options.threads),
    }
    if visible := options.gpu or environ.get("CUDA_VISIBLE_DEVICES"):
        fixed["CUDA_VISIBLE_DEVICES"] = visible
    return {**kept, **fixed}


class WorkerProcess:
    """A worker, which waits for ``start``. ``died`` is called once, with it and its exit status."""

    def __init__(
        self, options: WorkerOptions, received: Received, died: Callable[[WorkerProcess, int], None]
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = _start(options, theirs)
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._exited)
        self._wire = Wire(ours, received, self._hung_up)
        self.gone = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """It takes hold of the device."""
        self.send(Start())

    def send(self, message: Control, fds: tuple[int, ...] = ()) -> None:
        self._wire.send(message, fds)

    def freeze(self) -> None:
        """It runs no more, and still has to be killed."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Ends it now; ``died`` is called as for any other death."""
        self._process.send_signal(signal.SIGKILL)

    def _hung_up(self, error: ProtocolError | None) -> None:
        """Without its socket the worker is of no use, whatever it thinks."""
        self.kill()

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.drain()
        self._wire.close()
        self.gone.set()
        self._died(self, self._process.wait())

    def drain(self) -> None:
        """Takes what it has said so far: of a worker that dies, that counts."""
        self._wire.drain()


def _start(options: WorkerOptions, theirs: socket.socket) -> subprocess.Popen[bytes]:
    fd = theirs.fileno()
    values = {
        "--fd": fd, "--device": options.device, "--slots": options.slots,
        "--threads": options.threads, "--memory": options.memory, "--parent": os.getpid(),
        "--log-level": options.log_level,
    }  # fmt: skip
    arguments = [part for name, value in values.items() for part in (name, str(value))]
    # Ctrl-C is for the supervisor alone, also before the worker has its session and ignores it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "mnemosyne.server.worker", *arguments],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            env=worker_environment(os.environ, options),
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
