"""The null device: keeps every handle and allocation, and executes nothing.

It is for benchmarks of the protocol; what a program reads back is zero. Modules are still read,
because a client packs a launch by the kernel's real parameters.
"""

from __future__ import annotations

from typing import Any

from mnemosyne import _native
from mnemosyne.api import SPEC
from mnemosyne.server import graphs, ipc, libraries
from mnemosyne.server.devices.cpu import cudnn, launches, lt
from mnemosyne.server.devices.cpu.device import CpuDevice
from mnemosyne.server.devices.cpu.kernels import KernelInfo, Launch, Run
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import HANDLERS, Handlers, Outputs, Session

_REAL = {
    **{
        name: launches.HANDLERS[name]
        for name in launches.HANDLERS
        if name not in ("launch", "launch_ex")
    },
    **{
        name: cudnn.HANDLERS[name]
        for name in (
            "cudnn_heuristic",
            "cudnn_plan",
            "cudnn_plan_destroy",
            "cudnn_batch_norm_room",
            "cudnn_dropout_states",
            "cudnn_rnn_weight_space",
            "cudnn_rnn_weight_params",
        )
    },
    "lt_heuristic": lt.HANDLERS["lt_heuristic"],
}


def create(threads: int) -> CpuDevice:
    title = "null device, executes nothing"
    return CpuDevice(title, threads, _handlers(), _bind, _native.NullExecutor)


def _handlers() -> Handlers:
    idle: Handlers = {message.name: _nothing for message in SPEC.messages.values()}
    called = libraries.handlers(libraries.nothing)
    own = {**ipc.HANDLERS, **graphs.HANDLERS, **called, **_REAL, "copy_fetch": _zeros}
    return {**idle, **HANDLERS, **own}


def _nothing(s: Session, *values: Any) -> Outputs:
    return None


def _zeros(s: Session, src: int, count: int, stream: int) -> Outputs:
    if not 0 <= count <= 4096:
        raise CallError(INVALID_VALUE, f"{count} bytes do not fit into a reply")
    return (bytes(count),)


def _bind(kernel: KernelInfo) -> Run:
    return _run_nothing


def _run_nothing(launch: Launch) -> None:
    return None
