// cuDNN's batch normalisation.
#include "cudnn.h"
#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

constexpr int kNormOnly = 0;  // CUDNN_BATCHNORM_OPS_BN
constexpr const char* kWithActivation =
    "cuDNN's batch normalisation with an activation is not supported";

// Normalisation followed by an activation is not what PyTorch asks for.
void need_norm_only(Frame* frame, int operations) {
  if (operations == kNormOnly) return;
  cudnn_failed(kCudnnNotSupported, kWithActivation);
  frame->refuse(kNotSupported);
}

// Which of the buffers a size is asked for.
enum Room { kForwardWorkspace = 0, kBackwardWorkspace = 1, kReserve = 2 };

int ask_room(cudnnHandle_t handle, Room room, int mode, int operations, const void* descriptor,
             size_t* bytes) {
  if (!descriptor || !bytes) return kCudnnBadParam;
  if (operations != kNormOnly) return cudnn_failed(kCudnnNotSupported, kWithActivation);
  Frame frame(Number::cudnn_batch_norm_room, 5, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(room);
  frame.integer(mode);
  put(&frame, descriptor);
  return ask_size(&frame, bytes);
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, int mode, int operations, void* x, void*, void*, void*, void*,
    size_t* bytes) {
  return ask_room(handle, kForwardWorkspace, mode, operations, x, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, int mode, int operations, void* x, void*, void*, void*, void*, void*,
    void*, size_t* bytes) {
  return ask_room(handle, kBackwardWorkspace, mode, operations, x, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, int mode, int operations, void*, void* x, size_t* bytes) {
  return ask_room(handle, kReserve, mode, operations, x, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, int mode, int operations, const void* alpha, const void* beta,
    void* x_desc, const void* x, void*, const void*, void* y_desc, void* y, void* param_desc,
    const void* scale, const void* bias, double factor, void* running_mean, void* running_variance,
    double epsilon, void* saved_mean, void* saved_inverse, void*, void* workspace,
    size_t workspace_bytes, void* reserve, size_t reserve_bytes) {
  Frame frame(Number::cudnn_batch_norm_training, 22, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(mode);
  put_factors(&frame, x_desc, {alpha, beta});
  put_tensor(&frame, x_desc, x);
  put_tensor(&frame, y_desc, y);
  put(&frame, param_desc);
  put_pointers(&frame, {scale, bias});
  frame.real(factor);
  put_pointers(&frame, {running_mean, running_variance});
  frame.real(epsilon);
  put_pointers(&frame, {saved_mean, saved_inverse});
  put_room(&frame, workspace, workspace_bytes);
  put_room(&frame, reserve, reserve_bytes);
  need_norm_only(&frame, operations);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, int mode, const void* alpha, const void* beta, void* x_desc,
    const void* x, void* y_desc, void* y, void* param_desc, const void* scale, const void* bias,
    const void* mean, const void* variance, double epsilon) {
  Frame frame(Number::cudnn_batch_norm_inference, 15, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(mode);
  put_factors(&frame, x_desc, {alpha, beta});
  put_tensor(&frame, x_desc, x);
  put_tensor(&frame, y_desc, y);
  put(&frame, param_desc);
  put_pointers(&frame, {scale, bias, mean, variance});
  frame.real(epsilon);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, int mode, int operations, const void* alpha_data, const void* beta_data,
    const void* alpha_param, const void* beta_param, void* x_desc, const void* x, void*,
    const void*, void* dy_desc, const void* dy, void*, void*, void* dx_desc, void* dx,
    void* param_desc, const void* scale, const void*, void* scale_gradient, void* bias_gradient,
    double epsilon, const void* saved_mean, const void* saved_inverse, void*, void* workspace,
    size_t workspace_bytes, void* reserve, size_t reserve_bytes) {
  Frame frame(Number::cudnn_batch_norm_backward, 24, Codes::kCudnn);
  frame.cudnn(handle);
  frame.integer(mode);
  put_factors(&frame, x_desc, {alpha_data, beta_data, alpha_param, beta_param});
  put_tensor(&frame, x_desc, x);
  put_tensor(&frame, dy_desc, dy);
  put_tensor(&frame, dx_desc, dx);
  put(&frame, param_desc);
  put_pointers(&frame, {scale, scale_gradient, bias_gradient});
  frame.real(epsilon);
  put_pointers(&frame, {saved_mean, saved_inverse});
  put_room(&frame, workspace, workspace_bytes);
  put_room(&frame, reserve, reserve_bytes);
  need_norm_only(&frame, operations);
  return frame.once();
}
