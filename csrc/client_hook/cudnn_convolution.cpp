// cuDNN's older convolutions and pooling, which PyTorch takes under TORCH_CUDNN_V8_API_DISABLED and
// for quantized pooling. Image, filter and output are x, w and y in every direction.
#include "cudnn.h"
#include "cudnn_filter.h"
#include "cudnn_tensor.h"
#include "structs.h"

namespace mnemosyne {
namespace {

enum Direction { kForward, kBackwardData, kBackwardFilter };

struct ConvolutionDesc {
  int mode = 0;  // cudnnConvolutionMode_t
  int type = 0;  // cudnnDataType_t of the computation
  int groups = 1;
  int math = 0;  // cudnnMathType_t
  std::vector<int> pads, strides, dilations;
};

struct ActivationDesc {
  int mode = 0;  // cudnnActivationMode_t
  int nan = 0;   // cudnnNanPropagation_t
  double coefficient = 0;
};

struct PoolingDesc {
  // mode, NaN propagation, window, padding and stride; each of height and width.
  std::vector<int> settings;
};

// [mode, type, groups, math, pads, strides, dilations]; an empty array for no descriptor.
void put_convolution(Frame* frame, const void* descriptor) {
  Packer p;
  if (auto c = static_cast<const ConvolutionDesc*>(descriptor)) {
    p.array(7);
    for (int value : {c->mode, c->type, c->groups, c->math}) p.integer(value);
    for (const std::vector<int>* values : {&c->pads, &c->strides, &c->dilations}) pack(&p, *values);
  } else {
    p.array(0);
  }
  put(frame, p);
}

// [mode, NaN propagation] and the coefficient.
void put_activation(Frame* frame, const void* descriptor) {
  auto a = static_cast<const ActivationDesc*>(descriptor);
  if (!a) return frame->refuse(kInvalidValue);
  Packer p;
  pack(&p, {a->mode, a->nan});
  put(frame, p);
  frame->real(a->coefficient);
}

// The descriptors of a convolution.
struct Shapes {
  const void *convolution, *x, *w, *y;

