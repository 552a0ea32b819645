// Handles are numbers that the client invents: creating a stream or an event needs no round trip.
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "types.h"

namespace mnemosyne {

// A cuBLAS handle's settings, as cublasCreate leaves them.
struct BlasSettings {
  void* stream = nullptr;
  void* workspace = nullptr;  // null: the library's own
  size_t workspace_bytes = 0;
  int math_mode = 0;
  int pointer_mode = 0;
  int sm_count = 0;  // 0: the library's own choice

  // As nobody sets them: they have to be sent again.
  static BlasSettings unknown() {
    BlasSettings settings;
    settings.stream = reinterpret_cast<void*>(UINTPTR_MAX);
    return settings;
  }

  bool operator==(const BlasSettings& o) const {
    return stream == o.stream && workspace == o.workspace && workspace_bytes == o.workspace_bytes &&
           math_mode == o.math_mode && pointer_mode == o.pointer_mode && sm_count == o.sm_count;
  }
};

struct Capture;

struct HandleState {
  unsigned flags = 0;
  int priority = 0;
  // Position of the last frame that used (stream) or recorded (event) it.
  std::atomic<uint64_t> last{0};
  // cuBLAS handles only: as the program set them, and as the server knows them.
  BlasSettings blas, blas_sent;
  std::atomic<Capture*> capture{nullptr};  // streams: what their work goes into
  std::atomic<uint64_t> captured{0};       // events: the capture they were recorded in
  std::atomic<bool> in_graph{false};       // events: launches of a graph use it
  // Handles of other libraries: the stream that goes with their calls.
  void* stream = nullptr;
  int pointer_mode = 0;       // cuSPARSE handles only
  void* work_area = nullptr;  // cuFFT plans only
  // Other libraries' handles and descriptors: hash of the calls that made them what they are.
  uint64_t content = 0;
  // At the server; 0: not there yet. Of handles and descriptors of other libraries alone.
  uint64_t number = 0;
  std::vector<std::string> unsent;  // see descriptions.h

  // As if just made.
  void clear();

  bool is_interprocess() const { return flags & 4; }  // events: cudaEventInterprocess
  // Events: whether it cannot have been recorded since it was made, here or elsewhere.
  bool is_blank() const;

  // Two threads may use a stream at once, and say so in the other order.
  void used_by(uint64_t position) {
    uint64_t seen = last.load(std::memory_order_relaxed);
    while (seen < position && !last.compare_exchange_weak(seen, position)) {
    }
  }
};

// One kind of handle. Thread-safe. A removed handle's state is kept for a later handle and never
// freed: another thread may be in a call with it.
class Handles {
 public:
  explicit Handles(uint64_t first) : next_(first) {}
  void* add(unsigned flags, int priority);
  HandleState* find(void* handle);  // null: no such handle
  bool remove(void* handle);

  // Programs make and end events in every step. Some that were ended stay in the server, for the
  // next one with the same flags.
  bool park(void* handle);       // false: nothing has happened
  void* unpark(unsigned flags);  // null: there is none

  // Whether there has been one without flags. A stream like that, which blocks, may be at work
  // after its end.
  bool had_plain() const { return had_plain_.load(std::memory_order_relaxed); }

 private:
  struct Parked {
    void* handle;
    HandleState* state;
  };

  std::unordered_map<void*, HandleState*> live_;
  std::vector<HandleState*> spare_;
  std::vector<Parked> parked_;
  uint64_t next_;
  std::atomic<bool> had_plain_{false};
};

Handles& streams();
Handles& events();
Handles& blas_handles();
Handles& cudnn_handles();
Handles& fft_plans();        // their numbers are ints
Handles& library_objects();  // handles and descriptors of cuSOLVER and cuSPARSE
// Null, cudaStreamLegacy and cudaStreamPerThread are the session's own stream.
inline bool is_own_stream(cudaStream_t s) { return reinterpret_cast<uintptr_t>(s) <= 2; }
HandleState* find_stream(cudaStream_t s);

}  // namespace mnemosyne
