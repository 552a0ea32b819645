// A cuBLAS and cublasLt in one library, for the lane on the fake driver: a few functions do
// something that a test can see, the others succeed (routines.inc). What they write comes into the
// handle's stream, word by word.
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define BLAS extern "C" int

namespace {

constexpr int kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13;

struct Handle {
  int pointer_mode = 0;
  int sm_count = 0;
  void* workspace = nullptr;
  CUstream stream = nullptr;
};

Handle* of(void* handle) { return static_cast<Handle*>(handle); }

constexpr int kDeviceMode = 1;  // CUBLAS_POINTER_MODE_DEVICE

// As a kernel would, it needs an aligned address.
template <typename T>
int put(void* handle, void* result, T value) {
  auto at = reinterpret_cast<CUdeviceptr>(result);
  if (of(handle)->pointer_mode != kDeviceMode || at % sizeof value) return kExecutionFailed;
  cuuint32_t words[sizeof value / 4];
  memcpy(words, &value, sizeof value);
  for (size_t i = 0; i < sizeof value / 4; ++i) {
    if (cuStreamWriteValue32(of(handle)->stream, at + 4 * i, words[i], 0)) return kExecutionFailed;
  }
  return kSuccess;
}

struct Algorithm {
  uint64_t attributes[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct Complex {
  double real, imaginary;
};

}  // namespace

BLAS cublasCreate_v2(void** handle) { return *handle = new Handle, kSuccess; }
BLAS cublasDestroy_v2(void* handle) { return delete of(handle), kSuccess; }
BLAS cublasSetStream_v2(void* handle, CUstream stream) {
  of(handle)->stream = stream;
  of(handle)->workspace = nullptr;
  return kSuccess;
}
BLAS cublasSetWorkspace_v2(void* handle, void* p, size_t) {
  return of(handle)->workspace = p, kSuccess;
}
BLAS cublasSetMathMode(void*, int) { return kSuccess; }
BLAS cublasSetPointerMode_v2(void* handle, int mode) {
  return of(handle)->pointer_mode = mode, kSuccess;
}
BLAS cublasSetSmCountTarget(void* handle, int count) {
  return of(handle)->sm_count = count, kSuccess;
}

BLAS cublasSasum_v2(void* handle, int n, void*, int step, void* result) {
  return put(handle, result, static_cast<float>(n * step));
}
BLAS cublasZdotu_v2(void* handle, int n, void*, int, void*, int, void* result) {
  return put(handle, result, Complex{1.0 * n, 2.0 * n});
}
// What a handle has been told, as results.
BLAS cublasIsamax_v2(void* handle, int, void*, int, void* result) {
  return put(handle, result, of(handle)->sm_count);
}
BLAS cublasIsamin_v2(void* handle, int, void*, int, void* result) {
  return put(handle, result, of(handle)->workspace ? 1 : 0);
}
BLAS cublasSrotg_v2(void* handle, float* a, float* b, float* c, float* s) {
  if (of(handle)->pointer_mode == kDeviceMode) return put(handle, s, 5.0f);
  *c = *a + *b, *s = *a - *b, *a = 1, *b = 2;
  return kSuccess;
}
BLAS cublasSgetrsBatched(void*, int, int n, int, void*, int, void*, void*, int, int* info, int) {
  *info = n < 0 ? -3 : 0;
  return n < 0 ? kInvalidValue : kSuccess;
}

BLAS cublasLtCreate(void** handle) { return *handle = new Handle, kSuccess; }
BLAS cublasLtMatmulDescCreate(void** desc, int, int) { return *desc = new Handle, kSuccess; }
BLAS cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) {
  return *layout = new Handle, kSuccess;
}
BLAS cublasLtMatmulAlgoInit(void*, int compute, int, int, int, int, int, int id, Algorithm* made) {
  *made = {{static_cast<uint64_t>(id), 0, static_cast<uint64_t>(compute)}};
  return kSuccess;
}
BLAS cublasLtMatmulAlgoConfigSetAttribute(Algorithm* a, int attribute, const void* p, size_t size) {
  if (attribute < 0 || attribute > 7 || size > 8) return kInvalidValue;
  memcpy(&a->attributes[attribute], p, size);
  return kSuccess;
}
BLAS cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* a, int attribute, void* p, size_t size,
                                          size_t* written) {
  *written = 8;
  if (size) memcpy(p, &a->attributes[attribute], size < 8 ? size : 8);
  return kSuccess;
}
BLAS cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const Algorithm* a,
                             Heuristic* result) {
  if (a->attributes[0] == 99) return kInvalidValue;
  result->workspace = 4096;
  result->waves = 0.5;
  return kSuccess;
}

#define SUCCEEDS(name) \
  BLAS name() { return kSuccess; }
#include "routines.inc"
