"""The one specification of every CUDA call: what it is called, what it carries, how it travels.

Client stubs, frame checks, call numbers and the coverage table are all derived from it. Pure data:
it must never import sockets, asyncio, torch, CUDA or any other part of mnemosyne.
"""

from mnemosyne.api.spec import Call, Field, Kind, Message, Mode, Spec
from mnemosyne.api.table import SPEC

__all__ = ["SPEC", "Call", "Field", "Kind", "Message", "Mode", "Spec"]
