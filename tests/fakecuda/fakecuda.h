// A CUDA driver for tests on machines without a GPU: the public calls a server makes, over memfds
// and threads. It computes nothing but what tests ask for by a kernel's name (launch.cpp), and ends
// the process, loudly, where a real driver would corrupt memory in silence.
//
// How it works: one mutex guards everything; each call holds it, except while it waits. A stream is
// a thread with a queue. Device memory is a memfd, mapped twice: nothing is readable at the address
// the program knows, as on a GPU, and copies use a second, shadow mapping.
//
// FAKECUDA_MEMORY: bytes of device memory. FAKECUDA_LAUNCH_US: how long a kernel takes.
// FAKECUDA_CAPTURE: 0 refuses to capture graphs.
// FAKECUDA_LOG: a file that gets a line "name result" for each call.
// FAKECUDA_CUDNN: a cuDNN that is there before anybody looks for the real one.
#pragma once
#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fakecuda {

using Lock = std::unique_lock<std::mutex>;

struct Range {
  CUdeviceptr start;
  size_t size;
};

// Work in a stream, and the memory it will touch.
struct Work {
  std::vector<Range> touches;
  std::function<void()> run;
  const char* call = nullptr;
  std::function<void(CUstream)> launch;  // in a graph: is called at its launch, instead of queued
};

struct Stream {
  int priority = 0;
  bool destroyed = false;
  std::deque<Work> queue;  // its first is being done
  uint64_t queued = 0, done = 0;
  std::condition_variable filled;
  std::unique_ptr<std::vector<Work>> captured;  // instead of being queued
};

// Handles that exist. Objects are never deleted, so no handle is ever given twice.
template <class T>
struct Handles {
  const char* kind;
  std::set<T*> all;

  template <class H>
  H add(T* object) {
    return reinterpret_cast<H>(*all.insert(object).first);
  }
  T* get(void* handle) const;
};

struct State {
  std::mutex mutex;
  std::condition_variable progress;  // work was done, or a fault happened
  CUresult fatal = CUDA_SUCCESS;     // what a fault left; no call succeeds after it
  bool initialized = false;
  int retained = 0;
  std::set<Stream*> streams;  // with those that were destroyed but have work left
};
State& state();

// What a call needs in order not to be refused.
enum Needs { kNothing, kInit, kDevice, kContext };

// Why this call cannot be made now, CUDA_SUCCESS if it can.
CUresult refusal(Needs needs);
void log_call(const char* name, CUresult result);
extern thread_local const char* current_call;
extern thread_local bool in_host_function;

// Makes one call of the API: `body` runs with everything locked.
template <class Body>
CUresult call(const char* name, Needs needs, Body body) {
  Lock lock(state().mutex);
  current_call = name;
  CUresult result = refusal(needs);
  if (result == CUDA_SUCCESS) result = body(lock);
  log_call(name, result);
  return result;
}

[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

template <class T>
T* Handles<T>::get(void* handle) const {
  auto* object = static_cast<T*>(handle);
  if (!all.count(object)) die("%p is no %s, or was destroyed", handle, kind);
  return object;
}

// Answers a call with a value.
template <class T>
CUresult give(T* to, T value) {
  *to = value;
  return CUDA_SUCCESS;
}

// A call as the log and messages name it: without the version that cuda.h adds.
std::string public_name(const char* name);
void log_line(const char* format, ...) __attribute__((format(printf, 1, 2)));
uint64_t environment(const char* name, uint64_t otherwise);

// streams.cpp
Stream* find_stream(CUstream handle);
uint64_t enqueue(Stream* stream, Work work);
CUresult wait_until(Lock& lock, const std::function<bool()>& condition);
CUresult wait_for(Lock& lock, Stream* stream, uint64_t number);
void refuse_if_pending(Range range);
CUresult record(CUevent event, CUstream stream);
void fault(CUresult code);
bool faulted();

// memory.cpp
inline CUdeviceptr number(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
enum Access : unsigned { kRead = 1, kWrite = 3 };
struct Place {
  char* bytes;
  bool device;
  bool pageable;  // host memory that is not registered
};
Place find_place(CUdeviceptr address, size_t size, Access access);
// Whether a copy may touch this range: device memory that is mapped, or host memory that is
// registered wholly or not at all.
bool can_copy(CUdeviceptr address, size_t size);
Place find_shared(CUdeviceptr address, size_t size, Access access);  // anything but pageable
bool mapped_range(CUdeviceptr address, Range* range);
CUdeviceptr new_device_memory(const void* content, size_t size);

}  // namespace fakecuda
