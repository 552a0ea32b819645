// Filter descriptors of cuDNN.
#pragma once

#include <vector>

#include "frame.h"

namespace mnemosyne {

struct FilterDesc {
  int type = 0;    // cudnnDataType_t
  int format = 0;  // cudnnTensorFormat_t
  std::vector<int> sizes;
};

// [type, format, sizes]; an empty array for no descriptor.
void put_filter(Frame* frame, const void* descriptor);

}  // namespace mnemosyne
