// Calls of cuBLAS, cublasLt and cuDNN, and the way of every call to its function.
#include <cstring>
#include <type_traits>

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

// Every routine of cuBLAS.
template <typename Call>
void CudaExecutor::execute(const Call& c, Answer* a) {
  void* handle = blas(c.handle, c.kName, a);
  if (!handle) return;
  const BlasSettings& settings = *blas_.settings(c.handle);
  if constexpr (std::is_base_of_v<ReturnsResult, Call>) return run_result(c, handle, settings, a);
  BlasPlaces at{settings.pointer_mode != 0};
  int status = kBlasSuccess;
  put_library(settings.stream_number, c.kName, a, [&](Stream) {
    status = call(libraries()->calls, handle, c, &at);
    return at.info && a->wanted() ? kBlasSuccess : status;  // the program is told both
  });
  if (!a->status) give_back(c, at, status, a);
}

// The result goes to device memory, or into the reply by the GPU: never to where a client says that
// the host's memory is.
template <typename Call>
void CudaExecutor::run_result(const Call& c, void* handle, const BlasSettings& settings,
                              Answer* a) {
  constexpr int kDeviceMode = 1;  // CUBLAS_POINTER_MODE_DEVICE
  size_t size = c.result_size();
  if (!size) {
    std::string text = std::string(c.kName) + ": a result of an unknown type";
    return a->fail(kBlasNotSupported, kNotSupported, text);
  }
  bool to_reply = c.result == 0;
  if (to_reply && !a->wanted()) return;
  BlasPlaces at{true, to_reply ? a->prepare(size) : nullptr};
  if (to_reply && !at.result) return;
  if (to_reply) memset(at.result, 0, size);  // what was in the slot is of another reply
  libraries()->cublasSetPointerMode_v2(handle, kDeviceMode);
  put_library(settings.stream_number, c.kName, a,
              [&](Stream) { return call(libraries()->calls, handle, c, &at); });
  libraries()->cublasSetPointerMode_v2(handle, settings.pointer_mode);
  if (!to_reply || a->status) return;
  failed(streams_.fence_all(), c.kName, a);
  answer_in(settings.stream, c.kName, a);
}

template <typename Call>
void CudaExecutor::give_back(const Call& c, const BlasPlaces& at, int status, Answer* a) {
  if constexpr (std::is_base_of_v<ReturnsInfo, Call>) {
    a->outputs.integer(at.info);
    a->outputs.integer(status);
    a->output_count = 2;
  } else if constexpr (std::is_base_of_v<ChangesScalars, Call>) {
    if (at.on_device) return;
    c.pack(&a->outputs);
    a->output_count = Call::kChanged;
  }
}

namespace {

// What cublasLt says: `count` values, or why not.
void told(int status, uint32_t count, Answer* a) {
  if (status) return a->fail(status, kUnknown, "");
  a->output_count = count;
}

}  // namespace

void CudaExecutor::execute(const calls::lt_heuristic& c, Answer* a) {
  told(lt_.heuristic(c, &a->outputs), 1, a);
}

void CudaExecutor::execute(const calls::lt_algo_check& c, Answer* a) {
  told(lt_.check(c, &a->outputs), 1, a);
}

void CudaExecutor::execute(const calls::lt_algo_init& c, Answer* a) {
  told(lt_.algorithm(c, &a->outputs), 1, a);
}

void CudaExecutor::execute(const calls::lt_algo_set& c, Answer* a) {
  told(lt_.set(c, &a->outputs), 1, a);
}

void CudaExecutor::execute(const calls::lt_algo_get& c, Answer* a) {
  told(lt_.get(c, &a->outputs), 2, a);
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

// cuFFT, cuSOLVER and cuSPARSE work in the stream of the handle. Where they set themselves up it is
// in the legacy stream, for which no stream of ours waits: when a handle is made, planned or set,
// or a matrix analysed (see call_library), and perhaps when a handle is first used with a function,
// which may make a handle of another library. What such a call leaves there is waited for; a later
// one has nothing to set up.
template <typename Call>
void CudaExecutor::run_carried(const Call& c, Answer* a) {
  LibraryCall call(&library_handles_, c.function, c.arguments);
  const char* name = call.function().name;
  constexpr const char* kCarriers[] = {"cufft_run", "cusolver_run", "cusparse_run"};
  if (!call.function().runs || strcmp(kCarriers[call.function().library], c.kName) != 0) {
    throw std::invalid_argument(std::string(c.kName) + ": it carries no call of " + name);
  }
  if (!stream_handle(c.stream)) call.refuse(kNoLibraryHandle, "no such stream");
  if (call.refusal()) return a->fail(call.refusal(), kUnknown, call.why());
  int code = kSuccess;
  put_library(c.stream, name, a, [&](Stream s) {
    int status = call.run(s, c.workArea);
    if (call.is_first()) code = driver().cuStreamSynchronize(kLegacyStream);
    if (!code && call.holds_memory()) code = driver().cuStreamSynchronize(s);
    return status;
  });
  failed(code, name, a);
  if (a->status && a->wanted()) a->text.clear();  // the program knows what the status means
  if (!a->status) a->output_count = call.results(&a->outputs);
}

std::tuple<int, int, std::string> CudaExecutor::call_library(uint32_t function, uint64_t stream,
                                                             const List& arguments) {
  LibraryCall call(&library_handles_, function, arguments);
  const char* name = call.function().name;
  Answer a(channel_, kNoReply);
  int status = call.refusal(), lost = kSuccess;
  auto run = [&](Stream s) { return status = call.run(s, 0); };
  try {
    if (!status) call.function().works ? put_library(stream, name, &a, run) : void(run(nullptr));
    failed(driver().cuStreamSynchronize(kLegacyStream), name, &a);
  } catch (const ContextLost&) {
    lost = watch_->fault();
  }
  Packer results;
  a.output_count = status ? 0 : call.results(&a.outputs);
  results.array(a.output_count);
  results.append(a.outputs.data(), a.outputs.size());
  return {lost || status ? lost : a.late_error, status, {results.data(), results.size()}};
}

void CudaExecutor::run(Number number, Unpacker& fields, Answer* answer) {
  if (watch_->fault()) throw ContextLost();
  dispatch(number, fields, [&](const auto& call) { execute(call, answer); });
}

}  // namespace mnemosyne::cuda
