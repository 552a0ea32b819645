#include "executor.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace mnemosyne::cuda {
namespace {

constexpr int kNoSuchStream = kBlasInvalidValue;  // the client checks it before it calls
constexpr unsigned kNonBlocking = 1;              // CU_STREAM_NON_BLOCKING
constexpr unsigned kPortableAndMapped = 3;        // CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP

// cuda.h: what `extra` of cuLaunchKernel holds.
void* const kParamBuffer = reinterpret_cast<void*>(1);
void* const kParamSize = reinterpret_cast<void*>(2);
void* const kParamEnd = nullptr;

// CUlaunchAttributeID of what may pass: attributes without handles or pointers in them.
bool may_pass(int attribute) {
  constexpr int kCooperative = 2, kSynchronizationPolicy = 3, kClusterDimension = 4,
                kClusterPolicy = 5, kProgrammaticSerialization = 6, kPriority = 8,
                kMemSyncDomain = 10, kPreferredCluster = 11, kPreferredCarveout = 14;
  for (int known : {kCooperative, kSynchronizationPolicy, kClusterDimension, kClusterPolicy,
                    kProgrammaticSerialization, kPriority, kMemSyncDomain, kPreferredCluster,
                    kPreferredCarveout}) {
    if (attribute == known) return true;
  }
  return false;
}

}  // namespace

CudaExecutor::CudaExecutor(Watch* watch, int number, void* context, const Place& place,
                           uint64_t words)
    : watch_(watch),
      number_(number),
      context_(context),
      place_(place),
      streams_(reinterpret_cast<std::atomic<uint32_t>*>(words)),
      waiters_(kReplySlots, nullptr) {}

CudaExecutor::~CudaExecutor() { watch_->remove(this); }

void CudaExecutor::end() {
  watch_->remove(this);
  driver().cuCtxSetCurrent(context_);
  for (Stream waiter : waiters_) {
    if (waiter) driver().cuStreamDestroy_v2(waiter);
  }
  for (auto& [number, event] : events_) driver().cuEventDestroy_v2(event);
  blas_.clear();
  lt_.clear();
  dnn_.clear();
  streams_.destroy_all();
  if (channel_) driver().cuMemHostUnregister(channel_);
  if (staging_registered_) driver().cuMemHostUnregister(reinterpret_cast<void*>(place_.host_base));
  channel_ = nullptr;
}

bool CudaExecutor::add_stream(uint64_t number, uint64_t handle, bool blocking) {
  return streams_.add(number, reinterpret_cast<Stream>(handle), blocking);
}

void CudaExecutor::add_event(uint64_t number, uint64_t handle) {
  events_[number] = reinterpret_cast<Event>(handle);
}

uint64_t CudaExecutor::remove_event(uint64_t number) {
  auto found = events_.find(number);
  if (found == events_.end()) return 0;
  auto handle = reinterpret_cast<uint64_t>(found->second);
  events_.erase(found);
  return handle;
}

void CudaExecutor::add_function(uint64_t number, uint64_t handle, uint32_t argument_bytes) {
  if (functions_.size() <= number) functions_.resize(number + 1);
  functions_[number] = {reinterpret_cast<Function>(handle), argument_bytes};
}

void CudaExecutor::add_blas(uint64_t number) {
  blas_.add(number);
  configure_blas(number, 0, 0, 0, 0, 0);
}

bool CudaExecutor::configure_blas(uint64_t number, uint64_t stream, int math_mode, int pointer_mode,
                                  uint64_t workspace, uint64_t workspace_bytes) {
  SessionStream* s = streams_.find(stream);
  if (!s) return false;
  return blas_.configure(number, {s->handle, stream, math_mode, pointer_mode,
                                  reinterpret_cast<void*>(workspace), workspace_bytes});
}

Stream CudaExecutor::stream_handle(uint64_t number) {
  SessionStream* s = streams_.find(number);
  return s ? s->handle : nullptr;
}

bool CudaExecutor::idle() {
  if (streams_.idle()) return true;
  streams_.fence_all();
  return false;
}

int CudaExecutor::synchronize() {
  driver().cuCtxSetCurrent(context_);
  int code = streams_.synchronize();
  for (Stream waiter : waiters_) {
    if (waiter && !code) code = driver().cuStreamSynchronize(waiter);
  }
  watch_->report(code);
  return code;
}

void CudaExecutor::open(Channel* channel) {
  driver().cuCtxSetCurrent(context_);
  int code = driver().cuMemHostRegister_v2(channel, sizeof(Channel), kPortableAndMapped);
  if (code) {
    watch_->report(code);
    throw std::runtime_error(std::string("its channel cannot be pinned: ") + error_name(code));
  }
  channel_ = channel;
  watch_->add(this);
}

