// Memory and events that clients of one server show each other. A handle is a mark and the
// server's token.
#include <cstring>

#include "frame.h"
#include "memory.h"
#include "structs.h"
#include "tables.h"

using namespace mnemosyne;

namespace {

constexpr char kMark[] = "mnemosyn";
constexpr size_t kMarkBytes = 8, kTokenBytes = 16;

bool is_ours(const char* handle) { return !memcmp(handle, kMark, kMarkBytes); }

void put_token(Frame* frame, const char* handle) { frame->bytes(handle + kMarkBytes, kTokenBytes); }

int get_handle(char* out, Frame* question) {
  Reply reply;
  if (int code = question->call(&reply)) return code;
  size_t size;
  const char* token = reply.values().bytes(&size);
  if (!token || size != kTokenBytes) return kUnknown;
  memcpy(out, kMark, kMarkBytes);
  memcpy(out + kMarkBytes, token, kTokenBytes);
  return kSuccess;
}

// How often memory is open after `change`.
int count(void* p, int change) {
  static auto* opened = new std::unordered_map<void*, int>;
  std::lock_guard<std::mutex> lock(tables_mutex());
  return (*opened)[p] += change;
}

int open_memory(void** out, const char* handle) {
  Frame frame(Number::ipc_open_memory, 1);
  frame.leave_errors();
  put_token(&frame, handle);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  Unpacker& values = reply.values();
  *out = reinterpret_cast<void*>(values.integer());
  imported_memory().add(*out, values.integer());
  count(*out, 1);
  return kSuccess;
}

// Opened twice, it is open until it has been closed twice.
int close_memory(void* p) {
  const void* start;
  size_t size;
  if (!imported_memory().find(p, &start, &size) || start != p) return kInvalidValue;
  Frame frame(Number::ipc_close_memory, 1);
  frame.leave_errors();
  frame.pointer(p);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  if (count(p, -1) == 0) imported_memory().remove(p);
  return kSuccess;
}

}  // namespace

MNEMOSYNE_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* p) {
  const void* start;
  size_t size;
  if (!handle || !device_memory().find(p, &start, &size)) return report(kInvalidValue);
  Frame frame(Number::ipc_export_memory, 1);
  frame.pointer(start);
  return report(get_handle(handle->reserved, &frame));
}

MNEMOSYNE_API cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t handle, unsigned) {
  if (!p || !is_ours(handle.reserved)) return report(kInvalidValue);
  return report(open_memory(p, handle.reserved));
}

MNEMOSYNE_API cudaError_t cudaIpcCloseMemHandle(void* p) { return report(close_memory(p)); }

MNEMOSYNE_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  if (!handle) return report(kInvalidValue);
  Frame frame(Number::ipc_export_event, 1);
  frame.event_itself(event);
  return report(get_handle(handle->reserved, &frame));
}

MNEMOSYNE_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  constexpr unsigned kFlags = 6;  // cudaEventDisableTiming | cudaEventInterprocess
  if (!event || !is_ours(handle.reserved)) return report(kInvalidValue);
  Frame frame(Number::ipc_open_event, 2);
  frame.create(&events(), event, kFlags);
  put_token(&frame, handle.reserved);
  Reply reply;
  if (int code = frame.call(&reply)) return report(code);
  events().find(*event)->used_by(frame.position());  // its owner may have recorded it
  return kSuccess;
}
