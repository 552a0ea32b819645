#include "cudnn_filter.h"

#include "cudnn_tensor.h"

namespace mnemosyne {

void put_filter(Frame* frame, const void* descriptor) {
  Packer p;
  if (auto filter = static_cast<const FilterDesc*>(descriptor)) {
    p.array(3);
    p.integer(filter->type);
    p.integer(filter->format);
    pack(&p, filter->sizes);
  } else {
    p.array(0);
  }
  put(frame, p);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateFilterDescriptor(void** descriptor) {
  return create_descriptor<FilterDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyFilterDescriptor(void* descriptor) {
  return destroy_descriptor<FilterDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetFilterNdDescriptor(void* descriptor, int type, int format,
                                                       int count, const int* sizes) {
  if (!descriptor || !sizes || count < 1 || count > kMaxDimensions) return kCudnnBadParam;
  *static_cast<FilterDesc*>(descriptor) = {type, format, {sizes, sizes + count}};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetFilterNdDescriptor(const void* descriptor, int requested,
                                                       int* type, int* format, int* count,
                                                       int* sizes) {
  if (!descriptor || !type || !format || !count || !sizes) return kCudnnBadParam;
  const FilterDesc& filter = *static_cast<const FilterDesc*>(descriptor);
  *type = filter.type;
  *format = filter.format;
  *count = static_cast<int>(filter.sizes.size());
  for (int i = 0; i < requested && i < *count; ++i) sizes[i] = filter.sizes[i];
  return kCudnnSuccess;
}
