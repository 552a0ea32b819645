// The C types of the CUDA libraries' functions, as far as their ABI goes: stubs need no CUDA
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

using cudaError_t = int;
using cublasStatus_t = int;
using cudaStream_t = void*;
using cudaEvent_t = void*;
using cublasHandle_t = void*;
using cudnnStatus_t = int;
using cudnnHandle_t = void*;
using cufftResult = int;
using cufftHandle = int;
using cusolverStatus_t = int;
using cusolverDnHandle_t = void*;
using cusparseStatus_t = int;
using cusparseHandle_t = void*;
using ncclComm_t = void*;

struct dim3 {
  unsigned x, y, z;
};

namespace mnemosyne {

// Codes of cudaError_t (and CUresult, where it has the same meaning) that stubs return themselves.
enum CudaError : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInitializationError = 3,
  kCudartUnloading = 4,
  kInvalidConfiguration = 9,
  kInvalidPitch = 12,
  kDevicesUnavailable = 46,
  kInvalidDeviceFunction = 98,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kInvalidImage = 200,
  kFileNotFound = 301,
  kInvalidResourceHandle = 400,
  kIllegalState = 401,
  kSymbolNotFound = 500,
  kNotReady = 600,
  kLaunchOutOfResources = 701,
  kCooperativeLaunchTooLarge = 720,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kInvalidClusterSize = 912,
  kUnknown = 999,
};

enum BlasStatus : int {
  kBlasSuccess = 0,
  kBlasNotInitialized = 1,
  kBlasInvalidValue = 7,
  kBlasMappingError = 11,
  kBlasInternalError = 14,
  kBlasNotSupported = 15,
};

enum CudnnStatus : int {
  kCudnnSuccess = 0,
  kCudnnNotInitialized = 1001,
  kCudnnBadParam = 2000,
  kCudnnNotFinalized = 2004,
  kCudnnWrongType = 2010,
  kCudnnNotSupported = 3000,
  kCudnnInternalError = 4000,
  kCudnnExecutionFailed = 5000,
};

enum FftResult : int {
  kFftSuccess = 0,
  kFftInvalidPlan = 1,
  kFftInvalidValue = 4,
  kFftInternalError = 5,
  kFftNotSupported = 16,
};

enum SolverStatus : int {
  kSolverSuccess = 0,
  kSolverNotInitialized = 1,
  kSolverInvalidValue = 3,
  kSolverInternalError = 7,
  kSolverNotSupported = 9,
};

enum SparseStatus : int {
  kSparseSuccess = 0,
  kSparseNotInitialized = 1,
  kSparseInvalidValue = 3,
  kSparseInternalError = 7,
  kSparseNotSupported = 10,
};

}  // namespace mnemosyne

#define MNEMOSYNE_API extern "C" __attribute__((visibility("default")))
