// Convolutions and pooling of cuDNN's older API.
#include "dnn_parts.h"

namespace mnemosyne::cuda {
namespace {

// cudnnConvolutionFwdAlgoPerf_t; the backward ones are laid out alike.
struct Performance {
  int algo;
  int status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};

struct ConvolutionFunctions {
  int (*cudnnCreateFilterDescriptor)(void**);
  int (*cudnnDestroyFilterDescriptor)(void*);
  int (*cudnnSetFilterNdDescriptor)(void*, int, int, int, const int*);
  int (*cudnnCreateConvolutionDescriptor)(void**);
  int (*cudnnDestroyConvolutionDescriptor)(void*);
  int (*cudnnSetConvolutionNdDescriptor)(void*, int, const int*, const int*, const int*, int, int);
  int (*cudnnSetConvolutionGroupCount)(void*, int);
  int (*cudnnSetConvolutionMathType)(void*, int);
  int (*cudnnCreateActivationDescriptor)(void**);
  int (*cudnnDestroyActivationDescriptor)(void*);
  int (*cudnnSetActivationDescriptor)(void*, int, int, double);
  int (*cudnnCreatePoolingDescriptor)(void**);
  int (*cudnnDestroyPoolingDescriptor)(void*);
  int (*cudnnSetPooling2dDescriptor)(void*, int, int, int, int, int, int, int, int);
  // Of the three directions, the parameters differ in order only.
  using GetAlgorithm = int (*)(void*, const void*, const void*, const void*, const void*, int, int*,
                               Performance*);
  GetAlgorithm cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionBackwardDataAlgorithm_v7,
      cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  using GetRoom = int (*)(void*, const void*, const void*, const void*, const void*, int, size_t*);
  GetRoom cudnnGetConvolutionForwardWorkspaceSize, cudnnGetConvolutionBackwardDataWorkspaceSize,
      cudnnGetConvolutionBackwardFilterWorkspaceSize;
  using Convolve = int (*)(void*, const void*, const void*, const void*, const void*, const void*,
                           const void*, int, void*, size_t, const void*, const void*, void*);
  Convolve cudnnConvolutionForward, cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter;
  int (*cudnnConvolutionBiasActivationForward)(void*, const void*, const void*, const void*,
                                               const void*, const void*, const void*, int, void*,
                                               size_t, const void*, const void*, const void*,
                                               const void*, const void*, const void*, const void*,
                                               void*);
  int (*cudnnPoolingForward)(void*, const void*, const void*, const void*, const void*, const void*,
                             const void*, void*);
};
ConvolutionFunctions f;
bool complete = false;

// In the order in which a direction's functions take them: what goes in, and what comes out.
struct Direction {
  ConvolutionFunctions::GetAlgorithm ConvolutionFunctions::* algorithm;
  ConvolutionFunctions::GetRoom ConvolutionFunctions::* room;
  ConvolutionFunctions::Convolve ConvolutionFunctions::* convolve;
  int first, second, result;
};
constexpr int kX = 0, kW = 1, kY = 2;
const Direction kDirections[] = {
    {&ConvolutionFunctions::cudnnGetConvolutionForwardAlgorithm_v7,
     &ConvolutionFunctions::cudnnGetConvolutionForwardWorkspaceSize,
     &ConvolutionFunctions::cudnnConvolutionForward, kX, kW, kY},
    {&ConvolutionFunctions::cudnnGetConvolutionBackwardDataAlgorithm_v7,
     &ConvolutionFunctions::cudnnGetConvolutionBackwardDataWorkspaceSize,
     &ConvolutionFunctions::cudnnConvolutionBackwardData, kW, kY, kX},
    {&ConvolutionFunctions::cudnnGetConvolutionBackwardFilterAlgorithm_v7,
     &ConvolutionFunctions::cudnnGetConvolutionBackwardFilterWorkspaceSize,
     &ConvolutionFunctions::cudnnConvolutionBackwardFilter, kX, kY, kW},
};

const Direction* direction_of(int number) {
  return number < 0 || number > 2 ? nullptr : &kDirections[number];
}

}  // namespace

void load_convolutions(void* library) {
  complete = true;
#define MNEMOSYNE_FIND(name) complete &= find(library, #name, &f.name)
  MNEMOSYNE_FIND(cudnnCreateFilterDescriptor);
  MNEMOSYNE_FIND(cudnnDestroyFilterDescriptor);
  MNEMOSYNE_FIND(cudnnSetFilterNdDescriptor);
  MNEMOSYNE_FIND(cudnnCreateConvolutionDescriptor);
  MNEMOSYNE_FIND(cudnnDestroyConvolutionDescriptor);
  MNEMOSYNE_FIND(cudnnSetConvolutionNdDescriptor);
  MNEMOSYNE_FIND(cudnnSetConvolutionGroupCount);
  MNEMOSYNE_FIND(cudnnSetConvolutionMathType);
  MNEMOSYNE_FIND(cudnnCreateActivationDescriptor);
  MNEMOSYNE_FIND(cudnnDestroyActivationDescriptor);
  MNEMOSYNE_FIND(cudnnSetActivationDescriptor);
  MNEMOSYNE_FIND(cudnnCreatePoolingDescriptor);
  MNEMOSYNE_FIND(cudnnDestroyPoolingDescriptor);
  MNEMOSYNE_FIND(cudnnSetPooling2dDescriptor);
  MNEMOSYNE_FIND(cudnnGetConvolutionForwardAlgorithm_v7);
  MNEMOSYNE_FIND(cudnnGetConvolutionBackwardDataAlgorithm_v7);
  MNEMOSYNE_FIND(cudnnGetConvolutionBackwardFilterAlgorithm_v7);
  MNEMOSYNE_FIND(cudnnGetConvolutionForwardWorkspaceSize);
  MNEMOSYNE_FIND(cudnnGetConvolutionBackwardDataWorkspaceSize);
  MNEMOSYNE_FIND(cudnnGetConvolutionBackwardFilterWorkspaceSize);
  MNEMOSYNE_FIND(cudnnConvolutionForward);
  MNEMOSYNE_FIND(cudnnConvolutionBackwardData);
  MNEMOSYNE_FIND(cudnnConvolutionBackwardFilter);
  MNEMOSYNE_FIND(cudnnConvolutionBiasActivationForward);
  MNEMOSYNE_FIND(cudnnPoolingForward);
#undef MNEMOSYNE_FIND
}

// The descriptor of [type, format, sizes].
void* DnnSession::filter(const List& content, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int type = static_cast<int>(u.integer()), format = static_cast<int>(u.integer());
    Numbers sizes;
    if (!sizes.read(&u)) return kDnnBadParam;
    return f.cudnnSetFilterNdDescriptor(descriptor, type, format, sizes.count, sizes.values);
  };
  return kept({"filter", f.cudnnCreateFilterDescriptor, f.cudnnDestroyFilterDescriptor, set},
              content, status);
}

