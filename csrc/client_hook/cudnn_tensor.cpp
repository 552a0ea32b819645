#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

constexpr int kMaxDimensions = 8;  // CUDNN_DIM_MAX

void pack(Packer* p, const std::vector<int>& values) {
  p->array(values.size());
  for (int v : values) p->integer(v);
}

}  // namespace

void put(Frame* frame, const void* descriptor) {
  Packer p;
  if (auto tensor = static_cast<const TensorDesc*>(descriptor)) {
    p.array(3);
    p.integer(tensor->type);
    pack(&p, tensor->sizes);
    pack(&p, tensor->strides);
  } else {
    p.array(0);
  }
  frame->packed(std::string(p.data(), p.size()));
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateTensorDescriptor(void** descriptor) {
  if (!descriptor) return kCudnnBadParam;
  *descriptor = new TensorDesc;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyTensorDescriptor(void* descriptor) {
  delete static_cast<TensorDesc*>(descriptor);
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnSetTensorNdDescriptor(void* descriptor, int type, int count,
                                                       const int* sizes, const int* strides) {
  if (!descriptor || !sizes || !strides || count < 1 || count > kMaxDimensions) {
    return kCudnnBadParam;
  }
  *static_cast<TensorDesc*>(descriptor) = {
      type, {sizes, sizes + count}, {strides, strides + count}};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetTensorNdDescriptor(void* descriptor, int requested, int* type,
                                                       int* count, int* sizes, int* strides) {
  if (!descriptor || !type || !count || !sizes || !strides) return kCudnnBadParam;
  const TensorDesc& tensor = *static_cast<const TensorDesc*>(descriptor);
  *type = tensor.type;
  *count = static_cast<int>(tensor.sizes.size());
  for (int i = 0; i < requested && i < *count; ++i) {
    sizes[i] = tensor.sizes[i];
    strides[i] = tensor.strides[i];
  }
  return kCudnnSuccess;
}
