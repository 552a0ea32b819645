"""The command line of the server: every value is checked here, with one clear line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import typer

from mnemosyne.server.paths import default_socket
from mnemosyne.server.slots import MAX_SLOTS, MIN_QUOTA, TOO_SMALL

DEVICES = ("auto", "cpu", "cuda", "null")
LEVELS = ("debug", "info", "warning", "error")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_GPU = re.compile(r"\d+|(GPU|MIG)-[0-9a-fA-F-]+")
_MAX_THREADS = 1024


@dataclass(frozen=True)
class Options:
    """Checked values. ``quota``: bytes per client, 0 for an equal share of the device."""

    clients: int
    device: str
    gpu: str
    socket: str
    quota: int
    threads: int
    log_level: str


def check(
    clients: int, device: str, gpu: str, socket: str, memory: str, threads: int, level: str
) -> Options:
    """Raises typer.BadParameter, which ends the program with one line and exit code 2."""
    _one_of(device, DEVICES, "--device")
    _one_of(level, LEVELS, "--log-level")
    if not 1 <= clients <= MAX_SLOTS:
        raise _bad(f"a server has 1 to {MAX_SLOTS} clients", "--clients")
    if gpu and not _GPU.fullmatch(gpu):
        raise _bad(f"{gpu!r} is neither an index nor a UUID such as GPU-1234abcd", "--gpu")
    if gpu and device not in ("auto", "cuda"):
        raise _bad(f"device {device} uses no GPU", "--gpu")
    if not 0 <= threads <= _MAX_THREADS:
        raise _bad(f"{threads} threads; 1 to {_MAX_THREADS} are possible", "--cpu-threads")
    quota = _quota(memory) if memory else 0
    path = socket or default_socket()
    return Options(clients, device, gpu, path, quota, threads or default_threads(), level)


def parse_size(text: str) -> int:
    """Bytes of a size such as 512M or 4GiB; units are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write for example 512M or 4GiB")
    number, unit, _ = match.groups()
    return int(float(number) * (1 << _POWERS[unit.upper()]))


def parse_quota(text: str) -> int:
    """Bytes of a client's memory, in whole granules. Raises ValueError."""
    quota = parse_size(text) // MIN_QUOTA * MIN_QUOTA
    if quota == 0:
        raise ValueError(TOO_SMALL)
    return quota


def default_threads() -> int:
    """Threads the CPU device computes with: half of the CPUs, 8 at most; clients need some too."""
    return max(1, min(len(os.sched_getaffinity(0)) // 2, 8))


def _quota(memory: str) -> int:
    try:
        return parse_quota(memory)
    except ValueError as error:
        raise _bad(str(error), "--memory-per-client") from None


def _one_of(value: str, possible: tuple[str, ...], flag: str) -> None:
    if value not in possible:
        raise _bad(f"{value!r} is none of {', '.join(possible)}", flag)


def _bad(text: str, flag: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=flag)