void CudaExecutor::begin() { driver().cuCtxSetCurrent(context_); }

void CudaExecutor::run(Number number, Unpacker& fields, Answer* answer) {
  if (watch_->fault()) throw ContextLost();
  dispatch(number, fields, [&](const auto& call) { execute(call, answer); });
}

void CudaExecutor::rest() {
  if (!streams_.idle()) watch_->report(streams_.fence_all());
}

// Lane and watch may meet here; whoever comes second sees what the first has done.
bool CudaExecutor::settle() {
  if (!unsettled_.load()) return true;
  uint64_t operations = operations_.load();
  if (!streams_.idle() || !all_answered()) return false;
  say_unsettled(false);
  if (operations_.load() == operations) return true;
  say_unsettled(true);
  return false;
}

// The word on the status page is for the supervisor; the client could write to it.
void CudaExecutor::say_unsettled(bool unsettled) {
  unsettled_.store(unsettled);
  channel_->unsettled.store(unsettled);
}

// A wait whose work is done, but whose answer the GPU has not written, would never be answered by
// another worker.
bool CudaExecutor::all_answered() const {
  return std::none_of(std::begin(channel_->slots), std::end(channel_->slots),
                      [](const ReplySlot& slot) { return slot.state.load() == kReplyPolled; });
}

void CudaExecutor::failed(int code, const char* name, Answer* a) {
  if (code == kSuccess) return;
  if (watch_->report(code)) throw ContextLost();
  a->fail(code, code, std::string(name) + ": " + error_name(code));
}

SessionStream* CudaExecutor::stream(uint64_t number, const char* name, Answer* a) {
  SessionStream* s = streams_.find(number);
  if (s) return s;
  std::string text = std::string(name) + ": this client has no such stream";
  a->fail(kInvalidResourceHandle, kInvalidResourceHandle, text);
  return nullptr;
}

Event CudaExecutor::event(uint64_t number, const char* name, Answer* a) {
  auto found = events_.find(number);
  if (found != events_.end()) return found->second;
  std::string text = std::string(name) + ": this client has no such event";
  a->fail(kInvalidResourceHandle, kInvalidResourceHandle, text);
  return nullptr;
}

const CudaExecutor::KnownFunction& CudaExecutor::function(uint64_t number, const Bytes& args) {
  if (number >= functions_.size() || !functions_[number].handle) {
    throw std::invalid_argument("launch: this client has no function " + std::to_string(number));
  }
  if (args.size != functions_[number].argument_bytes) {
    throw std::invalid_argument("launch: " + std::to_string(args.size) +
                                " bytes of arguments, not " +
                                std::to_string(functions_[number].argument_bytes));
  }
  return functions_[number];
}

bool CudaExecutor::is_device(uint64_t address, uint64_t size) const {
  uint64_t offset = address - place_.device_base;
  return offset < place_.device_bytes && size <= place_.device_bytes - offset;
}

void CudaExecutor::check_device(uint64_t address, uint64_t size, const char* name,
                                Answer* a) const {
  if (is_device(address, size)) return;
  a->fail(kInvalidValue, kInvalidValue, std::string(name) + ": not this client's device memory");
}

// Rows of `width` bytes, one each `pitch`.
void CudaExecutor::check_rows(uint64_t address, uint64_t pitch, uint64_t width, uint64_t height,
                              const char* name, Answer* a) const {
  uint64_t most = place_.device_bytes, further = height - 1;
  if (further && (width > pitch || pitch > most || further > most / pitch)) {
    return a->fail(kInvalidValue, kInvalidValue, std::string(name) + ": impossible sizes");
  }
  check_device(address, further * pitch + width, name, a);
}

// Host memory in the session's slot. The staging area in front is registered on first use.
void* CudaExecutor::host(uint64_t offset, uint64_t size, const char* name, Answer* a) {
  if (offset > place_.host_bytes || size > place_.host_bytes - offset) {
    a->fail(kInvalidValue, kInvalidValue, std::string(name) + ": not this client's host memory");
    return nullptr;
  }
  if (offset < place_.staging_bytes && !staging_registered_) {
    void* staging = reinterpret_cast<void*>(place_.host_base);
    int code = driver().cuMemHostRegister_v2(staging, place_.staging_bytes, kPortableAndMapped);
    staging_registered_ = code == kSuccess;
    failed(code, name, a);
  }
  return reinterpret_cast<void*>(place_.host_base + offset);
}

