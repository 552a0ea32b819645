"""What a client is told of a kernel it may launch."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from mnemosyne.api.messages import CACHE_CONFIG
from mnemosyne.server.errors import INVALID_VALUE, CallError

#: cudaFuncAttribute; CUfunction_attribute numbers alike.
MAX_DYNAMIC_SHARED, CARVEOUT = 8, 9
NON_PORTABLE_CLUSTER, CLUSTER_POLICY = 14, 15
#: What a client may set besides the cache's configuration.
SETTABLE = (MAX_DYNAMIC_SHARED, CARVEOUT, NON_PORTABLE_CLUSTER, CLUSTER_POLICY)
CACHE_CONFIGS = range(4)  # cudaFuncCache


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
    clusterDimMustBeSet: int = 0
    requiredClusterWidth: int = 0
    requiredClusterHeight: int = 0
    requiredClusterDepth: int = 0
    nonPortableClusterSizeAllowed: int = 0
    clusterSchedulingPolicyPreference: int = 0

    def as_list(self) -> list[int]:
        return list(astuple(self))


def check_setting(attribute: int, value: int) -> None:
    """Raises CallError for what no function has, or not with this value."""
    if attribute == CACHE_CONFIG and value in CACHE_CONFIGS:
        return
    if attribute not in SETTABLE:
        raise CallError(INVALID_VALUE, f"attribute {attribute} of a function cannot be {value}")
