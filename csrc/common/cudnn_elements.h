// How long an element of a cuDNN backend attribute is; client and lane read the same lists.
#pragma once

#include <cstddef>

namespace mnemosyne {

// Bytes of an element, by cudnnBackendAttributeType_t. Enums have four.
inline size_t element_size(int type) {
  switch (type) {
    case 0:   // CUDNN_TYPE_HANDLE
    case 3:   // CUDNN_TYPE_INT64
    case 5:   // CUDNN_TYPE_DOUBLE
    case 6:   // CUDNN_TYPE_VOID_PTR
    case 15:  // CUDNN_TYPE_BACKEND_DESCRIPTOR
      return 8;
    case 2:   // CUDNN_TYPE_BOOLEAN
    case 24:  // CUDNN_TYPE_CHAR
      return 1;
    case 26:  // CUDNN_TYPE_FRACTION
      return 16;
    default:
      return 4;
  }
}

}  // namespace mnemosyne
