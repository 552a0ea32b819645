"""Where the server's socket is. The client library follows the same rule."""

from __future__ import annotations

import os
from collections.abc import Mapping

WHERE = "$MNEMOSYNE_SOCKET, else $XDG_RUNTIME_DIR/mnemosyne.sock, else /tmp/mnemosyne-UID.sock"
MAX_SOCKET_PATH = 107  # bytes in sockaddr_un, without the final zero


def default_socket() -> str:
    """The path of the socket for this process."""
    return socket_path(os.environ, os.getuid())


def usual_socket() -> str:
    """Where it is unless somebody chooses another place."""
    return socket_path({**os.environ, "MNEMOSYNE_SOCKET": ""}, os.getuid())


def socket_path(environ: Mapping[str, str], uid: int) -> str:
    """$MNEMOSYNE_SOCKET, else a socket in $XDG_RUNTIME_DIR, else one in /tmp."""
    if chosen := environ.get("MNEMOSYNE_SOCKET"):
        return chosen
    if folder := environ.get("XDG_RUNTIME_DIR"):
        return f"{folder}/mnemosyne.sock"
    return f"/tmp/mnemosyne-{uid}.sock"
