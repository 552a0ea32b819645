// Functions of the program's that run between the work of a stream: cudaLaunchHostFunc.
//
// How this works: the call returns at once. A thread waits until the GPU has done the stream's
// earlier work, and then runs the function. Nothing in the GPU waits for that: a thread that has
// something for the stream meanwhile waits before it sends it. Functions that follow one another
// share a thread, so those of one stream never wait for the program.
#include "host_functions.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "frame.h"

namespace mnemosyne {

std::atomic<int> host_functions{0};

namespace {

using HostFunction = void (*)(void*);
using StreamCallback = void (*)(cudaStream_t, cudaError_t, void*);

struct Task {
  HostFunction function;    // runs if the work before it succeeded; or
  StreamCallback callback;  // is told
  cudaStream_t stream;
  void* data;

  void run(int code) const {
    if (callback)
      callback(stream, code, data);
    else if (!code)
      function(data);
  }
};

struct Pending {
  const HandleState* stream;
  bool blocking;  // the stream may be destroyed meanwhile
  std::deque<Task> tasks;
};

// Whether CUDA orders what goes into a stream behind what is in another one.
bool comes_before(const Pending& earlier, const HandleState* stream) {
  const HandleState* null = find_stream(nullptr);
  if (earlier.stream == stream) return true;
  return earlier.blocking && !stream->flags && (earlier.stream == null || stream == null);
}

thread_local bool in_function = false;

// A function would wait for itself; a forked child has no threads, and none waits while it exits.
bool may_wait() { return !in_function && attached(); }

class Functions {
 public:
  // To those that wait already; false: there are none.
  bool join(const HandleState* stream, const Task& task) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto same = [stream](const Pending* p) { return p->stream == stream; };
    auto found = std::find_if(all_.begin(), all_.end(), same);
    if (found == all_.end()) return false;
    (*found)->tasks.push_back(task);
    return true;
  }
  // Which run once the reply has come to the slot.
  void add(const HandleState* stream, const Task& task, Session* s, int slot) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* pending = new Pending{stream, !stream->flags, {task}};
    all_.push_back(pending);
    ++host_functions;
    std::thread([this, pending, s, slot] { run(pending, s, slot); }).detach();
  }
  template <typename Condition>
  void wait(Condition holds_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    returned_.wait(lock, [&] { return std::none_of(all_.begin(), all_.end(), holds_up); });
  }
  bool any_before(const HandleState* stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(all_.begin(), all_.end(),
                       [stream](const Pending* p) { return comes_before(*p, stream); });
  }

 private:
  void run(Pending* pending, Session* s, int slot) {
    int code = retire_slot(s, slot) ? kSuccess : kDevicesUnavailable;
    in_function = true;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!pending->tasks.empty()) {
      Task task = pending->tasks.front();
      lock.unlock();
      task.run(code);
      lock.lock();
      pending->tasks.pop_front();
    }
    all_.erase(std::find(all_.begin(), all_.end(), pending));
    --host_functions;
    delete pending;
    returned_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable returned_;
  std::deque<Pending*> all_;
};

// Never destroyed: a function may run while the process exits.
Functions& functions() {
  static auto* one = new Functions;
  return *one;
}

int launch_host(const Task& task) {
  HandleState* stream = find_stream(task.stream);
  if (!stream) return kInvalidResourceHandle;
  if (!stream->capture && functions().join(stream, task)) return kSuccess;
  Frame earlier_work(Number::cudaStreamSynchronize, 1);
  earlier_work.stream(task.stream);
  if (int code = earlier_work.begin()) return code;
  functions().add(stream, task, session(), earlier_work.take_slot());
  return kSuccess;
}

}  // namespace

void wait_for_functions(const HandleState* stream) {
  if (!stream || !may_wait()) return;
  functions().wait([stream](const Pending* p) { return comes_before(*p, stream); });
}

void wait_for_all_functions() {
  if (may_wait()) functions().wait([](const Pending*) { return true; });
}

bool is_held_up(const HandleState* stream) {
  return host_functions.load(std::memory_order_acquire) && may_wait() &&
         functions().any_before(stream);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, HostFunction function,
                                             void* data) {
  if (!function) return report(kInvalidValue);
  return report(launch_host({function, nullptr, stream, data}));
}

MNEMOSYNE_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, StreamCallback callback,
                                                void* data, unsigned) {
  if (!callback) return report(kInvalidValue);
  return report(launch_host({nullptr, callback, stream, data}));
}

MNEMOSYNE_API cudaError_t cudaDeviceSynchronize() {
  if (host_functions.load(std::memory_order_acquire)) wait_for_all_functions();
  Frame frame(Number::cudaDeviceSynchronize, 0);
  Reply reply;
  return frame.call(&reply);
}
