"""CUDA graphs: frames that a client captured, kept to be executed again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnemosyne.api import SPEC, Kind, Message
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.frames import decode
from mnemosyne.server.errors import INVALID_VALUE, OUT_OF_MEMORY, CallError
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import Deferred, Handler, Handlers, Outputs, Session

MAX_BYTES = 256 << 20  # of a session's graphs
_SIZE_BYTES = 4
#: What may be in a graph: work for a stream, and the settings of its library handles.
CAPTURABLE = {m.name for m in SPEC.messages.values() if m.lane} - {"graph_launch", *SPEC.carried}
CAPTURABLE |= {"blas_configure"}
_KIND = "graph_"  # of journal entries; the piece's place follows


def calls(data: bytes) -> Iterator[tuple[Message, list[Any]]]:
    """What the frames of a piece say. Raises ProtocolError."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "little")
        at += _SIZE_BYTES + size
        if at > len(data):
            raise ProtocolError("graph_frames: the last frame is cut off")
        message, values = decode(data[at - size : at])
        if message.name not in CAPTURABLE:
            raise ProtocolError(f"graph_frames: {message.name} cannot be in a graph")
        yield message, values


def _add(s: Session, graph: int, data: bytes) -> Outputs:
    for _ in calls(data):
        pass
    held = sum(len(piece) for pieces in s.graphs.values() for piece in pieces)
    if held + len(data) > MAX_BYTES:
        raise CallError(OUT_OF_MEMORY, f"more than {MAX_BYTES} bytes of CUDA graphs")
    pieces = s.graphs.setdefault(graph, [])
    s.journal.put(f"{_KIND}{len(pieces)}", graph, data)
    pieces.append(data)
    return None


def _destroy(s: Session, graph: int) -> Outputs:
    for at in range(len(_pieces(s, graph))):
        s.journal.drop(f"{_KIND}{at}", graph)
    del s.graphs[graph]
    return None


def _pieces(s: Session, graph: int) -> list[bytes]:
    found = s.graphs.get(graph)
    if found is None:
        raise CallError(INVALID_VALUE, f"this client has no graph {graph:#x}")
    return found


def launcher(handlers: Handlers) -> Handler:
    """Executes a graph's frames by ``handlers``, in another thread: they may take long."""

    def launch(s: Session, graph: int, stream: int) -> Outputs:
        pieces = list(_pieces(s, graph))
        s.check_stream(stream)

        def work() -> None:
            for piece in pieces:
                for message, values in calls(piece):
                    handlers[message.name](s, *_in_stream(message, values, stream))

        return Deferred(work, lambda _: None)

    return launch


def _in_stream(message: Message, values: list[Any], stream: int) -> list[Any]:
    return [
        stream if field.kind is Kind.STREAM else value
        for field, value in zip(message.fields, values, strict=True)
    ]


def restore(s: Session, entries: Entries) -> None:
    """In the order in which the pieces came."""
    for key, data in entries:
        kind, _, number = key.partition("/")
        if kind.startswith(_KIND):
            s.graphs.setdefault(int(number), []).append(data)


HANDLERS: Handlers = {"graph_frames": _add, "graph_destroy": _destroy}
