#include "handles.h"

#include "tables.h"

namespace mnemosyne {

void* Handles::add(unsigned flags, int priority) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  void* handle = reinterpret_cast<void*>(next_);
  next_ += 16;  // never used twice, so a stale handle is noticed
  HandleState*& state = live_[handle];
  if (spare_.empty()) {
    state = new HandleState;
  } else {
    state = spare_.back();
    spare_.pop_back();
    state->last = 0;
    state->blas = state->blas_sent = {};
    state->capture = nullptr;
    state->captured = 0;
    state->stream = nullptr;
    state->pointer_mode = 0;
    state->content = 0;
  }
  state->flags = flags;
  state->priority = priority;
  return handle;
}

HandleState* Handles::find(void* handle) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = live_.find(handle);
  return found == live_.end() ? nullptr : found->second;
}

bool Handles::remove(void* handle) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = live_.find(handle);
  if (found == live_.end()) return false;
  spare_.push_back(found->second);
  live_.erase(found);
  return true;
}

// Leaked on purpose: stubs may run while the process exits.
Handles& streams() {
  static Handles* table = new Handles(0x10000000);
  return *table;
}

Handles& events() {
  static Handles* table = new Handles(0x20000000);
  return *table;
}

Handles& blas_handles() {
  static Handles* table = new Handles(0x30000000);
  return *table;
}

Handles& cudnn_handles() {
  static Handles* table = new Handles(0x40000000);
  return *table;
}

Handles& fft_plans() {
  static Handles* table = new Handles(0x50000000);
  return *table;
}

Handles& library_objects() {
  static Handles* table = new Handles(0x60000000);
  return *table;
}

HandleState* find_stream(cudaStream_t s) {
  static HandleState* session_stream = new HandleState;
  if (is_own_stream(s)) return session_stream;
  return streams().find(s);
}

}  // namespace mnemosyne
