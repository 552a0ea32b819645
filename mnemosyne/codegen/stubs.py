"""Client stubs of the regular calls, and the functions that refuse."""

from __future__ import annotations

from mnemosyne.api import Call, Field, Kind, Mode, Spec
from mnemosyne.api.spec import Way
from mnemosyne.codegen.text import HEADER

_TABLE = {
    Kind.STREAM: "streams()",
    Kind.EVENT: "events()",
    Kind.BLAS: "blas_handles()",
    Kind.CUDNN: "cudnn_handles()",
}

#: How a parameter that goes in is put into the frame.
_PUT = {
    Kind.INT: "integer({0})",
    Kind.REAL: "real({0})",
    Kind.PTR: "pointer({0})",
    Kind.STREAM: "stream({0})",
    Kind.EVENT: "event({0})",
    Kind.BLAS: "blas({0})",
    Kind.SCALAR: "scalar({0}, {1})",
    Kind.RESULT: "result({0}, {1})",
}
_UNSIGNED = ("size_t", "unsigned int", "uint64_t")

#: How an output is taken out of the reply.
_TAKE = {Kind.INT: "integer()", Kind.REAL: "real()", Kind.PTR: "integer()"}

#: How a library words errors, by what its functions return.
CODES = {
    "cublasStatus_t": "kBlas", "cudnnStatus_t": "kCudnn", "cufftResult": "kFft",
    "cusolverStatus_t": "kSolver", "cusparseStatus_t": "kSparse",
}  # fmt: skip

#: "Not supported" (or the nearest the library has) in each library's own codes.
REFUSAL_CODE = {
    "cudart": 801, "cuda": 801, "cublas": 15, "cublasLt": 15, "cudnn": 3000, "cufft": 16,
    "cusolver": 9, "cusparse": 10, "cusparseLt": 10, "nccl": 5, "nvml": 3, "cupti": 27,
    "nvshmem": 1, "cuFile": 5001,
}  # fmt: skip

#: The function that says so, where programs can ask for the error's text (exports.h).
_REFUSE = {"cudart": "refuse_runtime", "cuda": "refuse_driver"}

#: Calls that return a number of bytes: their error codes are negative (cufile.h).
RETURN_SIZES = ("cuFileRead", "cuFileWrite")
#: Calls that return an address or a count, and how they say that there is none (nvshmem_api.h).
_RETURN_VALUES = {
    "nvshmem_malloc": 0, "nvshmem_ptr": 0, "nvshmemx_mc_ptr": 0, "nvshmem_team_n_pes": -1,
}  # fmt: skip


def render(spec: Spec) -> str:
    """stubs.cpp."""
    stubs = [_stub(call) for call in spec.calls if call.message is not None]
    body = "\n\n".join(stubs)
    return f"""{HEADER}
#include "../client_hook/frame.h"
#include "../common/blas_types.h"

using namespace mnemosyne;

{body}
"""


def render_refused(spec: Spec) -> str:
    """refused.cpp."""
    body = "\n".join(_refusal(call) for call in spec.calls if call.mode is Mode.REFUSED)
    return f"""{HEADER}
#include "../client_hook/exports.h"
#include "../client_hook/types.h"

#define REFUSE(refuse, name, code, reason) \\
  MNEMOSYNE_API int64_t name() {{            \\
    static bool said;                       \\
    return mnemosyne::refuse(code, #name, reason, &said); \\
  }}

{body}
"""


def render_forwards(spec: Spec) -> str:
    """forwards.cpp."""
    calls = [call for call in spec.calls if call.mode is Mode.FORWARD]
    body = "\n".join(f'FORWARD("lib{call.library}.so", {call.name})' for call in calls)
    return f"""{HEADER}
#include "../client_hook/exports.h"
#include "../client_hook/types.h"

#define FORWARD(library, name)                                        \\
  MNEMOSYNE_API uint64_t name(uint64_t a, uint64_t b) {{              \\
    static std::atomic<void*> known;                                  \\
    return mnemosyne::pass_on(&known, library, #name, a, b);          \\
  }}

{body}
"""


def prototype(call: Call) -> str:
    """The C declaration of a regular call, without MNEMOSYNE_API."""
    params = ", ".join(f"{p.ctype} {p.name}" for p in call.params)
    return f"{call.result} {call.name}({params})"


def _stub(call: Call) -> str:
    message = call.message
    assert message is not None
    codes = f"Codes::{CODES.get(call.result, 'kCuda')}"
    lines = [f"  Frame frame(Number::{call.name}, {len(message.fields)}, {codes});"]
    lines += [f"  frame.{_put(call, p)};" for p in message.fields]
    lines += _ending(call, message.outputs)
    body = "\n".join(lines)
    return f"MNEMOSYNE_API {prototype(call)} {{\n{body}\n}}"


def _put(call: Call, p: Field) -> str:
    if p.way is Way.NEW:
        extra = [q.name for q in call.params if q.name in ("flags", "priority")]
        return f"create(&{_TABLE[p.kind]}, {', '.join([p.name, *extra])})"
    if p.way is Way.GONE:
        return f"destroy(&{_TABLE[p.kind]}, {p.name})"
    if p.way is Way.INOUT:
        return f"in_out({p.name}, {p.size})"
    if p.kind is Kind.INT and p.ctype in _UNSIGNED:
        return f"unsigned_integer({p.name})"
    return _PUT[p.kind].format(p.name, p.size)


def _ending(call: Call, outputs: tuple[Field, ...]) -> list[str]:
    if call.mode is Mode.SYNC:
        takes = [f"  *{p.name} = reply.values().{_TAKE[p.kind]};" for p in outputs]
        checks = [f"  if (!{p.name}) frame.refuse(kInvalidValue);" for p in outputs]
        call_it = ["  Reply reply;", "  if (int code = frame.call(&reply)) return code;"]
        return [*checks, *call_it, *takes, "  return 0;"]
    if call.mode is Mode.ONCE:
        infos = [f"  frame.info({p.name});" for p in call.params if p.way is Way.OUT]
        return [*infos, "  return frame.once();"]
    return ["  return frame.post();"]


def _refusal(call: Call) -> str:
    refuse = _REFUSE.get(call.library, "refuse")
    code = REFUSAL_CODE[call.library] * (-1 if call.name in RETURN_SIZES else 1)
    code = _RETURN_VALUES.get(call.name, code)
    return f'REFUSE({refuse}, {call.name}, {code}, "{call.reason}")'
