// What the calls of cuDNN's older API have in common: tensors by descriptor and address, factors,
// buffers, and sizes that are asked for.
#pragma once

#include <initializer_list>
#include <vector>

#include "frame.h"

namespace mnemosyne {

constexpr int kMaxDimensions = 8;  // CUDNN_DIM_MAX

struct TensorDesc {
  int type = 0;  // cudnnDataType_t
  std::vector<int> sizes, strides;
};

// What the program's descriptors are made of; a null one stays null.
template <typename Descriptor>
int create_descriptor(void** descriptor) {
  if (!descriptor) return kCudnnBadParam;
  *descriptor = new Descriptor;
  return kCudnnSuccess;
}

template <typename Descriptor>
int destroy_descriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kCudnnSuccess;
}

void pack(Packer* p, const std::vector<int>& values);
inline void put(Frame* frame, const Packer& p) { frame->packed(std::string(p.data(), p.size())); }
// A tensor's descriptor, [type, sizes, strides]; an empty array for none.
void put(Frame* frame, const void* descriptor);
// alpha or beta, as the tensor's type says: doubles for tensors of doubles, else floats.
void put_factors(Frame* frame, const void* descriptor, std::initializer_list<const void*> factors);
void put_tensor(Frame* frame, const void* descriptor, const void* data);
void put_pointers(Frame* frame, std::initializer_list<const void*> pointers);
void put_room(Frame* frame, const void* room, size_t bytes);
// Asks for a number of bytes, once for each content. Returns a cudnnStatus_t.
int ask_size(Frame* frame, size_t* bytes);

}  // namespace mnemosyne
