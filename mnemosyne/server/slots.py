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
_GRANULE = 2 << 20


def slots_for(clients: int) -> int:
    """How many slots a server for this many clients has."""
    return min(2 * clients, MAX_SLOTS)


def host_bytes() -> int:
    """Size of a host slot: the machine's memory, within reason."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, _MAX_HOST_BYTES) // _GRANULE * _GRANULE


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
