"""cuDNN as PyTorch calls it (cudnn_graph.h, cudnn_ops.h): the backend API and batch norm.

Descriptors are recorded in the client and sent by content, as raw attributes: only who executes
them has to know what they mean. A handle's stream is kept in the client and goes with every
message.
"""

from mnemosyne.api.spec import Call, Message, Mode
from mnemosyne.api.words import CUDNN, F64, I32, I64, LIST, PTR, SIZE, STREAM, handwritten

REGULAR = [
    Call("cudnnCreate", "cudnn", Mode.ASYNC, (CUDNN().new,), "cudnnStatus_t", journal=True),
    Call("cudnnDestroy", "cudnn", Mode.ASYNC, (CUDNN().gone,), "cudnnStatus_t", journal=True),
]

BY_HAND = [
    *handwritten(
        "cudnn", Mode.LOCAL, "a handle's stream goes with the calls that use it",
        "cudnnGetStream", "cudnnSetStream",
    ),
    *handwritten(
        "cudnn", Mode.LOCAL, "says what the last call that failed said",
        "cudnnGetLastErrorString",
    ),
    *handwritten(
        "cudnn", Mode.LOCAL, "descriptors are recorded in the client and sent by content",
        "cudnnBackendCreateDescriptor", "cudnnBackendGetAttribute", "cudnnBackendSetAttribute",
        "cudnnCreateTensorDescriptor", "cudnnDestroyTensorDescriptor", "cudnnGetTensorNdDescriptor",
        "cudnnSetTensorNdDescriptor",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "engines and plans are asked for by content; plans run by number",
        "cudnnBackendDestroyDescriptor", "cudnnBackendExecute", "cudnnBackendFinalize",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "sends its tensor descriptors by content",
        "cudnnBatchNormalizationBackwardEx", "cudnnBatchNormalizationForwardInference",
        "cudnnBatchNormalizationForwardTrainingEx",
        "cudnnGetBatchNormalizationBackwardExWorkspaceSize",
        "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize",
        "cudnnGetBatchNormalizationTrainingExReserveSpaceSize",
    ),
]  # fmt: skip

_HANDLE = (CUDNN(), STREAM())
_ROOMS = (PTR("workspace"), SIZE("workspaceBytes"), PTR("reserve"), SIZE("reserveBytes"))

MESSAGES = [
    # A descriptor is [cudnnBackendDescriptorType_t, attributes]; an attribute is
    # [cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, value]. The value is the elements'
    # bytes, or a list of descriptors; it is empty for handles and pointers, which are the client's.
    # configs: descriptors of engine configurations, best first; their engines lack the graph.
    Message("cudnn_heuristic", (*_HANDLE, LIST("heuristic")), (LIST("configs"),)),
    # plan: the client's number for it.
    Message(
        "cudnn_plan", (*_HANDLE, I64("plan"), LIST("descriptor")), (SIZE("workspaceBytes"),),
        journal=True,
    ),
    Message("cudnn_plan_destroy", (I64("plan"),), journal=True),
    # data: [[unique id of a tensor, device pointer, or bytes if it is passed by value], ...]
    Message("cudnn_execute", (*_HANDLE, I64("plan"), LIST("data"), PTR("workspace")), lane=True),
    # A tensor's description is [cudnnDataType_t, sizes, strides]; mode: cudnnBatchNormMode_t.
    # room: 0 the forward workspace, 1 the backward workspace, 2 the reserve.
    Message(
        "cudnn_batch_norm_room", (*_HANDLE, I32("room"), I32("mode"), LIST("xDesc")),
        (SIZE("bytes"),), lane=True,
    ),
    Message(
        "cudnn_batch_norm_training",
        (*_HANDLE, I32("mode"), F64("alpha"), F64("beta"), LIST("xDesc"), PTR("x"), LIST("yDesc"),
         PTR("y"), LIST("paramDesc"), PTR("scale"), PTR("bias"), F64("factor"), PTR("runningMean"),
         PTR("runningVariance"), F64("epsilon"), PTR("savedMean"), PTR("savedInverse"), *_ROOMS),
        lane=True,
    ),
    Message(
        "cudnn_batch_norm_inference",
        (*_HANDLE, I32("mode"), F64("alpha"), F64("beta"), LIST("xDesc"), PTR("x"), LIST("yDesc"),
         PTR("y"), LIST("paramDesc"), PTR("scale"), PTR("bias"), PTR("mean"), PTR("variance"),
         F64("epsilon")),
        lane=True,
    ),
    Message(
        "cudnn_batch_norm_backward",
        (*_HANDLE, I32("mode"), F64("alphaData"), F64("betaData"), F64("alphaParam"),
         F64("betaParam"), LIST("xDesc"), PTR("x"), LIST("dyDesc"), PTR("dy"), LIST("dxDesc"),
         PTR("dx"), LIST("paramDesc"), PTR("scale"), PTR("dscale"), PTR("dbias"), F64("epsilon"),
         PTR("savedMean"), PTR("savedInverse"), *_ROOMS),
        lane=True,
    ),
]  # fmt: skip
