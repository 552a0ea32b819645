// What the lane needs of a cuDNN besides, to load it at all: nothing here can be done.
#define MNEMOSYNE_REFUSE(name) \
  extern "C" int name() { return 3000; }

MNEMOSYNE_REFUSE(cudnnBackendCreateDescriptor)
MNEMOSYNE_REFUSE(cudnnBackendDestroyDescriptor)
MNEMOSYNE_REFUSE(cudnnBackendExecute)
MNEMOSYNE_REFUSE(cudnnBackendFinalize)
MNEMOSYNE_REFUSE(cudnnBackendGetAttribute)
MNEMOSYNE_REFUSE(cudnnBackendSetAttribute)
MNEMOSYNE_REFUSE(cudnnBatchNormalizationBackwardEx)
MNEMOSYNE_REFUSE(cudnnBatchNormalizationForwardInference)
MNEMOSYNE_REFUSE(cudnnBatchNormalizationForwardTrainingEx)
MNEMOSYNE_REFUSE(cudnnDeriveBNTensorDescriptor)
MNEMOSYNE_REFUSE(cudnnGetBatchNormalizationBackwardExWorkspaceSize)
MNEMOSYNE_REFUSE(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)
MNEMOSYNE_REFUSE(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)
