// Handles are numbers that the client invents: creating a stream or an event needs no round trip.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "types.h"

namespace mnemosyne {

struct HandleState {
  unsigned flags = 0;
  int priority = 0;
  std::atomic<uint64_t> last{
      0};  // position of the last frame that used (stream) or recorded (event) it
  // cuBLAS handles only.
  struct {
    void* stream = nullptr;
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    int math_mode = 0;
    int pointer_mode = 0;
    bool changed = false;
  } blas;
};

// One kind of handle. Thread-safe; a state stays valid until its handle is removed.
class Handles {
 public:
  explicit Handles(uint64_t first) : next_(first) {}
  void* add(unsigned flags, int priority);
  HandleState* find(void* handle);  // null: no such handle
  bool remove(void* handle);

 private:
  std::mutex mutex_;
  std::unordered_map<void*, HandleState> live_;
  uint64_t next_;
};

Handles& streams();
Handles& events();
Handles& blas_handles();
// Null, cudaStreamLegacy and cudaStreamPerThread are the session's own stream.
HandleState* find_stream(cudaStream_t s);

}  // namespace mnemosyne
