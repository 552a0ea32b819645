// Streams, events and what waits for them.
#include "streams.h"

#include "capture.h"
#include "frame.h"
#include "host_functions.h"

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int);
MNEMOSYNE_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned);

namespace mnemosyne {
namespace {

// cudaEventRecordExternal and cudaEventWaitExternal: launches of the graph do it, not the capture.
constexpr unsigned kExternal = 1;

// Whether the work that the client has sent tells nothing of it: others record an interprocess
// event, and the null stream waits for the blocking ones.
bool depends_on_others(const HandleState* state) {
  return state->is_interprocess() || (state == find_stream(nullptr) && streams().had_plain());
}

// What has not been taken from the ring is not complete; of the rest the server knows.
int query(HandleState* state, Frame* question) {
  if (int code = check_process()) return code;
  if (!state) return report(kInvalidResourceHandle);
  if (int code = question->uncapturable()) return report(code);
  if (int code = take_late_error()) return code;
  Session* s = attached();
  uint64_t last = state->last.load(std::memory_order_acquire);
  if (!s || (last == 0 && !depends_on_others(state))) return kSuccess;
  if (!is_completed(s, last)) {
    return s->channel->dead.load(std::memory_order_acquire) ? why_not() : int{kNotReady};
  }
  Reply reply;
  return question->call(&reply);
}

}  // namespace

// The lane answers a question at once, when it has taken the frames before it.
int record_sent(cudaEvent_t event, uint64_t position) {
  HandleState* state = events().find(event);
  if (!state || !position) return kSuccess;
  state->used_by(position);
  if (!state->is_interprocess()) return kSuccess;
  Frame question(Number::event_query, 1);
  question.event_itself(event);
  Reply reply;
  int code = question.call(&reply);
  return code == kNotReady ? kSuccess : code;
}

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
  HandleState* state = find_stream(stream);
  if (state && !state->capture && is_held_up(state)) return kNotReady;
  return query(state, &question);
}

MNEMOSYNE_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (!priority) return report(kInvalidValue);
  if (int code = check_process()) return code;
  HandleState* state = find_stream(stream);
  if (!state) return report(kInvalidResourceHandle);
  *priority = state->priority;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  if (!flags) return report(kInvalidValue);
  if (int code = check_process()) return code;
  HandleState* state = find_stream(stream);
  if (!state) return report(kInvalidResourceHandle);
  *flags = state->flags;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  if (!id) return report(kInvalidValue);
  if (int code = check_process()) return code;
  if (!find_stream(stream)) return report(kInvalidResourceHandle);
  *id = reinterpret_cast<unsigned long long>(stream);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  if (!device) return report(kInvalidValue);
  if (int code = check_process()) return code;
  if (!find_stream(stream)) return report(kInvalidResourceHandle);
  *device = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

MNEMOSYNE_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                   unsigned flags) {
  HandleState* state = events().find(event);
  HandleState* where = find_stream(stream);
  bool external = flags & kExternal && state && where;
  if (external && !where->capture) return report(kInvalidValue);
  if (state && where && !external && record_captured(state, where)) return kSuccess;
  Frame frame(Number::event_record, 3);
  frame.event_itself(event);
  frame.stream(stream);
  frame.unsigned_integer(flags);
  int code = frame.post();
  if (external) use_in_graph(state, where, true);
  int recorded = record_sent(event, frame.position());
  return report(code ? code : recorded);
}

MNEMOSYNE_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

MNEMOSYNE_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                              unsigned flags) {
  HandleState* state = events().find(event);
  HandleState* where = find_stream(stream);
  bool external = flags & kExternal && state && where;
  if (external && !where->capture) return report(kInvalidValue);
  Frame frame(Number::cudaStreamWaitEvent, 3);
  frame.stream(stream);
  external ? frame.event_itself(event) : frame.event(event);
  frame.unsigned_integer(flags);
  if (external) use_in_graph(state, where, false);
  return frame.post();
}

MNEMOSYNE_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  Frame question(Number::event_query, 1);
  question.event(event);
  return query(events().find(event), &question);
}
