// The channel between one client and the server, in one sealed shared memory file.
//
// How this works: the client writes frames into the ring and moves `head`; when a frame has taken
// effect the server moves `completed`, and its space is free again, so what is not completed can be
// executed by another worker. A position counts bytes since the channel was made, so it is also the
// frame's sequence number. A frame that wants an answer names a reply slot, where its thread waits.
// Whoever is about to sleep says so; the other side wakes only a sleeper. Each side's words have a
// cache line of their own. The server treats everything here as hostile: it copies first, then
// checks the copy.
#pragma once

#include <atomic>
#include <cstdint>

#include "futex.h"

namespace mnemosyne {

constexpr uint32_t kChannelMagic = 0x4d4e454d;  // "MNEM"
constexpr uint32_t kChannelLayout = 2;
constexpr uint64_t kRingBytes = 4 << 20;
constexpr uint32_t kMaxFrame = 1 << 20;
constexpr int kReplySlots = 64;
constexpr uint32_t kReplyBytes = 8176;
constexpr int kTextBytes = 496;

enum ReplyState : uint32_t {
  kReplyFree,
  kReplyWaited,
  kReplySleeping,  // its thread wants to be woken
  kReplyPolled,    // the GPU will write kReplyReady and can wake nobody: look again
  kReplyReady,
};

// Polled too: another worker may have to execute the frame again.
inline bool is_awaited(uint32_t state) { return state >= kReplyWaited && state <= kReplyPolled; }

struct ReplySlot {
  std::atomic<uint32_t> state;
  uint32_t size;
  uint64_t unused;
  char data[kReplyBytes];
};

// Precedes each frame; frames are padded to 8 bytes and never wrap around the ring's end.
struct Record {
  uint32_t size;  // of the frame, or kSkip: go on at the start of the ring
  int32_t reply;  // reply slot, or kNoReply
};
constexpr uint32_t kSkip = UINT32_MAX;
constexpr int32_t kNoReply = -1;
constexpr uint64_t kBlankEvent = 0;  // an event that every session has and nobody records

struct Channel {
  uint32_t magic;
  uint32_t layout;

  // Written by the client.
  alignas(64) std::atomic<uint64_t> head;
  std::atomic<uint32_t> client_waits;  // a thread sleeps on `progress`

  // Written by the server.
  alignas(64) std::atomic<uint64_t> completed;
  std::atomic<uint32_t> progress;  // counts up when `completed` moves and a thread waits
  alignas(64) std::atomic<uint32_t> server_sleeps;

  // The status page: the server is gone, and errors of calls that were not answered.
  alignas(64) std::atomic<uint32_t> dead;
  std::atomic<int32_t> error;       // a cudaError_t; the client takes it by exchanging 0
  std::atomic<int32_t> dead_code;   // a cudaError_t that all calls return; 0: the server is gone
  std::atomic<uint32_t> unsettled;  // the GPU may still be at work for this client
  char dead_text[kTextBytes];
  char error_text[kTextBytes];

  alignas(64) ReplySlot slots[kReplySlots];
  alignas(64) char ring[kRingBytes];
};

inline uint64_t padded(uint64_t size) { return (size + 7) & ~uint64_t{7}; }

// Wakes the client's threads that wait for a frame to complete.
inline void signal_progress(Channel* channel) {
  if (channel->client_waits.load(std::memory_order_seq_cst) == 0) return;
  channel->client_waits.store(0, std::memory_order_relaxed);
  channel->progress.fetch_add(1, std::memory_order_release);
  futex_wake(&channel->progress);
}

}  // namespace mnemosyne
