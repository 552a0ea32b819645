"""The CUDA device: one GPU's primary context, shared by all sessions."""

from __future__ import annotations

import logging
import os
from ctypes import CDLL, addressof, c_char, c_size_t, string_at
from dataclasses import replace
from mmap import mmap

from cuda.bindings import driver
from cuda.pathfinder import DynamicLibNotFoundError

from mnemosyne import _native
from mnemosyne.server import ipc, slots
from mnemosyne.server.devices import Description, Fault
from mnemosyne.server.devices.cuda import describe, handlers, memory
from mnemosyne.server.devices.cuda.driver import check, check_code
from mnemosyne.server.devices.cuda.kernels import Kernels
from mnemosyne.server.devices.cuda.libraries import path_of
from mnemosyne.server.devices.cuda.memory import GpuChunks
from mnemosyne.server.devices.cuda.session import CudaSession, SharedEvents
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import HANDLERS, Effects, Layout

log = logging.getLogger("mnemosyne")

_ORDINAL = 0  # of what CUDA_VISIBLE_DEVICES leaves
_WORDS_BYTES = _native.STREAMS * 4


def create(threads: int) -> CudaDevice:
    """``threads`` is the CPU device's. Raises CallError or RuntimeError without a usable GPU."""
    return CudaDevice()


class CudaDevice:
    """Implements ``Device`` on the first GPU that this process sees."""

    def __init__(self) -> None:
        _need_driver()
        check(driver.cuInit(0))
        self._libraries = _load_libraries()
        self._shared_events = SharedEvents()
        self.handlers = {**HANDLERS, **handlers.HANDLERS}

    def start(self) -> None:
        device = check(driver.cuDeviceGet(_ORDINAL))
        self._context = check(driver.cuDevicePrimaryCtxRetain(device))
        self.enter()
        self.fault_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._watch = _native.Watch(int(self._context), self.fault_fd)
        self._progress = mmap(-1, slots.MAX_SLOTS * _WORDS_BYTES)
        self._words = self._pin_progress()
        self._kernels = Kernels(describe.sm(_ORDINAL))
        self.chunks = GpuChunks(_ORDINAL)

    def _pin_progress(self) -> list[int]:
        """Addresses of the words that the GPU writes its progress to, one block a session."""
        base = addressof(c_char.from_buffer(self._progress))
        memory.pin(base, len(self._progress))
        return [base + i * _WORDS_BYTES for i in range(slots.MAX_SLOTS)]

    def describe(self, memory: int) -> Description:
        return replace(describe.describe(_ORDINAL, memory), libraries=self._libraries)

    def enter(self) -> None:
        check(driver.cuCtxSetCurrent(self._context))

    def lost(self, code: int) -> None:
        self._watch.report(code)

    def fault(self) -> Fault:
        code = self._watch.fault
        return Fault(code, driver.CUresult(code).name, self._watch.suspects())

    def open(self, number: int, layout: Layout, effects: Effects) -> CudaSession:
        at = layout
        place = (at.device_base, at.device_bytes, at.host_base, at.host_bytes, at.staging_bytes)
        words = self._words[-1]
        executor = _native.CudaExecutor(self._watch, number, int(self._context), place, words)
        session = CudaSession(
            number, layout, effects, executor=executor, kernels=self._kernels,
            shared_events=self._shared_events, words=words,
        )  # fmt: skip
        handlers.add_stream(session, 0, flags=0, priority=0)
        self._words.pop()
        return session

    def executor(self, session: CudaSession) -> _native.Executor:
        return session.executor

    def restore(self, session: CudaSession, chunks: list[list[int]], entries: Entries) -> None:
        session.restore(chunks, entries)
        ipc.restore(session, entries)
        handlers.restore(session, entries)

    def progress(self, session: CudaSession) -> bytes:
        return string_at(session.words, _WORDS_BYTES)

    def close(self, session: CudaSession) -> None:
        check_code(session.executor.synchronize())
        handlers.release(session)
        self._words.append(session.words)


def _need_driver() -> None:
    """Says what a machine without a GPU lacks, before cuda-python does in its own words."""
    try:
        CDLL("libcuda.so.1")
    except OSError:
        raise RuntimeError("libcuda.so.1 was not found; --device cpu needs no GPU") from None


def _load_libraries() -> list[list[object]]:
    """cuBLAS, cublasLt and cuDNN from the wheels beside PyTorch, or from the system.

    Returns [[name, version number], ...] of what clients have to match.
    """
    lt = path_of("cublasLt")
    _native.load_libraries(path_of("cublas"), lt)
    loaded: list[list[object]] = [["cublasLt", _version(lt, "cublasLtGetVersion")]]
    try:
        path_of("nvrtc")  # with which cuDNN compiles some of its kernels
        dnn = path_of("cudnn")
        _native.load_dnn(dnn)
        loaded.append(["cudnn", _version(dnn, "cudnnGetVersion")])
    except (DynamicLibNotFoundError, RuntimeError) as error:
        log.warning("clients have no cuDNN: %s", str(error).splitlines()[0])
    return loaded


def _version(path: str, function: str) -> int:
    ask = getattr(CDLL(path), function)
    ask.restype = c_size_t
    return int(ask())
