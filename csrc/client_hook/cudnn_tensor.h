// cuDNN's tensor descriptors, as the client records them.
#pragma once

#include <vector>

#include "frame.h"

namespace mnemosyne {

struct TensorDesc {
  int type = 0;  // cudnnDataType_t
  std::vector<int> sizes, strides;
};

// [type, sizes, strides]; an empty array for no descriptor.
void put(Frame* frame, const void* descriptor);

}  // namespace mnemosyne
