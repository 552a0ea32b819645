#include "handles.h"

#include <algorithm>

#include "tables.h"

namespace mnemosyne {
namespace {

constexpr size_t kMostParked = 256;

}  // namespace

void HandleState::clear() {
  last = 0;
  blas = blas_sent = {};
  capture = nullptr;
  captured = 0;
  in_graph = false;
  stream = nullptr;
  pointer_mode = 0;
  work_area = nullptr;
  content = 0;
  number = 0;
  unsent.clear();
}

bool HandleState::is_blank() const {
  return last.load(std::memory_order_acquire) == 0 && !is_interprocess();
}

void* Handles::add(unsigned flags, int priority) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  void* handle = reinterpret_cast<void*>(next_);
  next_ += 16;  // a stale handle is noticed: only parked ones are used again
  HandleState*& state = live_[handle];
  if (spare_.empty()) {
    state = new HandleState;
  } else {
    state = spare_.back();
    spare_.pop_back();
    state->clear();
  }
  state->flags = flags;
  if (!flags) had_plain_ = true;
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

bool Handles::park(void* handle) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = live_.find(handle);
  if (found == live_.end() || found->second->is_interprocess()) return false;
  if (found->second->in_graph) return false;
  if (parked_.size() == kMostParked) return false;
  parked_.push_back({handle, found->second});
  live_.erase(found);
  return true;
}

void* Handles::unpark(unsigned flags) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = std::find_if(parked_.rbegin(), parked_.rend(),
                            [flags](const Parked& p) { return p.state->flags == flags; });
  if (found == parked_.rend()) return nullptr;
  Parked taken = *found;
  parked_.erase(std::next(found).base());
  taken.state->clear();
  live_[taken.handle] = taken.state;
  return taken.handle;
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
