// Where a CUresult differs from the cudaError_t of the same meaning.
#pragma once

#include "types.h"

namespace mnemosyne {

inline int driver_code(int cuda_error) {
  switch (cuda_error) {
    case kInvalidConfiguration:
      return kInvalidValue;
    case kInvalidDeviceFunction:
      return kInvalidResourceHandle;  // CUDA_ERROR_INVALID_HANDLE
    default:
      return cuda_error;
  }
}

}  // namespace mnemosyne
