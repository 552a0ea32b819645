"""The native half of the server: channels in shared memory and the lanes that drain them."""

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

def is_settled(channel_fd: int) -> bool:
    """Whether everything the client has sent has taken effect and the GPU is done with it."""

def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash of ``data``."""
