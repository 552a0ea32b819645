"""The wire: bytes in, messages out. Frames (`frames`) travel in the ring, control messages
(`control`) on the Unix socket. Pure values: it must never import sockets, asyncio, CUDA or torch.
"""

from mnemosyne.protocol.errors import ProtocolError

__all__ = ["PROTOCOL_VERSION", "ProtocolError"]

#: Bumped by every change of the wire.
PROTOCOL_VERSION = 5
