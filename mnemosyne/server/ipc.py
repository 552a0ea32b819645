"""cudaIpc between clients of one server: memory and events of another session.

How this works: an exported object has a token, which the client puts into the handle. Memory is
mapped a second time, chunk and all, in the session that opens it: it stays there when its owner
frees it or dies. So the chunk counts against the quota of each that has it: whoever is the last one
pays already, and all clients together never hold more than their quotas. An event is one object,
which every session that has it knows by the same token.
"""

from __future__ import annotations

from mnemosyne.server.errors import (
    INVALID_CONTEXT,
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    CallError,
)
from mnemosyne.server.exports import Export, Import
from mnemosyne.server.journal import Entries, of_kind
from mnemosyne.server.session import Handlers, Outputs, Session, add_event, check_new

_INTERPROCESS = 4  # cudaEventInterprocess


def _export_memory(s: Session, pointer: int) -> Outputs:
    if not s.arena.is_allocation(pointer):
        raise CallError(INVALID_VALUE, f"no device memory was allocated at {pointer:#x}")
    token = s.effects.exports.add(Export(s, pointer))
    s.journal.put("export_memory", pointer, token)
    return (token,)


def _export_event(s: Session, event: int) -> Outputs:
    found = s.event(event)
    if not found.flags & _INTERPROCESS:
        raise CallError(INVALID_RESOURCE_HANDLE, "the event was created without Interprocess")
    token = s.effects.exports.add_event(found)
    add_event(s, event, found)
    return (token,)


def _open_memory(s: Session, token: bytes) -> Outputs:
    for pointer, known in s.imports.items():
        if known.token == token:
            known.opened += 1
            return _opened(s, pointer, known)
    export = s.effects.exports.find(token)
    if export.owner is s:
        raise CallError(INVALID_CONTEXT, "a program cannot open a memory handle of its own")
    start, length = export.owner.arena.chunk_at(export.pointer)
    size = export.owner.arena.size_of(export.pointer)
    chunk = s.arena.adopt(length, start)
    pointer = chunk + export.pointer - start
    s.imports[pointer] = Import(token, chunk, size)
    return _opened(s, pointer, s.imports[pointer])


def _opened(s: Session, pointer: int, one: Import) -> Outputs:
    s.journal.put("import", pointer, [one.token, one.chunk, one.size, one.opened])
    return pointer, one.size


def _close_memory(s: Session, pointer: int) -> Outputs:
    known = s.imports.get(pointer)
    if known is None:
        raise CallError(INVALID_VALUE, f"no memory of another client was opened at {pointer:#x}")
    known.opened -= 1
    if known.opened:
        _opened(s, pointer, known)
        return None
    del s.imports[pointer]
    s.journal.drop("import", pointer)
    s.arena.leave(known.chunk)
    return None


def _open_event(s: Session, event: int, token: bytes) -> Outputs:
    """Both sessions have the same event from now on."""
    found = s.effects.exports.find_event(token)
    check_new(event, s.events, "event")
    add_event(s, event, found)
    return None


def restore(s: Session, entries: Entries) -> None:
    """The memory that other sessions may know, and that this one has opened."""
    for pointer, (token, chunk, size, opened) in of_kind(entries, "import"):
        s.imports[pointer] = Import(token, chunk, size, opened)
    for pointer, token in of_kind(entries, "export_memory"):
        s.effects.exports.add(Export(s, pointer), token)


HANDLERS: Handlers = {
    "ipc_export_memory": _export_memory,
    "ipc_open_memory": _open_memory,
    "ipc_close_memory": _close_memory,
    "ipc_export_event": _export_event,
    "ipc_open_event": _open_event,
}
