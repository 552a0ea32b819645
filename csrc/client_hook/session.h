// The client's side of a session: finding the server, attaching on first need, the ring, replies.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "../common/channel.h"
#include "types.h"

namespace mnemosyne {

// What the server says of the device this client sees (one round trip answers all later queries).
struct Device {
  uint64_t quota;
  int cuda;  // e.g. 13000
  std::string name;
  std::string uuid;
  std::string properties;       // a cudaDeviceProp
  std::vector<int> attributes;  // by cudaDeviceAttr
};

struct Session {
  Channel* channel;
  int socket;  // held open for the session's life; hangs up when the supervisor dies
  char* host;  // the host slot: staging, then pinned memory
  uint64_t host_bytes;
  uint64_t staging_bytes;
  uint64_t device_base;
  uint64_t device_bytes;
  std::mutex write;   // one total order of frames
  std::mutex errors;  // an error's code and sentence go to one thread
  uint64_t head = 0;

  bool is_device(const void* p, size_t n = 1) const {
    return inside(p, n, device_base, device_bytes);
  }
  bool is_pinned(const void* p, size_t n = 1) const {
    return inside(p, n, reinterpret_cast<uint64_t>(host) + staging_bytes,
                  host_bytes - staging_bytes);
  }
  uint64_t host_offset(const void* p) const {
    return reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(host);
  }

 private:
  static bool inside(const void* p, size_t n, uint64_t base, uint64_t size) {
    uint64_t offset = reinterpret_cast<uint64_t>(p) - base;
    return offset < size && n <= size - offset;
  }
};

// The device's description, asked for on first use; takes no client slot. Null when there is no
// server or its device is hidden (said once on stderr), or the process is no longer allowed to ask.
const Device* device();
// The same for NVML, which CUDA_VISIBLE_DEVICES does not concern.
const Device* described();
// Why device() or session() returned null, as a cudaError_t with its sentence reported.
cudaError_t why_not();

// This process is a child, made by fork, of one that has used the GPU.
extern std::atomic<bool> forked;
// What such a child gets from every call; calls that are answered here have to ask.
inline cudaError_t check_process() {
  return forked.load(std::memory_order_relaxed) ? why_not() : int{kSuccess};
}

// The session; attaches on first use. Null: see why_not().
Session* session();
// The session if there is one already; never attaches.
Session* attached();

// Puts a frame into the ring; returns its position (the end of its record), or 0 when the server is
// gone.
uint64_t send_frame(Session* s, const char* data, size_t size, int reply_slot);
// Waits for the reply slot; false when the server is gone.
bool wait_reply(Session* s, int slot);
int acquire_reply_slot(Session* s);
void release_reply_slot(Session* s, int slot);
// Waits for a reply that nobody reads, and frees its slot; false when the server is gone.
bool retire_slot(Session* s, int slot);
// Whether the frame at this position has been executed (by a GPU: handed to it).
inline bool is_completed(Session* s, uint64_t position) {
  return s->channel->completed.load(std::memory_order_acquire) >= position;
}

// An asynchronous error that the server latched, taken once; kSuccess if there is none.
int take_late_error();

}  // namespace mnemosyne
