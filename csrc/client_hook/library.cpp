// Settings of cuFFT's, cuSOLVER's and cuSPARSE's handles that go with the calls that use them.
#include "library.h"

namespace mnemosyne {
namespace {

// Whether there are such a handle and such a stream.
bool set_stream(Handles* table, void* handle, cudaStream_t stream) {
  HandleState* state = table->find(handle);
  if (!state || !find_stream(stream)) return false;
  state->stream = stream;
  return true;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
  return set_stream(&fft_plans(), pointer_of(plan), stream) ? kFftSuccess : kFftInvalidPlan;
}

MNEMOSYNE_API cufftResult cufftSetWorkArea(cufftHandle plan, void* area) {
  HandleState* state = fft_plans().find(pointer_of(plan));
  if (!state) return kFftInvalidPlan;
  state->work_area = area;
  return kFftSuccess;
}

MNEMOSYNE_API cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  return set_stream(&library_objects(), handle, stream) ? kSolverSuccess : kSolverNotInitialized;
}

MNEMOSYNE_API cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  return set_stream(&library_objects(), handle, stream) ? kSparseSuccess : kSparseNotInitialized;
}

MNEMOSYNE_API cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, int mode) {
  HandleState* state = library_objects().find(handle);
  if (!state) return kSparseNotInitialized;
  if (mode != 0 && mode != 1) return kSparseInvalidValue;
  state->pointer_mode = mode;
  return kSparseSuccess;
}
