"""Message numbers and what client and server must agree on, for C++."""

from mnemosyne.api import Spec
from mnemosyne.codegen.text import HEADER
from mnemosyne.protocol import PROTOCOL_VERSION


def render(spec: Spec) -> str:
    """numbers.h."""
    lines = [f"  {message.name} = {number}," for number, message in sorted(spec.messages.items())]
    return f"""{HEADER}
#pragma once

namespace mnemosyne {{

constexpr int kProtocolVersion = {PROTOCOL_VERSION};
constexpr const char* kSpecDigest = "{spec.digest}";

enum class Number {{
{chr(10).join(lines)}
}};

}}  // namespace mnemosyne
"""
