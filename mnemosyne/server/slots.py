"""The address slots of sessions: fixed ranges outside what the system uses for anything else.

Client and worker map a session's memory at the same addresses, so that a pointer means the same in
both. There are more slots than clients where there is room: a session that ends slowly then does
not keep the next client waiting.
"""

from __future__ import annotations

import os

from mnemosyne.server.session import Layout

SLOT_BYTES = 1 << 40
DEVICE_BASE = 0x200000000000
HOST_BASE = 0x300000000000
MAX_SLOTS = (HOST_BASE - DEVICE_BASE) // SLOT_BYTES
STAGING_BYTES = 16 << 20  # what stays in the CPU's cache is fast
_MAX_HOST_BYTES = 256 << 30
MIN_QUOTA = 2 << 20  # bytes; memory is shared out in multiples of it
TOO_SMALL = "a client needs 2 MiB at least"


def slots_for(clients: int) -> int:
    """How many slots a server for this many clients has."""
    return min(2 * clients, MAX_SLOTS)


def host_bytes() -> int:
    """Size of a host slot: the machine's memory, within reason."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, _MAX_HOST_BYTES) // MIN_QUOTA * MIN_QUOTA


def why_no_quota(wanted: int, most: int) -> str:
    """Why a client cannot have this many bytes of ``most``; empty when it can. 0: all of them."""
    if 0 < wanted < MIN_QUOTA:
        return TOO_SMALL
    if wanted <= most:
        return ""
    return (
        f"{wanted >> 20} MiB of device memory are wanted, a client gets {most >> 20} MiB; "
        "ask for less, or start the server with a larger --memory-per-client"
    )


def layout(slot: int, quota: int) -> Layout:
    """The place of the session in this slot."""
    return Layout(
        device_base=DEVICE_BASE + slot * SLOT_BYTES,
        device_bytes=SLOT_BYTES,
        host_base=HOST_BASE + slot * SLOT_BYTES,
        host_bytes=host_bytes(),
        staging_bytes=STAGING_BYTES,
        quota=quota,
    )
