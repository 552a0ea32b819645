// What the files of DnnSession share. The functions of each family of calls are found when the
// library is loaded; a family that a release lacks is "not supported".
#pragma once

#include "../symbols.h"
#include "dnn.h"

namespace mnemosyne::cuda {

// The library, once load_dnn() has succeeded.
const DnnLibrary& dnn_library();

void load_ctc(void* library);
void load_transformer(void* library);
void load_convolutions(void* library);

// alpha or beta: doubles for tensors of doubles, else floats.
class Factor {
 public:
  Factor(double value, const List& tensor) : wide_(value), narrow_(static_cast<float>(value)) {
    constexpr int kDouble = 1;  // CUDNN_DATA_DOUBLE
    Unpacker u = tensor.values();
    u.array();
    is_wide_ = u.integer() == kDouble;
  }
  const void* pointer() const { return is_wide_ ? static_cast<const void*>(&wide_) : &narrow_; }

 private:
  double wide_;
  float narrow_;
  bool is_wide_;
};

inline void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

// A list of integers, as descriptors have them.
struct Numbers {
  static constexpr uint32_t kMost = 8;  // CUDNN_DIM_MAX
  int values[kMost] = {};
  int count = 0;

  bool read(Unpacker* u) {
    uint32_t n = u->array();
    if (n > kMost) return false;
    count = static_cast<int>(n);
    for (uint32_t i = 0; i < n; ++i) values[i] = static_cast<int>(u->integer());
    return u->ok();
  }
};

}  // namespace mnemosyne::cuda
