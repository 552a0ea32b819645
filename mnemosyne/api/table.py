"""All calls and messages in one table. What torch imports and nobody declares is refused."""

from pathlib import Path

from mnemosyne.api import (
    cublas,
    cudart,
    cudnn,
    cudnn_rnn,
    cufft,
    cusolver,
    cusparse,
    driver,
    messages,
    nccl,
)
from mnemosyne.api.numbers import NUMBERED
from mnemosyne.api.spec import Call, Mode, Spec
from mnemosyne.api.words import handwritten

#: Symbols PyTorch's libraries import, one a line (read off the dynamic symbol tables of the wheel).
IMPORTED = tuple(Path(__file__).with_name("imported.txt").read_text().split())

_LIBRARY_OF_PREFIX = {
    "cublasLt": "cublasLt", "cublas": "cublas", "cudnn": "cudnn", "cufft": "cufft",
    "cusolver": "cusolver", "cusparseLt": "cusparseLt", "cusparse": "cusparse", "nccl": "nccl",
    "nvrtc": "nvrtc", "cupti": "cupti", "nvshmem": "nvshmem", "cuFile": "cuFile",
    "__cuda": "cudart", "cuda": "cudart", "cu": "cuda",
}  # fmt: skip

_NATIVE = [
    *handwritten(
        "", Mode.NATIVE, "the library answers without a device",
        "cuptiGetCallbackName", "cuptiGetResultString", "cuptiGetVersion",
        "nvshmem_info_get_version", "nvshmemid_init_status",
        *(name for name in IMPORTED if name.startswith("nvrtc")),
    ),
    *handwritten(
        "", Mode.FORWARD, "the library answers without a device; found through dlopen as well",
        "cublasLtGetVersion", "cudnnGetCudartVersion", "cudnnGetErrorString", "cudnnGetProperty",
        "cudnnGetVersion", "cusparseGetErrorString", "ncclGetErrorString", "ncclGetLastError",
        "ncclGetVersion",
    ),
]  # fmt: skip

_REASON = {
    "cupti": "profiling the shared GPU is not offered to clients",
    "nvshmem": "a client sees one device",
    "cuFile": "files are not read into device memory directly",
    "nccl": "a client sees one device",
}


def library_of(name: str) -> str:
    """The library a symbol belongs to, by its prefix (longest first)."""
    return next(lib for prefix, lib in _LIBRARY_OF_PREFIX.items() if name.startswith(prefix))


def _declared() -> list[Call]:
    native = [Call(c.name, library_of(c.name), c.mode, reason=c.reason) for c in _NATIVE]
    return [
        *cudart.REGULAR, *cudart.BY_HAND, *cublas.REGULAR, *cublas.BY_HAND,
        *cudnn.REGULAR, *cudnn.BY_HAND, *cudnn_rnn.BY_HAND, *cufft.REGULAR, *cufft.BY_HAND,
        *cusolver.REGULAR, *cusolver.BY_HAND, *cusparse.REGULAR, *cusparse.BY_HAND,
        *driver.BY_HAND, *driver.REFUSED, *nccl.BY_HAND, *native,
    ]  # fmt: skip


def _all_calls() -> tuple[Call, ...]:
    calls = {c.name: c for c in _declared()}
    for name in IMPORTED:
        if name not in calls:
            library = library_of(name)
            reason = _REASON.get(library, "not implemented yet")
            calls[name] = Call(name, library, Mode.REFUSED, reason=reason)
    return tuple(sorted(calls.values(), key=lambda c: (c.library, c.name)))


SPEC = Spec(_all_calls(), (*messages.MESSAGES, *cudnn.MESSAGES, *cudnn_rnn.MESSAGES), NUMBERED)
