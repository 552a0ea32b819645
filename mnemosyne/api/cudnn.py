"""cuDNN as PyTorch calls it: the backend API (cudnn_graph.h), and what it takes of the older one
(cudnn_ops.h, cudnn_cnn.h, cudnn_adv.h).

Descriptors are recorded in the client and sent by content, as raw attributes: only who executes
them has to know what they mean. A handle's stream is kept in the client and goes with every
message.
"""

from mnemosyne.api.spec import Call, Message, Mode
from mnemosyne.api.words import BYTES, CUDNN, F64, I32, I64, LIST, PTR, SIZE, STREAM, handwritten

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
        "cudnnSetTensorNdDescriptor", "cudnnCreateFilterDescriptor", "cudnnDestroyFilterDescriptor",
        "cudnnGetFilterNdDescriptor", "cudnnSetFilterNdDescriptor", "cudnnCreateCTCLossDescriptor",
        "cudnnDestroyCTCLossDescriptor", "cudnnSetCTCLossDescriptorEx",
        "cudnnSetCTCLossDescriptor_v9", "cudnnCreateSpatialTransformerDescriptor",
        "cudnnDestroySpatialTransformerDescriptor", "cudnnSetSpatialTransformerNdDescriptor",
        "cudnnCreateConvolutionDescriptor", "cudnnDestroyConvolutionDescriptor",
        "cudnnSetConvolutionGroupCount", "cudnnSetConvolutionMathType",
        "cudnnSetConvolutionNdDescriptor", "cudnnCreateActivationDescriptor",
        "cudnnDestroyActivationDescriptor", "cudnnSetActivationDescriptor",
        "cudnnCreatePoolingDescriptor", "cudnnDestroyPoolingDescriptor",
        "cudnnSetPooling2dDescriptor",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "engines and plans are asked for by content; plans run by number",
        "cudnnBackendDestroyDescriptor", "cudnnBackendExecute", "cudnnBackendFinalize",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "sends its descriptors by content",
        "cudnnCTCLoss", "cudnnCTCLoss_v8", "cudnnGetCTCLossWorkspaceSize",
        "cudnnGetCTCLossWorkspaceSize_v8", "cudnnSpatialTfGridGeneratorBackward",
        "cudnnSpatialTfGridGeneratorForward", "cudnnSpatialTfSamplerBackward",
        "cudnnSpatialTfSamplerForward", "cudnnConvolutionBackwardData",
        "cudnnConvolutionBackwardFilter", "cudnnConvolutionBiasActivationForward",
        "cudnnConvolutionForward", "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        "cudnnGetConvolutionBackwardDataWorkspaceSize",
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", "cudnnGetConvolutionForwardAlgorithm_v7",
        "cudnnGetConvolutionForwardWorkspaceSize", "cudnnPoolingForward",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "answers with heuristics: measuring would stall the neighbours",
        "cudnnFindConvolutionBackwardDataAlgorithmEx",
        "cudnnFindConvolutionBackwardFilterAlgorithmEx", "cudnnFindConvolutionForwardAlgorithmEx",
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
_ROOM = (PTR("workspace"), SIZE("workspaceBytes"))
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
    # ctc: [cudnnDataType_t, cudnnLossNormalizationMode_t, cudnnCTCGradMode_t, longest label or -1].
    # Labels and lengths are 32-bit integers: on the device, or (host) in the frame.
    Message(
        "cudnn_ctc_room",
        (*_HANDLE, LIST("ctc"), I32("algo"), LIST("probsDesc"), LIST("gradientsDesc")),
        (SIZE("bytes"),), lane=True,
    ),
    Message(
        "cudnn_ctc_host_room",
        (*_HANDLE, LIST("ctc"), I32("algo"), LIST("probsDesc"), LIST("gradientsDesc"),
         BYTES("labels"), BYTES("labelLengths"), BYTES("inputLengths")),
        (SIZE("bytes"),), lane=True,
    ),
    Message(
        "cudnn_ctc",
        (*_HANDLE, LIST("ctc"), I32("algo"), LIST("probsDesc"), PTR("probs"), PTR("labels"),
         PTR("labelLengths"), PTR("inputLengths"), PTR("costs"), LIST("gradientsDesc"),
         PTR("gradients"), *_ROOM),
        lane=True,
    ),
    Message(
        "cudnn_ctc_host",
        (*_HANDLE, LIST("ctc"), I32("algo"), LIST("probsDesc"), PTR("probs"), BYTES("labels"),
         BYTES("labelLengths"), BYTES("inputLengths"), PTR("costs"), LIST("gradientsDesc"),
         PTR("gradients"), *_ROOM),
        lane=True,
    ),
    # transformer: [cudnnSamplerType_t, cudnnDataType_t, sizes of the output].
    Message(
        "cudnn_grid", (*_HANDLE, LIST("transformer"), PTR("theta"), PTR("grid")), lane=True
    ),
    Message(
        "cudnn_grid_backward", (*_HANDLE, LIST("transformer"), PTR("dgrid"), PTR("dtheta")),
        lane=True,
    ),
    Message(
        "cudnn_sampler",
        (*_HANDLE, LIST("transformer"), F64("alpha"), F64("beta"), LIST("xDesc"), PTR("x"),
         PTR("grid"), LIST("yDesc"), PTR("y")),
        lane=True,
    ),
    Message(
        "cudnn_sampler_backward",
        (*_HANDLE, LIST("transformer"), F64("alpha"), F64("beta"), F64("alphaGrid"),
         F64("betaGrid"), LIST("xDesc"), PTR("x"), LIST("dxDesc"), PTR("dx"), LIST("dyDesc"),
         PTR("dy"), PTR("grid"), PTR("dgrid")),
        lane=True,
    ),
    # convolution: [cudnnConvolutionMode_t, cudnnDataType_t, groups, cudnnMathType_t, pads, strides,
    # dilations]; wDesc: [cudnnDataType_t, cudnnTensorFormat_t, sizes].
    # direction: 0 forward, 1 the gradient of x, 2 that of w; the result is y, x or w.
    # results: [[algorithm, status, milliseconds, bytes, determinism, cudnnMathType_t], ...]
    Message(
        "cudnn_convolution_algorithms",
        (*_HANDLE, I32("direction"), I32("requested"), LIST("convolution"), LIST("xDesc"),
         LIST("wDesc"), LIST("yDesc")),
        (LIST("results"),), lane=True,
    ),
    Message(
        "cudnn_convolution_room",
        (*_HANDLE, I32("direction"), I32("algo"), LIST("convolution"), LIST("xDesc"),
         LIST("wDesc"), LIST("yDesc")),
        (SIZE("bytes"),), lane=True,
    ),
    Message(
        "cudnn_convolution",
        (*_HANDLE, I32("direction"), I32("algo"), F64("alpha"), F64("beta"), LIST("convolution"),
         LIST("xDesc"), PTR("x"), LIST("wDesc"), PTR("w"), LIST("yDesc"), PTR("y"), *_ROOM),
        lane=True,
    ),
    # activation: [cudnnActivationMode_t, cudnnNanPropagation_t]; coefficient: its own.
    Message(
        "cudnn_convolution_fused",
        (*_HANDLE, I32("algo"), F64("alpha"), F64("alphaZ"), LIST("convolution"), LIST("xDesc"),
         PTR("x"), LIST("wDesc"), PTR("w"), LIST("zDesc"), PTR("z"), LIST("biasDesc"), PTR("bias"),
         LIST("activation"), F64("coefficient"),
         LIST("yDesc"), PTR("y"), *_ROOM),
        lane=True,
    ),
    # pooling: [cudnnPoolingMode_t, cudnnNanPropagation_t, window, pads, strides]; the last three
    # each of height and width.
    Message(
        "cudnn_pooling",
        (*_HANDLE, LIST("pooling"), F64("alpha"), F64("beta"), LIST("xDesc"), PTR("x"),
         LIST("yDesc"), PTR("y")),
        lane=True,
    ),
]  # fmt: skip