template <typename Operation>
void CudaExecutor::put(uint64_t number, const char* name, Answer* a, Operation operation) {
  SessionStream* s = a->status ? nullptr : stream(number, name, a);
  if (!s) return;
  failed(streams_.order(s), name, a);
  if (a->status) return;
  enter(s);
  if (int code = operation(s->handle)) {
    streams_.uncount(s);
    settle();  // a neighbour's fault must not find work here that never began
    return failed(code, name, a);
  }
  leave(s, name, a);
  if (!a->status && a->wanted()) answer_after(s, name, a);
}

// Before an operation: the session has work from now on.
void CudaExecutor::enter(SessionStream* s) {
  streams_.count(s);
  busy();
}

void CudaExecutor::busy() {
  operations_.fetch_add(1);
  if (unsettled_.load()) return;
  say_unsettled(true);
  watch_->wake();
}

void CudaExecutor::leave(SessionStream* s, const char* name, Answer* a) {
  failed(streams_.fence_sometimes(s), name, a);
  limit(s);
}

// Bounds what is in flight, so that the driver never has to: it would make other lanes wait, too.
void CudaExecutor::limit(SessionStream* s) {
  auto in_flight = [s] {
    return s->counted.load(std::memory_order_relaxed) -
           s->finished->load(std::memory_order_acquire);
  };
  while (in_flight() > Streams::kMostInFlight) {
    if (stopped_ || watch_->fault()) throw ContextLost();
    timespec nap{0, 20000};
    nanosleep(&nap, nullptr);
  }
}

void CudaExecutor::answer_after(SessionStream* s, const char* name, Answer* a) {
  if (!a->prepared() && streams_.is_done(s)) return;  // the lane answers
  failed(streams_.fence_all(), name, a);
  answer_in(s->handle, name, a);
}

void CudaExecutor::answer_in(Stream handle, const char* name, Answer* a) {
  if (a->status || (!a->prepared() && !a->prepare())) return;
  a->complete_later();
  busy();
  auto state = reinterpret_cast<DevicePointer>(a->state());
  failed(driver().cuStreamWriteValue32_v2(handle, state, kReplyReady, 0), name, a);
}

// A stream for the waits of one reply slot: a wait never delays another thread's.
Stream CudaExecutor::waiter(Answer* a) {
  Stream& waiter = waiters_[a->slot()];
  if (!waiter) {
    failed(driver().cuStreamCreateWithPriority(&waiter, kNonBlocking, 0), "waiting", a);
  }
  return waiter;
}

void CudaExecutor::execute(const calls::launch& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  put(c.stream, c.kName, a, [&](Stream s) {
    return driver().cuLaunchKernel(f.handle, c.gridX, c.gridY, c.gridZ, c.blockX, c.blockY,
                                   c.blockZ, c.sharedMem, s, nullptr, extra);
  });
}

void CudaExecutor::execute(const calls::launch_ex& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  std::vector<LaunchAttribute> attributes;
  Unpacker u = c.attributes.values();
  for (uint32_t n = u.array(); n; --n) {
    uint32_t fields = u.array();
    LaunchAttribute attribute{};
    attribute.id = static_cast<int>(u.integer());
    size_t length;
    const char* value = u.bytes(&length);
    if (fields != 2 || !u.ok() || length != sizeof attribute.value) {
      throw std::invalid_argument("launch_ex: its attributes are not [id, 64 bytes]");
    }
    memcpy(attribute.value, value, length);
    if (attribute.id == 0) continue;  // CU_LAUNCH_ATTRIBUTE_IGNORE
    if (!may_pass(attribute.id)) {
      std::string text = "launch attribute " + std::to_string(attribute.id) + " is not supported";
      return a->fail(kNotSupported, kNotSupported, text);
    }
    attributes.push_back(attribute);
  }
  put(c.stream, c.kName, a, [&](Stream s) {
    LaunchConfig config{c.gridX,  c.gridY,     c.gridZ, c.blockX,          c.blockY,
                        c.blockZ, c.sharedMem, s,       attributes.data(), 0};
    config.attribute_count = static_cast<unsigned>(attributes.size());
    return driver().cuLaunchKernelEx(&config, f.handle, nullptr, extra);
  });
}

// The driver copies from memory that is not registered before it returns.
void CudaExecutor::execute(const calls::copy_inline& c, Answer* a) {
  check_device(c.dst, c.data.size, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyHtoDAsync_v2(c.dst, c.data.data, c.data.size, s); });
}

