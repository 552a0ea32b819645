#include "cudnn_dropout.h"

#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

cudnnStatus_t set(void* descriptor, float dropout, void* states, size_t bytes, uint64_t seed) {
  if (!descriptor || !(dropout >= 0 && dropout <= 1)) return kCudnnBadParam;
  *static_cast<DropoutDesc*>(descriptor) = {dropout, states, bytes, seed};
  return kCudnnSuccess;
}

}  // namespace

void put_dropout(Frame* frame, const DropoutDesc& dropout) {
  frame->real(dropout.dropout);
  frame->pointer(dropout.states);
  frame->unsigned_integer(dropout.bytes);
  frame->unsigned_integer(dropout.seed);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateDropoutDescriptor(void** descriptor) {
  return create_descriptor<DropoutDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyDropoutDescriptor(void* descriptor) {
  return destroy_descriptor<DropoutDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t* bytes) {
  if (!bytes) return kCudnnBadParam;
  Frame frame(Number::cudnn_dropout_states, 2, Codes::kCudnn);
  frame.cudnn(handle);
  return ask_size(&frame, bytes);
}

// Makes the random numbers' states; without a place for them it only sets the descriptor.
MNEMOSYNE_API cudnnStatus_t cudnnSetDropoutDescriptor(void* descriptor, cudnnHandle_t handle,
                                                      float dropout, void* states, size_t bytes,
                                                      unsigned long long seed) {
  if (int code = set(descriptor, dropout, states, bytes, seed)) return code;
  if (!states) return kCudnnSuccess;
  Frame frame(Number::cudnn_dropout_init, 6, Codes::kCudnn);
  frame.cudnn(handle);
  put_dropout(&frame, *static_cast<const DropoutDesc*>(descriptor));
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnRestoreDropoutDescriptor(void* descriptor, cudnnHandle_t,
                                                          float dropout, void* states, size_t bytes,
                                                          unsigned long long seed) {
  if (!states) return kCudnnBadParam;
  return set(descriptor, dropout, states, bytes, seed);
}
