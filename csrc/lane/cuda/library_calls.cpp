// Calls of cuBLAS, cublasLt and cuDNN, and the way of every call to its function.
#include "executor.h"

namespace mnemosyne::cuda {
namespace {

constexpr int kNoSuchStream = kBlasInvalidValue;  // the client checks it before it calls

}  // namespace

template <typename Operation>
void CudaExecutor::put_library(uint64_t number, const char* name, Answer* a, Operation operation) {
  SessionStream* s = streams_.find(number);
  if (!s) return a->fail(kNoSuchStream, kInvalidResourceHandle, "no such stream");
  failed(streams_.order(s), name, a);
  if (a->status) return;
  enter(s);
  if (int status = operation(s->handle)) {
    // The library hides what the driver said; a lost context is not the call's fault.
    if (watch_->report(driver().cuStreamQuery(s->handle))) throw ContextLost();
    std::string text = std::string(name) + ": status " + std::to_string(status);
    a->fail(status, kUnknown, text);
  }
  leave(s, name, a);
}

// The library's handle, set up. The stream it was given may be gone by now.
void* CudaExecutor::blas(uint64_t number, const char* name, Answer* a) {
  const BlasSettings* settings = blas_.settings(number);
  SessionStream* s = settings ? streams_.find(settings->stream_number) : nullptr;
  if (settings && (!s || s->handle != settings->stream)) {
    std::string text = std::string(name) + ": the handle's stream does not exist any more";
    a->fail(kNoSuchStream, kInvalidResourceHandle, text);
    return nullptr;
  }
  int status = kBlasSuccess;
  void* handle = blas_.use(number, &status);
  if (!handle) a->fail(status, kUnknown, std::string(name) + ": no cuBLAS handle");
  return handle;
}

template <typename Call>
void CudaExecutor::execute(const Call& c, Answer* a) {
  void* handle = blas(c.handle, c.kName, a);
  if (!handle) return;
  bool on_device = blas_.settings(c.handle)->pointer_mode != 0;
  put_library(blas_.settings(c.handle)->stream_number, c.kName, a,
              [&](Stream) { return call(libraries()->calls, handle, c, on_device); });
}

// The result goes to device memory, or into the reply by the GPU.
void CudaExecutor::execute(const calls::blas_dot& c, Answer* a) {
  constexpr int kReal32 = 0, kReal64 = 1;  // cudaDataType
  if (c.type != kReal32 && c.type != kReal64) {
    return a->fail(kBlasNotSupported, kNotSupported, "blas_dot: another type");
  }
  void* handle = blas(c.handle, c.kName, a);
  if (!handle) return;
  const BlasSettings& settings = *blas_.settings(c.handle);
  bool to_reply = c.result == 0;
  if (to_reply && !a->wanted()) return;
  void* result =
      to_reply ? a->prepare(c.type == kReal64 ? 8 : 4) : reinterpret_cast<void*>(c.result);
  if (!result) return;
  auto x = reinterpret_cast<const void*>(c.x), y = reinterpret_cast<const void*>(c.y);
  constexpr int kDeviceMode = 1;  // CUBLAS_POINTER_MODE_DEVICE
  libraries()->cublasSetPointerMode_v2(handle, kDeviceMode);
  auto dot = c.type == kReal64 ? libraries()->cublasDdot_v2 : libraries()->cublasSdot_v2;
  put_library(settings.stream_number, c.kName, a,
              [&](Stream) { return dot(handle, c.n, x, c.incx, y, c.incy, result); });
  libraries()->cublasSetPointerMode_v2(handle, settings.pointer_mode);
  if (!to_reply || a->status) return;
  failed(streams_.fence_all(), c.kName, a);
  answer_in(settings.stream, c.kName, a);
}

void CudaExecutor::execute(const calls::lt_heuristic& c, Answer* a) {
  if (int status = lt_.heuristic(c, &a->outputs)) return a->fail(status, kUnknown, "");
  a->output_count = 1;
}

void CudaExecutor::execute(const calls::lt_matmul& c, Answer* a) {
  put_library(c.stream, c.kName, a, [&](Stream s) { return lt_.matmul(c, s); });
}

template <typename Call>
void CudaExecutor::run_dnn(const Call& c, Answer* a) {
  put_library(c.stream, c.kName, a, [&](Stream s) { return dnn_.run(c, s); });
}

// How many bytes a call will need.
template <typename Call>
void CudaExecutor::ask_dnn(const Call& c, Answer* a) {
  uint64_t bytes = 0;
  Stream s = stream_handle(c.stream);
  if (int status = s ? dnn_.room(c, s, &bytes) : kDnnBadParam) {
    return a->fail(status, kUnknown, std::string(c.kName) + ": status " + std::to_string(status));
  }
  a->outputs.unsigned_integer(bytes);
  a->output_count = 1;
}

// Memory whose size the client says itself: cuDNN has no other way to know it.
void CudaExecutor::check_space(uint64_t address, uint64_t size, const char* name, Answer* a) const {
  if (size == 0 || is_device(address, size)) return;
  a->fail(kDnnBadParam, kUnknown, std::string(name) + ": not this client's device memory");
}

void CudaExecutor::execute(const calls::cudnn_dropout_init& c, Answer* a) {
  check_space(c.states, c.statesBytes, c.kName, a);
  if (!a->status) run_dnn(c, a);
}

void CudaExecutor::execute(const calls::cudnn_rnn_temp_space& c, Answer* a) {
  uint64_t work = 0, reserve = 0;
  Stream s = stream_handle(c.stream);
  if (int status = s ? dnn_.temp_space(c, s, &work, &reserve) : kDnnBadParam) {
    return a->fail(status, kUnknown, std::string(c.kName) + ": status " + std::to_string(status));
  }
  a->outputs.unsigned_integer(work);
  a->outputs.unsigned_integer(reserve);
  a->output_count = 2;
}

template <typename Call>
void CudaExecutor::run_rnn(const Call& c, Answer* a) {
  check_space(c.states, c.statesBytes, c.kName, a);
  check_space(c.weightSpace, c.weightBytes, c.kName, a);
  check_space(c.workSpace, c.workBytes, c.kName, a);
  check_space(c.reserveSpace, c.reserveBytes, c.kName, a);
  if (!a->status) run_dnn(c, a);
}

void CudaExecutor::execute(const calls::cudnn_convolution_algorithms& c, Answer* a) {
  Stream s = stream_handle(c.stream);
  if (int status = s ? dnn_.algorithms(c, s, &a->outputs) : kDnnBadParam) {
    return a->fail(status, kUnknown, std::string(c.kName) + ": status " + std::to_string(status));
  }
  a->output_count = 1;
}

void CudaExecutor::run(Number number, Unpacker& fields, Answer* answer) {
  if (watch_->fault()) throw ContextLost();
  dispatch(number, fields, [&](const auto& call) { execute(call, answer); });
}

}  // namespace mnemosyne::cuda