void CudaExecutor::execute(const calls::copy_fetch& c, Answer* a) {
  constexpr uint64_t kMost = kReplyBytes - 64;
  if (c.count > kMost) return a->fail(kInvalidValue, kInvalidValue, "copy_fetch: too many bytes");
  check_device(c.src, c.count, c.kName, a);
  if (a->status || !a->wanted()) return;
  char* to = a->prepare(c.count);
  if (!to) return;
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoHAsync_v2(to, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_from_host& c, Answer* a) {
  check_device(c.dst, c.count, c.kName, a);
  void* from = host(c.hostOffset, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyHtoDAsync_v2(c.dst, from, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_to_host& c, Answer* a) {
  check_device(c.src, c.count, c.kName, a);
  void* to = host(c.hostOffset, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoHAsync_v2(to, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_device& c, Answer* a) {
  check_device(c.dst, c.count, c.kName, a);
  check_device(c.src, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoDAsync_v2(c.dst, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_device_2d& c, Answer* a) {
  if (c.width == 0 || c.height == 0) return;
  check_rows(c.dst, c.dpitch, c.width, c.height, c.kName, a);
  check_rows(c.src, c.spitch, c.width, c.height, c.kName, a);
  Copy2d copy{};
  copy.src_type = copy.dst_type = kDeviceMemory;
  copy.src_device = c.src;
  copy.dst_device = c.dst;
  copy.src_pitch = c.spitch;
  copy.dst_pitch = c.dpitch;
  copy.width = c.width;
  copy.height = c.height;
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuMemcpy2DAsync_v2(&copy, s); });
}

void CudaExecutor::execute(const calls::cudaMemsetAsync& c, Answer* a) {
  check_device(c.devPtr, c.count, c.kName, a);
  auto value = static_cast<unsigned char>(c.value);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemsetD8Async(c.devPtr, value, c.count, s); });
}

void CudaExecutor::execute(const calls::cudaMemset2DAsync& c, Answer* a) {
  if (c.width == 0 || c.height == 0) return;
  check_rows(c.devPtr, c.pitch, c.width, c.height, c.kName, a);
  auto value = static_cast<unsigned char>(c.value);
  put(c.stream, c.kName, a, [&](Stream s) {
    return driver().cuMemsetD2D8Async(c.devPtr, c.pitch, value, c.width, c.height, s);
  });
}

void CudaExecutor::execute(const calls::event_record& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuEventRecordWithFlags(e, s, c.flags & 1); });
}

void CudaExecutor::execute(const calls::event_query& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  int code = e ? driver().cuEventQuery(e) : kSuccess;
  code == kNotReady ? a->fail(code, 0, "") : failed(code, c.kName, a);
}

void CudaExecutor::execute(const calls::stream_query& c, Answer* a) {
  SessionStream* s = stream(c.stream, c.kName, a);
  if (!s || streams_.is_done(s)) return;
  int code = streams_.order(s);
  if (!code) code = driver().cuStreamQuery(s->handle);
  code == kNotReady ? a->fail(code, 0, "") : failed(code, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaStreamWaitEvent& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuStreamWaitEvent(s, e, 0); });
}

void CudaExecutor::execute(const calls::cudaStreamSynchronize& c, Answer* a) {
  SessionStream* s = stream(c.stream, c.kName, a);
  if (!s || !a->wanted()) return;
  failed(streams_.order(s), c.kName, a);
  answer_after(s, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaDeviceSynchronize& c, Answer* a) {
  if (!a->wanted() || streams_.idle()) return;
  failed(streams_.fence_all(), c.kName, a);
  Stream all = waiter(a);
  if (!a->status) failed(streams_.join_all(all), c.kName, a);
  answer_in(all, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaEventSynchronize& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  if (!e || !a->wanted() || driver().cuEventQuery(e) == kSuccess) return;
  Stream waits = waiter(a);
  if (!a->status) failed(driver().cuStreamWaitEvent(waits, e, 0), c.kName, a);
  answer_in(waits, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaEventElapsedTime& c, Answer* a) {
  Event start = event(c.start, c.kName, a);
  Event end = event(c.end, c.kName, a);
  float milliseconds = 0;
  if (a->status) return;
  int code = driver().cuEventElapsedTime(&milliseconds, start, end);
  if (code == kNotReady) return a->fail(code, 0, "");
  failed(code, c.kName, a);
  a->outputs.real(milliseconds);
  a->output_count = 1;
}

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

void CudaExecutor::execute(const calls::cudnn_batch_norm_room& c, Answer* a) {
  uint64_t bytes = 0;
  Stream s = stream_handle(c.stream);
  if (int status = s ? dnn_.room(c, s, &bytes) : kDnnBadParam) {
    return a->fail(status, kUnknown, std::string(c.kName) + ": status " + std::to_string(status));
  }
  a->outputs.unsigned_integer(bytes);
  a->output_count = 1;
}

}  // namespace mnemosyne::cuda
