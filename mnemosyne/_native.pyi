"""The native half of the server: channels in shared memory and the lanes that drain them."""

from collections.abc import Sequence

def create_channel() -> int:
    """A new sealed memfd holding an initialised channel: ring, reply slots and status page."""

def create_memory(name: str, size: int) -> int:
    """A new memfd of ``size`` bytes (sparse), sealed against any change of its size."""

def mark_dead(channel_fd: int, reason: str, code: int = 0) -> None:
    """Marks the channel's status page dead and wakes every waiting client thread.

    ``code`` is the cudaError_t that the client's calls return; 0 stands for "the server is gone".
    """

def map_fixed(fd: int, address: int, size: int, offset: int) -> None:
    """Maps a memfd read-write and shared at exactly ``address``, replacing a reservation only."""

def reserve(address: int, size: int) -> None:
    """Reserves an address range (PROT_NONE). Raises OSError when any of it is taken."""

def unmap_to_reserved(address: int, size: int) -> None:
    """Turns a mapped range back into a reservation."""

def release_memory(fd: int, offset: int, size: int) -> None:
    """Gives the pages of a memfd range back to the system; they read as zero afterwards."""

class Executor:
    """What a lane runs natively, without Python."""

class NullExecutor(Executor):
    """Reads every call and does nothing."""

class Watch:
    """Looks after the CUDA context while any session has work on the GPU.

    ``context``: a CUcontext. ``notify_fd``: an eventfd, written to once, after a fault. Raises
    RuntimeError without a usable driver.
    """

    def __init__(self, context: int, notify_fd: int) -> None: ...
    def report(self, code: int) -> bool:
        """A driver call returned this code; whether the context is lost."""

    @property
    def fault(self) -> int:
        """The CUresult that the context was lost with; 0: it is well."""

    def suspects(self) -> list[int]:
        """Numbers of the sessions whose work was unfinished when the context was lost."""

class CudaExecutor(Executor):
    """Runs a session's hot calls on the GPU.

    ``place``: device base and bytes, host base and bytes, staging bytes. ``words``: the address of
    STREAMS 32-bit words of pinned memory. Other methods are for the owner of the ring; handles are
    CUstream, CUevent and CUfunction as integers, numbers are the client's.
    """

    def __init__(
        self, watch: Watch, number: int, context: int, place: Sequence[int], words: int
    ) -> None: ...
    def add_stream(self, number: int, handle: int, blocking: bool) -> bool:
        """False: there are STREAMS already. ``blocking``: it orders itself with the null stream."""

    def remove_stream(self, number: int) -> bool:
        """The stream is destroyed once its work is done; False: there is no such stream."""

    def add_event(self, number: int, handle: int) -> None: ...
    def remove_event(self, number: int) -> bool: ...
    def add_function(self, number: int, handle: int, argument_bytes: int) -> None: ...
    def add_graph(self, number: int, piece: bytes) -> None:
        """``piece``: more of its frames, each behind its size."""

    def remove_graph(self, number: int) -> None: ...
    def remove_function(self, number: int) -> None: ...
    def add_blas(self, number: int) -> None: ...
    def remove_blas(self, number: int) -> bool: ...
    def configure_blas(
        self, number: int, stream: int, math_mode: int, pointer_mode: int, workspace: int,
        workspace_bytes: int, multiprocessors: int,
    ) -> bool: ...  # fmt: skip
    def add_dnn(self, number: int) -> None: ...
    def remove_dnn(self, number: int) -> None: ...
    def dnn_heuristic(self, handle: int, stream: int, descriptor: bytes) -> tuple[int, bytes]:
        """(cudnnStatus_t, configurations as msgpack) for a packed ENGINEHEUR descriptor; slow."""

    def dnn_plan(self, handle: int, stream: int, plan: int, descriptor: bytes) -> tuple[int, int]:
        """(cudnnStatus_t, workspace in bytes) for a packed EXECUTION_PLAN descriptor; slow."""

    def destroy_dnn_plan(self, plan: int) -> bool: ...
    def dnn_dropout_states(self, handle: int, stream: int) -> tuple[int, int]:
        """(cudnnStatus_t, bytes of the states of a dropout)."""

    def dnn_weight_space(self, handle: int, stream: int, rnn: bytes) -> tuple[int, int]:
        """(cudnnStatus_t, bytes of all weights of a packed RNN)."""

    def dnn_weight_params(
        self, handle: int, stream: int, rnn: bytes, pseudo_layer: int, weight_bytes: int,
        weight_space: int,
    ) -> tuple[int, bytes]:  # fmt: skip
        """(cudnnStatus_t, where the layer's weights lie as msgpack) for a packed RNN."""

    def call_library(self, function: int, stream: int, arguments: bytes) -> tuple[int, int, bytes]:
        """(CUresult, the library's status, what comes back as a list), for packed arguments.

        ``function``: its number in Spec.library_calls. What it does in the legacy stream is waited
        for.
        """

    def idle(self) -> bool:
        """Whether the GPU has done all the session's work."""

    def synchronize(self) -> int:
        """Waits for it, and until the GPU writes no reply any more; a CUresult."""

    def end(self) -> None:
        """Gives back everything of the driver's, after ``synchronize``; the lane has ended."""

STREAMS: int

def is_fatal(code: int) -> bool:
    """Whether this CUresult means that the context is lost."""

def load_libraries(cublas: str, cublas_lt: str) -> None:
    """Opens the two libraries for all executors. Raises RuntimeError."""

def load_dnn(path: str) -> None:
    """Opens cuDNN for all executors. Raises RuntimeError."""

def load_library(name: str, path: str) -> None:
    """Opens cuFFT, cuSOLVER or cuSPARSE for all executors. Raises RuntimeError."""

def dnn_error() -> bytes:
    """What the last cuDNN call that failed in this thread said of it."""

class Lane:
    """One session's end of the ring: a thread that waits for frames and hands them over.

    The thread runs what ``executor`` can and writes to ``notify_fd`` (an eventfd) when frames are
    ready that are not the executor's. The owner then calls
    ``take`` until it returns an empty list; every taken frame is executed in order and counted back
    with ``done``. Methods other than ``close`` never block.
    """

    def __init__(
        self, channel_fd: int, notify_fd: int, executor: Executor | None = None
    ) -> None: ...
    def take(self, limit: int) -> list[tuple[int, bytes]]:
        """Up to ``limit`` frames, as (reply slot or -1, msgpack bytes).

        An empty list hands the ring back to the thread, which notifies again when frames arrive
        that it cannot run itself.
        Raises ValueError, once, when the client broke the ring's rules.
        """

    def done(self, count: int) -> None:
        """``count`` more taken frames have taken effect; publishes it on the status page."""

    def reply(self, slot: int, data: bytes) -> None:
        """Answers a frame that asked for a reply. ``data`` is at most REPLY_BYTES long."""

    def fail(self, code: int, text: str) -> None:
        """Latches an asynchronous error for the client's next call (the first one is kept)."""

    def close(self, reason: str) -> None:
        """Marks the channel dead, wakes the client, ends the thread."""

REPLY_BYTES: int

def is_settled(channel_fd: int, whole_frames: bool = False) -> bool:
    """Whether everything the client has sent has taken effect and the GPU is done with it.

    ``whole_frames``: the worker stopped between two frames, so the rest can be executed by another.
    """

def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash of ``data``."""