// The descriptor of [mode, type, groups, math, pads, strides, dilations].
void* DnnSession::convolution(const List& content, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int mode = static_cast<int>(u.integer()), type = static_cast<int>(u.integer()),
        groups = static_cast<int>(u.integer()), math = static_cast<int>(u.integer());
    Numbers pads, strides, dilations;
    bool read = pads.read(&u) && strides.read(&u) && dilations.read(&u);
    if (!read || pads.count != strides.count || pads.count != dilations.count) return kDnnBadParam;
    int status = f.cudnnSetConvolutionNdDescriptor(descriptor, pads.count, pads.values,
                                                   strides.values, dilations.values, mode, type);
    if (!status) status = f.cudnnSetConvolutionGroupCount(descriptor, groups);
    return status ? status : f.cudnnSetConvolutionMathType(descriptor, math);
  };
  return kept(
      {"convolution", f.cudnnCreateConvolutionDescriptor, f.cudnnDestroyConvolutionDescriptor, set},
      content, status);
}

// The descriptor of [mode, NaN propagation] and a coefficient. Few differ in that alone, so it is
// set anew each time.
void* DnnSession::activation(const List& content, double coefficient, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void*, Unpacker&) -> int { return kDnnSuccess; };
  void* descriptor = kept(
      {"activation", f.cudnnCreateActivationDescriptor, f.cudnnDestroyActivationDescriptor, set},
      content, status);
  Unpacker u = content.values();
  u.array();
  int mode = static_cast<int>(u.integer()), nan = static_cast<int>(u.integer());
  if (!*status && !u.ok()) *status = kDnnBadParam;
  if (!*status) *status = f.cudnnSetActivationDescriptor(descriptor, mode, nan, coefficient);
  return descriptor;
}

