// Structures that programs hand over by address, laid out as in the CUDA headers and with their
// names; scripts/check-headers compares them.
#pragma once

#include "types.h"

namespace mnemosyne {

// driver_types.h. The front of it: the server fills in the rest.
struct cudaDeviceProp {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
};

// The front of it: CUDA 13 appended words that mean nothing yet.
struct cudaPointerAttributes {
  int type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
  int clusterDimMustBeSet;
  int requiredClusterWidth;
  int requiredClusterHeight;
  int requiredClusterDepth;
  int clusterSchedulingPolicyPreference;
  int nonPortableClusterSizeAllowed;
  int reserved[16];
};

struct cudaLaunchAttribute {
  int id;
  char pad[4];
  char val[64];
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  const cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct cudaIpcMemHandle_t {
  char reserved[64];
};

struct cudaIpcEventHandle_t {
  char reserved[64];
};

// cuda.h.
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  cudaStream_t hStream;
  const cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

// cublasLt.h.
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  int state;
  float wavesCount;
  int reserved[4];
};

// cudnn_cnn.h; the backward ones are laid out alike.
struct cudnnConvolutionFwdAlgoPerf_t {
  int algo;
  int status;
  float time;
  size_t memory;
  int determinism;
  int mathType;
  int reserved[3];
};

// nccl.h
struct ncclUniqueId {
  char internal[128];
};

}  // namespace mnemosyne
