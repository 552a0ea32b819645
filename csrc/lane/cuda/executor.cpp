#include "executor.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace mnemosyne::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;        // CU_STREAM_NON_BLOCKING
constexpr unsigned kPortableAndMapped = 3;  // CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP

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
  if (blank_) driver().cuEventDestroy_v2(blank_);
  graphs_.clear();
  blas_.clear();
  lt_.clear();
  dnn_.clear();
  end_all(&library_handles_);
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

void CudaExecutor::add_function(uint64_t number, uint64_t handle, uint32_t argument_bytes) {
  if (functions_.size() <= number) functions_.resize(number + 1);
  functions_[number] = {reinterpret_cast<Function>(handle), argument_bytes};
}

void CudaExecutor::remove_function(uint64_t number) {
  if (number < functions_.size()) functions_[number] = {};
}

void CudaExecutor::add_blas(uint64_t number) {
  blas_.add(number);
  configure_blas(number, 0, 0, 0, 0, 0, 0);
}

bool CudaExecutor::configure_blas(uint64_t number, uint64_t stream, int math_mode, int pointer_mode,
                                  uint64_t workspace, uint64_t workspace_bytes, int sm_count) {
  SessionStream* s = streams_.find(stream);
  if (!s) return false;
  return blas_.configure(number, {s->handle, stream, math_mode, pointer_mode,
                                  reinterpret_cast<void*>(workspace), workspace_bytes, sm_count});
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

// Alone, a session loses what fences take; together, clients are further apart without them.
void CudaExecutor::pause() {
  if (streams_.idle()) return;
  watch_->report(watch_->shared() ? streams_.fence_all() : streams_.fence_reached());
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

Event CudaExecutor::past_event(uint64_t number, const char* name, Answer* a) {
  if (number != kBlankEvent) return event(number, name, a);
  if (!blank_) failed(driver().cuEventCreate(&blank_, 0), name, a);
  return blank_;
}

const CudaExecutor::KnownFunction& CudaExecutor::function(uint64_t number) {
  if (number >= functions_.size() || !functions_[number].handle) {
    throw std::invalid_argument("launch: this client has no function " + std::to_string(number));
  }
  return functions_[number];
}

const CudaExecutor::KnownFunction& CudaExecutor::function(uint64_t number, const Bytes& args) {
  function(number);
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
  while (!s->captures && in_flight() > Streams::kMostInFlight) {
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

}  // namespace mnemosyne::cuda
