"""NCCL (nccl.h) as PyTorch calls it: a client has one device, and is a communicator's one rank."""

from mnemosyne.api.spec import Mode
from mnemosyne.api.words import handwritten

BY_HAND = [
    *handwritten(
        "nccl", Mode.CUSTOM, "among one rank a collective is a copy, if anything",
        "ncclAllGather", "ncclAllReduce", "ncclAlltoAll", "ncclBcast", "ncclBroadcast",
        "ncclGather", "ncclReduce", "ncclReduceScatter", "ncclSend", "ncclRecv",
        "ncclGroupStart", "ncclGroupEnd", "ncclMemAlloc", "ncclMemFree",
    ),
    *handwritten(
        "nccl", Mode.REFUSED, "a sum with a factor is not offered",
        "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy",
    ),
    *handwritten(
        "nccl", Mode.LOCAL, "a communicator of one rank is the client's own",
        "ncclCommAbort", "ncclCommCount", "ncclCommDeregister", "ncclCommDestroy",
        "ncclCommFinalize", "ncclCommGetAsyncError", "ncclCommInitAll", "ncclCommInitRank",
        "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommRegister", "ncclCommSplit",
        "ncclCommUserRank", "ncclGetUniqueId",
    ),
]  # fmt: skip
