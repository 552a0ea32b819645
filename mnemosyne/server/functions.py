"""What a client is told of a kernel it may launch."""

from __future__ import annotations

from dataclasses import astuple, dataclass

MAX_DYNAMIC_SHARED = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize


@dataclass(slots=True)
class FunctionInfo:
    """The fields of cudaFuncAttributes that a ``kernel`` reply lists, in this order; bytes."""

    sharedSizeBytes: int
    constSizeBytes: int
    localSizeBytes: int
    maxThreadsPerBlock: int
    numRegs: int
    ptxVersion: int
    binaryVersion: int
    maxDynamicSharedSizeBytes: int

    def as_list(self) -> list[int]:
        return list(astuple(self))