// The descriptor of [mode, NaN propagation, window, pads, strides].
void* DnnSession::pooling(const List& content, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int v[8];
    for (int& value : v) value = static_cast<int>(u.integer());
    if (!u.ok()) return kDnnBadParam;
    return f.cudnnSetPooling2dDescriptor(descriptor, v[0], v[1], v[2], v[3], v[4], v[5], v[6],
                                         v[7]);
  };
  return kept({"pooling", f.cudnnCreatePoolingDescriptor, f.cudnnDestroyPoolingDescriptor, set},
              content, status);
}

int DnnSession::algorithms(const calls::cudnn_convolution_algorithms& c, void* stream,
                           Packer* results) {
  constexpr int kMost = 16;  // more than there are
  int status = kDnnSuccess, count = 0;
  void* handle = use(c.handle, stream, &status);
  void* operands[] = {tensor(c.xDesc, &status), filter(c.wDesc, &status), tensor(c.yDesc, &status)};
  void* moves = convolution(c.convolution, &status);
  const Direction* d = direction_of(c.direction);
  if (!status && (!d || c.requested < 1)) status = kDnnBadParam;
  Performance found[kMost];
  if (!status) {
    status = (f.*d->algorithm)(handle, operands[d->first], operands[d->second], moves,
                               operands[d->result], c.requested < kMost ? c.requested : kMost,
                               &count, found);
  }
  if (status) return status;
  results->array(count);
  for (int i = 0; i < count; ++i) {
    results->array(6);
    results->integer(found[i].algo);
    results->integer(found[i].status);
    results->real(found[i].time);
    results->unsigned_integer(found[i].memory);
    results->integer(found[i].determinism);
    results->integer(found[i].math);
  }
  return kDnnSuccess;
}

int DnnSession::room(const calls::cudnn_convolution_room& c, void* stream, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* operands[] = {tensor(c.xDesc, &status), filter(c.wDesc, &status), tensor(c.yDesc, &status)};
  void* moves = convolution(c.convolution, &status);
  const Direction* d = direction_of(c.direction);
  if (!status && !d) status = kDnnBadParam;
  size_t size = 0;
  if (!status) {
    status = (f.*d->room)(handle, operands[d->first], operands[d->second], moves,
                          operands[d->result], c.algo, &size);
  }
  *bytes = size;
  return status;
}

int DnnSession::run(const calls::cudnn_convolution& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* operands[] = {tensor(c.xDesc, &status), filter(c.wDesc, &status), tensor(c.yDesc, &status)};
  void* data[] = {at(c.x), at(c.w), at(c.y)};
  void* moves = convolution(c.convolution, &status);
  const Direction* d = direction_of(c.direction);
  if (!status && !d) status = kDnnBadParam;
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc);
  return (f.*d->convolve)(handle, alpha.pointer(), operands[d->first], data[d->first],
                          operands[d->second], data[d->second], moves, c.algo, at(c.workspace),
                          c.workspaceBytes, beta.pointer(), operands[d->result], data[d->result]);
}

int DnnSession::run(const calls::cudnn_convolution_fused& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *x = tensor(c.xDesc, &status), *w = filter(c.wDesc, &status), *z = tensor(c.zDesc, &status),
       *bias = tensor(c.biasDesc, &status), *y = tensor(c.yDesc, &status),
       *moves = convolution(c.convolution, &status),
       *then = activation(c.activation, c.coefficient, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), alpha_z(c.alphaZ, c.xDesc);
  return f.cudnnConvolutionBiasActivationForward(
      handle, alpha.pointer(), x, at(c.x), w, at(c.w), moves, c.algo, at(c.workspace),
      c.workspaceBytes, alpha_z.pointer(), z, at(c.z), bias, at(c.bias), then, y, at(c.y));
}

int DnnSession::run(const calls::cudnn_pooling& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *x = tensor(c.xDesc, &status), *y = tensor(c.yDesc, &status),
       *window = pooling(c.pooling, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc);
  return f.cudnnPoolingForward(handle, window, alpha.pointer(), x, at(c.x), beta.pointer(), y,
                               at(c.y));
}

}  // namespace mnemosyne::cuda