  void put_all(Frame* frame) const {
    put_convolution(frame, convolution);
    put(frame, x);
    put_filter(frame, w);
    put(frame, y);
  }
};

int ask_algorithms(cudnnHandle_t handle, Direction direction, const Shapes& shapes, int requested,
                   int* count, void* results) {
  if (requested < 1 || !count || !results) return kCudnnBadParam;
  Frame frame(Number::cudnn_convolution_algorithms, 8, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(direction);
  frame.integer(requested);
  shapes.put_all(&frame);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  Unpacker& u = reply.values();
  auto* to = static_cast<cudnnConvolutionFwdAlgoPerf_t*>(results);
  *count = 0;
  for (uint32_t n = u.array(); n && *count < requested; --n, ++*count) {
    u.array();
    cudnnConvolutionFwdAlgoPerf_t one{};
    one.algo = static_cast<int>(u.integer());
    one.status = static_cast<int>(u.integer());
    one.time = static_cast<float>(u.real());
    one.memory = u.integer();
    one.determinism = static_cast<int>(u.integer());
    one.mathType = static_cast<int>(u.integer());
    to[*count] = one;
  }
  return u.ok() ? kCudnnSuccess : kCudnnInternalError;
}

int ask_workspace(cudnnHandle_t handle, Direction direction, const Shapes& shapes, int algo,
                  size_t* bytes) {
  if (!bytes) return kCudnnBadParam;
  Frame frame(Number::cudnn_convolution_room, 8, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(direction);
  frame.integer(algo);
  shapes.put_all(&frame);
  return ask_size(&frame, bytes);
}

struct Operands {
  const void *x, *w, *y;
};

struct Workspace {
  void* memory;
  size_t bytes;
};

int convolve(cudnnHandle_t handle, Direction direction, int algo, const void* alpha,
             const void* beta, const Shapes& shapes, const Operands& operands, Workspace room) {
  Frame frame(Number::cudnn_convolution, 15, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(direction);
  frame.integer(algo);
  put_factors(&frame, shapes.x, {alpha, beta});
  put_convolution(&frame, shapes.convolution);
  put_tensor(&frame, shapes.x, operands.x);
  put_filter(&frame, shapes.w);
  frame.pointer(operands.w);
  put_tensor(&frame, shapes.y, operands.y);
  put_room(&frame, room.memory, room.bytes);
  return frame.once();
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateConvolutionDescriptor(void** descriptor) {
  return create_descriptor<ConvolutionDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyConvolutionDescriptor(void* descriptor) {
  return destroy_descriptor<ConvolutionDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetConvolutionNdDescriptor(void* descriptor, int count,
                                                            const int* pads, const int* strides,
                                                            const int* dilations, int mode,
                                                            int type) {
  if (!descriptor || !pads || !strides || !dilations) return kCudnnBadParam;
  if (count < 1 || count > kMaxDimensions - 2) return kCudnnNotSupported;
  auto* c = static_cast<ConvolutionDesc*>(descriptor);
  c->mode = mode;
  c->type = type;
  c->pads.assign(pads, pads + count);
  c->strides.assign(strides, strides + count);
  c->dilations.assign(dilations, dilations + count);
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnSetConvolutionGroupCount(void* descriptor, int groups) {
  if (!descriptor || groups < 1) return kCudnnBadParam;
  static_cast<ConvolutionDesc*>(descriptor)->groups = groups;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnSetConvolutionMathType(void* descriptor, int math) {
  if (!descriptor) return kCudnnBadParam;
  static_cast<ConvolutionDesc*>(descriptor)->math = math;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle,
                                                                   const void* x, const void* w,
                                                                   const void* convolution,
                                                                   const void* y, int requested,
                                                                   int* count, void* results) {
  return ask_algorithms(handle, kForward, {convolution, x, w, y}, requested, count, results);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const void* w, const void* dy, const void* convolution, const void* dx,
    int requested, int* count, void* results) {
  return ask_algorithms(handle, kBackwardData, {convolution, dx, w, dy}, requested, count, results);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const void* x, const void* dy, const void* convolution, const void* dw,
    int requested, int* count, void* results) {
  return ask_algorithms(handle, kBackwardFilter, {convolution, x, dw, dy}, requested, count,
                        results);
}

// The library would run every algorithm, and neighbours would stand still meanwhile: the answer is
// that of its heuristics.
MNEMOSYNE_API cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const void* x_desc, const void*, const void* w_desc, const void*,
    const void* convolution, const void* y_desc, void*, int requested, int* count, void* results,
    void*, size_t) {
  return ask_algorithms(handle, kForward, {convolution, x_desc, w_desc, y_desc}, requested, count,
                        results);
}

MNEMOSYNE_API cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const void* w_desc, const void*, const void* dy_desc, const void*,
    const void* convolution, const void* dx_desc, void*, int requested, int* count, void* results,
    void*, size_t) {
  return ask_algorithms(handle, kBackwardData, {convolution, dx_desc, w_desc, dy_desc}, requested,
                        count, results);
}

MNEMOSYNE_API cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const void* x_desc, const void*, const void* dy_desc, const void*,
    const void* convolution, const void* dw_desc, void*, int requested, int* count, void* results,
    void*, size_t) {
  return ask_algorithms(handle, kBackwardFilter, {convolution, x_desc, dw_desc, dy_desc}, requested,
                        count, results);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle,
                                                                    const void* x, const void* w,
                                                                    const void* convolution,
                                                                    const void* y, int algo,
                                                                    size_t* bytes) {
  return ask_workspace(handle, kForward, {convolution, x, w, y}, algo, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const void* w, const void* dy, const void* convolution, const void* dx,
    int algo, size_t* bytes) {
  return ask_workspace(handle, kBackwardData, {convolution, dx, w, dy}, algo, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const void* x, const void* dy, const void* convolution, const void* dw,
    int algo, size_t* bytes) {
  return ask_workspace(handle, kBackwardFilter, {convolution, x, dw, dy}, algo, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                                    const void* x_desc, const void* x,
                                                    const void* w_desc, const void* w,
                                                    const void* convolution, int algo,
                                                    void* workspace, size_t bytes, const void* beta,
                                                    const void* y_desc, void* y) {
  return convolve(handle, kForward, algo, alpha, beta, {convolution, x_desc, w_desc, y_desc},
                  {x, w, y}, {workspace, bytes});
}

MNEMOSYNE_API cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void* alpha, const void* w_desc, const void* w, const void* dy_desc,
    const void* dy, const void* convolution, int algo, void* workspace, size_t bytes,
    const void* beta, const void* dx_desc, void* dx) {
  return convolve(handle, kBackwardData, algo, alpha, beta, {convolution, dx_desc, w_desc, dy_desc},
                  {dx, w, dy}, {workspace, bytes});
}

MNEMOSYNE_API cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, const void* x_desc, const void* x, const void* dy_desc,
    const void* dy, const void* convolution, int algo, void* workspace, size_t bytes,
    const void* beta, const void* dw_desc, void* dw) {
  return convolve(handle, kBackwardFilter, algo, alpha, beta,
                  {convolution, x_desc, dw_desc, dy_desc}, {x, dw, dy}, {workspace, bytes});
}

MNEMOSYNE_API cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha_x, const void* x_desc, const void* x,
    const void* w_desc, const void* w, const void* convolution, int algo, void* workspace,
    size_t bytes, const void* alpha_z, const void* z_desc, const void* z, const void* bias_desc,
    const void* bias, const void* activation, const void* y_desc, void* y) {
  Frame frame(Number::cudnn_convolution_fused, 20, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(algo);
  put_factors(&frame, x_desc, {alpha_x, alpha_z});
  put_convolution(&frame, convolution);
  put_tensor(&frame, x_desc, x);
  put_filter(&frame, w_desc);
  frame.pointer(w);
  put_tensor(&frame, z_desc, z);
  put_tensor(&frame, bias_desc, bias);
  put_activation(&frame, activation);
  put_tensor(&frame, y_desc, y);
  put_room(&frame, workspace, bytes);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnCreateActivationDescriptor(void** descriptor) {
  return create_descriptor<ActivationDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyActivationDescriptor(void* descriptor) {
  return destroy_descriptor<ActivationDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetActivationDescriptor(void* descriptor, int mode, int nan,
                                                         double coefficient) {
  if (!descriptor) return kCudnnBadParam;
  *static_cast<ActivationDesc*>(descriptor) = {mode, nan, coefficient};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnCreatePoolingDescriptor(void** descriptor) {
  return create_descriptor<PoolingDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyPoolingDescriptor(void* descriptor) {
  return destroy_descriptor<PoolingDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetPooling2dDescriptor(void* descriptor, int mode, int nan,
                                                        int height, int width, int pad_height,
                                                        int pad_width, int stride_height,
                                                        int stride_width) {
  if (!descriptor) return kCudnnBadParam;
  static_cast<PoolingDesc*>(descriptor)->settings = {
      mode, nan, height, width, pad_height, pad_width, stride_height, stride_width};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const void* pooling,
                                                const void* alpha, const void* x_desc,
                                                const void* x, const void* beta, const void* y_desc,
                                                void* y) {
  Frame frame(Number::cudnn_pooling, 9, Codes::kCudnn);
  frame.cudnn(handle);
  Packer settings;
  if (pooling) {
    pack(&settings, static_cast<const PoolingDesc*>(pooling)->settings);
  } else {
    settings.array(0);
  }
  put(&frame, settings);
  put_factors(&frame, x_desc, {alpha, beta});
  put_tensor(&frame, x_desc, x);
  put_tensor(&frame, y_desc, y);
  return frame.once();
}
