// Sizes that cuBLAS's enums stand for (library_types.h, cublas_api.h).
#pragma once

#include <cstddef>

namespace mnemosyne {

// Bytes of alpha and beta of a product computed as `compute_type` (cublasComputeType_t).
inline size_t compute_scalar_size(int compute_type) {
  switch (compute_type) {
    case 64:
    case 65:
      return 2;  // CUBLAS_COMPUTE_16F, _PEDANTIC
    case 70:
    case 71:
      return 8;  // CUBLAS_COMPUTE_64F, _PEDANTIC
    default:
      return 4;  // 32F and its fast variants, 32I
  }
}

}  // namespace mnemosyne
