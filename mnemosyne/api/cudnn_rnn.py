"""cuDNN's recurrent layers, and the dropout between them, as PyTorch calls them (cudnn_adv.h).

Descriptors are recorded in the client and sent by content. An RNN's description is [cudnnRNNAlgo_t,
cudnnRNNMode_t, bias mode, direction mode, input mode, data type, math precision, math type, input
size, hidden size, projection size, layers, flags], as cudnnSetRNNDescriptor_v8 takes them. Data is
described by [data type, layout, longest sequence, batch size, vector size, the sequences' lengths
as 32-bit integers, one element to fill padding with or nothing]; a tensor as in cudnn.py.
"""

from mnemosyne.api.spec import Message, Mode
from mnemosyne.api.words import CUDNN, F64, I32, LIST, PTR, SIZE, STREAM, handwritten

BY_HAND = [
    *handwritten(
        "cudnn", Mode.LOCAL, "descriptors are recorded in the client and sent by content",
        "cudnnCreateDropoutDescriptor", "cudnnCreateRNNDataDescriptor", "cudnnCreateRNNDescriptor",
        "cudnnDestroyDropoutDescriptor", "cudnnDestroyRNNDataDescriptor",
        "cudnnDestroyRNNDescriptor", "cudnnRestoreDropoutDescriptor", "cudnnSetRNNDataDescriptor",
        "cudnnSetRNNDescriptor_v8",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "asked for once for a content, then answered in the client",
        "cudnnDropoutGetStatesSize", "cudnnGetRNNTempSpaceSizes", "cudnnGetRNNWeightParams",
        "cudnnGetRNNWeightSpaceSize",
    ),
    *handwritten(
        "cudnn", Mode.CUSTOM, "sends its descriptors by content",
        "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8", "cudnnRNNForward",
        "cudnnSetDropoutDescriptor",
    ),
]  # fmt: skip

_HANDLE = (CUDNN(), STREAM())
_DROPOUT = (F64("dropout"), PTR("states"), SIZE("statesBytes"), SIZE("seed"))
_NETWORK = (*_HANDLE, LIST("rnn"), *_DROPOUT)
_WEIGHTS = (SIZE("weightBytes"), PTR("weightSpace"))
_SPACES = (SIZE("workBytes"), PTR("workSpace"), SIZE("reserveBytes"), PTR("reserveSpace"))

MESSAGES = [
    Message("cudnn_dropout_states", _HANDLE, (SIZE("bytes"),)),
    Message("cudnn_dropout_init", (*_HANDLE, *_DROPOUT), lane=True),
    Message("cudnn_rnn_weight_space", (*_HANDLE, LIST("rnn")), (SIZE("bytes"),)),
    # params: [matrix, bias] of every linear layer of this one; each is [byte offset into the weight
    # space, tensor], or an empty list where there is none.
    Message(
        "cudnn_rnn_weight_params", (*_HANDLE, LIST("rnn"), I32("pseudoLayer"), *_WEIGHTS),
        (LIST("params"),),
    ),
    # fwdMode: cudnnForwardMode_t.
    Message(
        "cudnn_rnn_temp_space", (*_NETWORK, I32("fwdMode"), LIST("xData")),
        (SIZE("workBytes"), SIZE("reserveBytes")), lane=True,
    ),
    Message(
        "cudnn_rnn_forward",
        (*_NETWORK, I32("fwdMode"), LIST("xData"), PTR("x"), LIST("yData"), PTR("y"),
         LIST("hDesc"), PTR("hx"), PTR("hy"), LIST("cDesc"), PTR("cx"), PTR("cy"), *_WEIGHTS,
         *_SPACES),
        lane=True,
    ),
    Message(
        "cudnn_rnn_backward_data",
        (*_NETWORK, LIST("yData"), PTR("y"), PTR("dy"), LIST("xData"), PTR("dx"), LIST("hDesc"),
         PTR("hx"), PTR("dhy"), PTR("dhx"), LIST("cDesc"), PTR("cx"), PTR("dcy"), PTR("dcx"),
         *_WEIGHTS, *_SPACES),
        lane=True,
    ),
    # addGrad: cudnnWgradMode_t.
    Message(
        "cudnn_rnn_backward_weights",
        (*_NETWORK, I32("addGrad"), LIST("xData"), PTR("x"), LIST("hDesc"), PTR("hx"),
         LIST("yData"), PTR("y"), *_WEIGHTS, *_SPACES),
        lane=True,
    ),
]  # fmt: skip
