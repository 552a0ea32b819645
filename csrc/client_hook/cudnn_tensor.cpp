#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

constexpr int kDouble = 1;  // CUDNN_DATA_DOUBLE

}  // namespace

void pack(Packer* p, const std::vector<int>& values) {
  p->array(values.size());
  for (int v : values) p->integer(v);
}

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
  put(frame, p);
}

void put_factors(Frame* frame, const void* descriptor, std::initializer_list<const void*> factors) {
  bool wide = descriptor && static_cast<const TensorDesc*>(descriptor)->type == kDouble;
  for (const void* factor : factors) {
    double value = 0;
    if (factor)
      value = wide ? *static_cast<const double*>(factor) : *static_cast<const float*>(factor);
    if (!factor) frame->refuse(kInvalidValue);
    frame->real(value);
  }
}

void put_tensor(Frame* frame, const void* descriptor, const void* data) {
  put(frame, descriptor);
  frame->pointer(data);
}

void put_pointers(Frame* frame, std::initializer_list<const void*> pointers) {
  for (const void* p : pointers) frame->pointer(p);
}

void put_room(Frame* frame, const void* room, size_t bytes) {
  frame->pointer(room);
  frame->unsigned_integer(bytes);
}

int ask_size(Frame* frame, size_t* bytes) {
  Reply reply;
  if (int code = frame->ask(&reply)) return code;
  *bytes = reply.values().integer();
  return kCudnnSuccess;
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateTensorDescriptor(void** descriptor) {
  return create_descriptor<TensorDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyTensorDescriptor(void* descriptor) {
  return destroy_descriptor<TensorDesc>(descriptor);
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
