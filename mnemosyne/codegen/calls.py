"""What the lane executes natively: messages as C++ structs, and the library calls they make."""

from __future__ import annotations

from mnemosyne.api import Call, Field, Kind, Message, Mode, Spec
from mnemosyne.api.spec import Way
from mnemosyne.codegen.text import HEADER

_INTEGER = {
    "int": "int32_t", "unsigned int": "uint32_t", "long long": "int64_t", "size_t": "uint64_t",
    "uint64_t": "uint64_t",
}  # fmt: skip
_TYPE = {
    Kind.REAL: "double", Kind.PTR: "uint64_t", Kind.STREAM: "uint64_t", Kind.EVENT: "uint64_t",
    Kind.BLAS: "uint64_t", Kind.CUDNN: "uint64_t", Kind.FUNCTION: "uint64_t",
    Kind.RESULT: "uint64_t", Kind.SCALAR: "Scalar", Kind.BYTES: "Bytes", Kind.TEXT: "Bytes",
    Kind.LIST: "List",
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

#include "../common/blas_types.h"
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

// Calls the library with what a message says.
{runs}

}}  // namespace mnemosyne
"""


def _ctype(field: Field) -> str:
    return _INTEGER[field.ctype] if field.kind is Kind.INT else _TYPE[field.kind]


def _struct(message: Message) -> str:
    fields = "\n".join(f"  {_ctype(f)} {f.name};" for f in message.fields)
    reads = "".join(f"    get(u, &{f.name});\n" for f in message.fields)
    tag, members = _returns(message)
    return f"""struct {message.name}{tag} {{
  static constexpr const char* kName = "{message.name}";
{fields}
  void read([[maybe_unused]] Unpacker& u) {{
{reads}  }}{members}
}};"""


def _returns(message: Message) -> tuple[str, str]:
    """What a cuBLAS routine gives back: its tag of fields.h, and the members that go with it."""
    if any(f.name == "info" for f in message.outputs):
        return " : ReturnsInfo", ""
    for f in message.fields:
        if f.kind is Kind.RESULT:
            return " : ReturnsResult", f"\n  size_t result_size() const {{ return {f.size}; }}"
    changed = [f.name for f in message.fields if f.way is Way.INOUT]
    if not changed:
        return "", ""
    packs = "".join(f"    p->bytes({name}.host, {name}.size);\n" for name in changed)
    members = f"\n  static constexpr uint32_t kChanged = {len(changed)};"
    return " : ChangesScalars", f"{members}\n  void pack(Packer* p) const {{\n{packs}  }}"


def _c_types(call: Call) -> str:
    return ", ".join(_c_type(p) for p in call.params)


def _c_type(p: Field) -> str:
    by_value = p.kind in (Kind.INT, Kind.REAL) and p.way is not Way.OUT
    return p.ctype if by_value else "const void*"


def _argument(p: Field) -> str:
    if p.way is Way.OUT:
        return "&at->info"
    if p.kind is Kind.SCALAR:
        return f"c.{p.name}.pointer(at->on_device)"
    if p.kind is Kind.RESULT:
        return f"at->result ? at->result : reinterpret_cast<void*>(c.{p.name})"
    return f"reinterpret_cast<const void*>(c.{p.name})" if p.kind is Kind.PTR else f"c.{p.name}"


def _run(call: Call) -> str:
    arguments = ", ".join(["handle", *(_argument(p) for p in call.params[1:])])
    return f"""inline int call(const BlasFunctions& f, void* handle, const calls::{call.name}& c,
                [[maybe_unused]] BlasPlaces* at) {{
  return f.{call.name}({arguments});
}}"""
