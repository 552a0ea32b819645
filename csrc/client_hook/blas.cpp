// cuBLAS handles: their settings stay here until a compute call needs them (see Frame::blas).
#include "frame.h"

namespace mnemosyne {
namespace {

HandleState* find(cublasHandle_t handle) { return blas_handles().find(handle); }

int dot(cublasHandle_t handle, int type, size_t size, int n, const void* x, int incx, const void* y,
        int incy, void* result) {
  Frame frame(Number::blas_dot, 8, Codes::kBlas);
  frame.blas(handle);
  frame.integer(type);
  frame.integer(n);
  frame.pointer(x);
  frame.integer(incx);
  frame.pointer(y);
  frame.integer(incy);
  HandleState* state = find(handle);
  bool on_device = state && state->blas.pointer_mode != 0;
  if (!result) return kBlasInvalidValue;
  frame.pointer(on_device ? result : nullptr);
  if (on_device) return frame.once();
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  size_t got;
  const char* value = reply.values().bytes(&got);
  if (!value || got != size) return kBlasInternalError;
  memcpy(result, value, size);
  return kBlasSuccess;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

// Takes the handle back to the library's own workspace, as the documentation of cuBLAS says.
MNEMOSYNE_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  state->blas.stream = stream;
  state->blas.workspace = nullptr;
  state->blas.workspace_bytes = 0;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  if (!stream) return kBlasInvalidValue;
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  *stream = state->blas.stream;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace,
                                                   size_t bytes) {
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  state->blas.workspace = workspace;
  state->blas.workspace_bytes = bytes;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode) {
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  state->blas.math_mode = mode;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, int* mode) {
  if (!mode) return kBlasInvalidValue;
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  *mode = state->blas.math_mode;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode) {
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  state->blas.pointer_mode = mode;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, int* mode) {
  if (!mode) return kBlasInvalidValue;
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  *mode = state->blas.pointer_mode;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count) {
  HandleState* state = find(handle);
  if (!state) return kBlasNotInitialized;
  if (count < 0) return kBlasInvalidValue;
  state->blas.sm_count = count;
  return kBlasSuccess;
}

enum DataType { kReal32 = 0, kReal64 = 1 };  // cudaDataType

MNEMOSYNE_API cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float* x, int incx,
                                           const float* y, int incy, float* result) {
  return dot(handle, kReal32, sizeof *result, n, x, incx, y, incy, result);
}

MNEMOSYNE_API cublasStatus_t cublasDdot_v2(cublasHandle_t handle, int n, const double* x, int incx,
                                           const double* y, int incy, double* result) {
  return dot(handle, kReal64, sizeof *result, n, x, incx, y, incy, result);
}
