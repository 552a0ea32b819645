// cuBLAS handles: their settings stay here until a compute call needs them (see Frame::blas).
#include "frame.h"

namespace mnemosyne {
namespace {

HandleState* find(cublasHandle_t handle) { return blas_handles().find(handle); }

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

MNEMOSYNE_API cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, int,
                                            cudaStream_t);

namespace mnemosyne {
namespace {

enum Direction { kToDevice = 1, kToHost = 2 };  // cudaMemcpyKind

// `count` pieces of `width` bytes, one each `from_step` and `to_step` bytes.
int copy_pieces(const void* from, size_t from_step, void* to, size_t to_step, size_t width,
                size_t count, Direction way, cudaStream_t stream) {
  if (cudaMemcpy2DAsync(to, to_step, from, from_step, width, count, way, stream)) {
    return kBlasMappingError;
  }
  return kBlasSuccess;
}

int copy_vector(int n, int size, const void* x, int incx, void* y, int incy, Direction way,
                cudaStream_t stream) {
  if (n < 0 || size <= 0 || incx <= 0 || incy <= 0) return kBlasInvalidValue;
  size_t bytes = size;
  return copy_pieces(x, incx * bytes, y, incy * bytes, bytes, n, way, stream);
}

int copy_matrix(int rows, int columns, int size, const void* a, int lda, void* b, int ldb,
                Direction way, cudaStream_t stream) {
  if (rows < 0 || columns < 0 || size <= 0 || lda <= 0 || ldb <= 0) return kBlasInvalidValue;
  if (lda < rows || ldb < rows) return kBlasInvalidValue;
  size_t bytes = size;
  return copy_pieces(a, lda * bytes, b, ldb * bytes, rows * bytes, columns, way, stream);
}

}  // namespace
}  // namespace mnemosyne

MNEMOSYNE_API cublasStatus_t cublasSetVectorAsync(int n, int size, const void* x, int incx, void* y,
                                                  int incy, cudaStream_t stream) {
  return copy_vector(n, size, x, incx, y, incy, kToDevice, stream);
}

MNEMOSYNE_API cublasStatus_t cublasGetVectorAsync(int n, int size, const void* x, int incx, void* y,
                                                  int incy, cudaStream_t stream) {
  return copy_vector(n, size, x, incx, y, incy, kToHost, stream);
}

MNEMOSYNE_API cublasStatus_t cublasSetMatrixAsync(int rows, int columns, int size, const void* a,
                                                  int lda, void* b, int ldb, cudaStream_t stream) {
  return copy_matrix(rows, columns, size, a, lda, b, ldb, kToDevice, stream);
}

MNEMOSYNE_API cublasStatus_t cublasGetMatrixAsync(int rows, int columns, int size, const void* a,
                                                  int lda, void* b, int ldb, cudaStream_t stream) {
  return copy_matrix(rows, columns, size, a, lda, b, ldb, kToHost, stream);
}
