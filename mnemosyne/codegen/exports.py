"""What libclient.so exports: the linker's version script, and the table that looks names up."""

from __future__ import annotations

from mnemosyne.api import Mode, Spec
from mnemosyne.api.driver import VERSIONED
from mnemosyne.codegen.text import HEADER


def _exported(spec: Spec) -> list[str]:
    return sorted(c.name for c in spec.calls if c.mode is not Mode.NATIVE)


def render_map(spec: Spec) -> str:
    """exports.map."""
    names = "\n".join(f"    {name};" for name in [*_exported(spec), "dlopen"])
    return f"{HEADER.replace('// ', '# ')}\n{{\n  global:\n{names}\n  local: *;\n}};\n"


def render_table(spec: Spec) -> str:
    """export_table.h."""
    names = _exported(spec)
    targets = {**{name: name for name in names}, **VERSIONED}
    declarations = "\n".join(f'extern "C" void {name}();' for name in names)
    rows = "\n".join(
        f'    {{"{name}", reinterpret_cast<void*>(&{targets[name]})}},' for name in sorted(targets)
    )
    return f"""{HEADER}
#pragma once

#include "../client_hook/exports.h"

{declarations}

namespace mnemosyne {{

static const Export kExports[] = {{
{rows}
}};

}}  // namespace mnemosyne
"""
