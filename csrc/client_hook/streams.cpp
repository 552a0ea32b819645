// Streams, events and what waits for them.
#include <thread>

#include "capture.h"
#include "frame.h"

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int);
MNEMOSYNE_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
MNEMOSYNE_API cudaError_t cudaStreamSynchronize(cudaStream_t);

namespace mnemosyne {
namespace {

// What has not been taken from the ring is not complete; of the rest the server knows.
int query(HandleState* state, Frame* question) {
  if (!state) return report(kInvalidResourceHandle);
  if (int code = question->uncapturable()) return report(code);
  if (int code = take_late_error()) return code;
  Session* s = attached();
  if (!s || state->last.load(std::memory_order_acquire) == 0) return kSuccess;
  if (!is_completed(s, state->last.load(std::memory_order_acquire))) {
    return s->channel->dead.load(std::memory_order_acquire) ? why_not() : int{kNotReady};
  }
  Reply reply;
  return question->call(&reply);
}

using HostFunction = void (*)(void*);

// The function runs after the stream's earlier work and before its later work: the caller waits.
int run_on_host(cudaStream_t stream, HostFunction function, void* data) {
  int code = cudaStreamSynchronize(stream);
  if (code) return code;
  std::thread(function, data).join();  // not in the caller's thread: it may hold locks
  return kSuccess;
}

}  // namespace
}  // namespace mnemosyne

MNEMOSYNE_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}

MNEMOSYNE_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

MNEMOSYNE_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Frame question(Number::stream_query, 1);
  question.stream(stream);
  return query(find_stream(stream), &question);
}

MNEMOSYNE_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (!priority) return report(kInvalidValue);
  HandleState* state = find_stream(stream);
  if (!state) return report(kInvalidResourceHandle);
  *priority = state->priority;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  if (!flags) return report(kInvalidValue);
  HandleState* state = find_stream(stream);
  if (!state) return report(kInvalidResourceHandle);
  *flags = state->flags;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  if (!id) return report(kInvalidValue);
  if (!find_stream(stream)) return report(kInvalidResourceHandle);
  *id = reinterpret_cast<unsigned long long>(stream);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  if (!device) return report(kInvalidValue);
  if (!find_stream(stream)) return report(kInvalidResourceHandle);
  *device = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, HostFunction function,
                                             void* data) {
  if (!function) return report(kInvalidValue);
  return run_on_host(stream, function, data);
}

using StreamCallback = void (*)(cudaStream_t, cudaError_t, void*);
struct CallbackArguments {
  StreamCallback function;
  cudaStream_t stream;
  void* data;
};

MNEMOSYNE_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, StreamCallback function,
                                                void* data, unsigned) {
  if (!function) return report(kInvalidValue);
  CallbackArguments arguments{function, stream, data};
  return run_on_host(
      stream,
      [](void* p) {
        auto* a = static_cast<CallbackArguments*>(p);
        a->function(a->stream, kSuccess, a->data);
      },
      &arguments);
}

MNEMOSYNE_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

MNEMOSYNE_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                   unsigned flags) {
  HandleState* state = events().find(event);
  HandleState* where = find_stream(stream);
  if (state && where && record_captured(state, where)) return kSuccess;
  Frame frame(Number::event_record, 3);
  frame.event_itself(event);
  frame.stream(stream);
  frame.unsigned_integer(flags);
  int code = frame.post();
  if (state) state->used_by(frame.position());
  return report(code);
}

MNEMOSYNE_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

MNEMOSYNE_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  Frame question(Number::event_query, 1);
  question.event(event);
  return query(events().find(event), &question);
}
