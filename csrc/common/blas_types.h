// Sizes that cuBLAS's enums stand for (library_types.h, cublas_api.h).
#pragma once

#include <cstddef>

namespace mnemosyne {

// Bytes of one element of a cudaDataType; 0: not a type of whole bytes that is known here.
inline size_t data_size(int type) {
  switch (type) {
    case 3:   // CUDA_R_8I
    case 8:   // CUDA_R_8U
    case 28:  // CUDA_R_8F_E4M3
    case 29:  // CUDA_R_8F_E5M2
      return 1;
    case 2:   // CUDA_R_16F
    case 14:  // CUDA_R_16BF
      return 2;
    case 0:   // CUDA_R_32F
    case 6:   // CUDA_C_16F
    case 10:  // CUDA_R_32I
    case 15:  // CUDA_C_16BF
      return 4;
    case 1:  // CUDA_R_64F
    case 4:  // CUDA_C_32F
      return 8;
    case 5:  // CUDA_C_64F
      return 16;
    default:
      return 0;
  }
}

// Bytes of alpha and beta of a product computed as `compute_type` (cublasComputeType_t), of
// matrices of `type` (cudaDataType).
inline size_t compute_scalar_size(int compute_type, int type) {
  bool is_complex = type == 4 || type == 5;  // CUDA_C_32F, CUDA_C_64F
  switch (compute_type) {
    case 64:
    case 65:
      return 2;  // CUBLAS_COMPUTE_16F, _PEDANTIC
    case 70:
    case 71:
      return is_complex ? 16 : 8;  // CUBLAS_COMPUTE_64F, _PEDANTIC
    default:
      return is_complex ? 8 : 4;  // 32F and its fast variants, 32I
  }
}

}  // namespace mnemosyne
