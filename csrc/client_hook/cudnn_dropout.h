// cuDNN's dropout descriptors, as the client records them.
#pragma once

#include "frame.h"

namespace mnemosyne {

struct DropoutDesc {
  float dropout = 0;
  void* states = nullptr;  // of the random numbers, on the device
  size_t bytes = 0;
  uint64_t seed = 0;
};

// Four fields: dropout, states, their bytes, seed.
void put_dropout(Frame* frame, const DropoutDesc& dropout);

}  // namespace mnemosyne
