"""What the lane executes natively: messages as C++ structs, and the library calls they make."""

from __future__ import annotations

from mnemosyne.api import Call, Field, Kind, Message, Mode, Spec
from mnemosyne.codegen.text import HEADER

_INTEGER = {
    "int": "int32_t", "unsigned int": "uint32_t", "long long": "int64_t", "size_t": "uint64_t",
    "uint64_t": "uint64_t",
}  # fmt: skip
_TYPE = {
    Kind.REAL: "double", Kind.PTR: "uint64_t", Kind.STREAM: "uint64_t", Kind.EVENT: "uint64_t",
    Kind.BLAS: "uint64_t", Kind.CUDNN: "uint64_t", Kind.FUNCTION: "uint64_t",
    Kind.SCALAR: "Scalar", Kind.BYTES: "Bytes", Kind.TEXT: "Bytes", Kind.LIST: "List",
}  # fmt: skip


def render(spec: Spec) -> str:
    """calls.h."""
    messages = [m for _, m in sorted(spec.messages.items()) if m.lane]
    structs = "\n\n".join(_struct(m) for m in messages)
    cases = "\n".join(
        f"    case Number::{m.name}: return read_and_run<calls::{m.name}>(u, run);"
        for m in messages
    )
    return f"""{HEADER}
#pragma once

#include "../lane/fields.h"
#include "numbers.h"

namespace mnemosyne {{
namespace calls {{

{structs}

}}  // namespace calls

// Reads the fields of a message that is_for_lane() and passes them to `run`. Throws
// std::invalid_argument for what the specification does not allow.
template <typename Run>
void dispatch(Number number, Unpacker& u, Run&& run) {{
  switch (number) {{
{cases}
    default: break;
  }}
}}

inline bool is_for_lane(Number number) {{
  switch (number) {{
{chr(10).join(f"    case Number::{m.name}:" for m in messages)}
      return true;
    default: return false;
  }}
}}

// Fields of a message that is_for_lane().
inline uint32_t field_count(Number number) {{
  switch (number) {{
{chr(10).join(f"    case Number::{m.name}: return {len(m.fields)};" for m in messages)}
    default: return 0;
  }}
}}

}}  // namespace mnemosyne
"""


def render_blas(spec: Spec) -> str:
    """blas_calls.h."""
    calls = [c for c in spec.calls if c.library == "cublas" and c.lane and c.mode is Mode.ONCE]
    pointers = "\n".join(f"  int (*{c.name})({_c_types(c)});" for c in calls)
    loads = "\n".join(f'    all &= find(library, "{c.name}", &{c.name});' for c in calls)
    runs = "\n".join(_run(c) for c in calls)
    return f"""{HEADER}
#pragma once

#include "../lane/symbols.h"
#include "calls.h"

namespace mnemosyne {{

// The library's functions, by name.
struct BlasFunctions {{
{pointers}

  bool load(void* library) {{
    bool all = true;
{loads}
    return all;
  }}
}};

// Calls the library with what a message says. `on_device`: scalars are device memory.
{runs}

}}  // namespace mnemosyne
"""


def _ctype(field: Field) -> str:
    return _INTEGER[field.ctype] if field.kind is Kind.INT else _TYPE[field.kind]


def _struct(message: Message) -> str:
    fields = "\n".join(f"  {_ctype(f)} {f.name};" for f in message.fields)
    reads = "".join(f"    get(u, &{f.name});\n" for f in message.fields)
    return f"""struct {message.name} {{
  static constexpr const char* kName = "{message.name}";
{fields}
  void read([[maybe_unused]] Unpacker& u) {{
{reads}  }}
}};"""


def _c_types(call: Call) -> str:
    by_value = (Kind.INT, Kind.REAL)
    return ", ".join(p.ctype if p.kind in by_value else "const void*" for p in call.params)


def _argument(p: Field) -> str:
    if p.kind is Kind.SCALAR:
        return f"c.{p.name}.pointer(on_device)"
    return f"reinterpret_cast<const void*>(c.{p.name})" if p.kind is Kind.PTR else f"c.{p.name}"


def _run(call: Call) -> str:
    arguments = ", ".join(["handle", *(_argument(p) for p in call.params[1:])])
    return f"""inline int call(const BlasFunctions& f, void* handle, const calls::{call.name}& c,
                bool on_device) {{
  return f.{call.name}({arguments});
}}"""
