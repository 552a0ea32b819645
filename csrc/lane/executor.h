// What a lane runs without Python: the hot calls of one session.
#pragma once

#include <string>

#include "../common/channel.h"
#include "../common/msgpack.h"
#include "../generated/numbers.h"

namespace mnemosyne {

// The answer to one frame. Nobody may be waiting for it: then only an error leaves a trace.
class Answer {
 public:
  Answer(Channel* channel, int slot) : channel_(channel), slot_(slot) {}

  bool wanted() const { return slot_ != kNoReply; }
  bool later() const { return later_; }

  // `code` is what the call returns; `late` is the cudaError_t when nobody waits.
  void fail(int code, int late, std::string text) {
    status = code;
    late_error = late;
    this->text = std::move(text);
  }

  // Writes the reply: success with `size` bytes, or without outputs. Returns where the bytes go;
  // null: the slot is not waited for, or has no room.
  char* prepare(size_t size = 0) {
    ReplySlot& to = channel_->slots[slot_];
    if (!is_awaited(to.state.load(std::memory_order_acquire))) return nullptr;
    // So long that a few bytes are aligned for every type.
    constexpr char kZero[] = {'\xd3', 0, 0, 0, 0, 0, 0, 0, 0};
    const char list[] = {'\xdd', 0, 0, 0, static_cast<char>(size ? 2 : 1)};
    Packer reply;
    reply.append(list, sizeof list);
    reply.append(kZero, sizeof kZero);
    if (size) reply.bytes_length(size);
    if (reply.size() + size > kReplyBytes) return nullptr;
    memcpy(to.data, reply.data(), reply.size());
    to.size = reply.size() + size;
    prepared_ = true;
    return to.data + reply.size();
  }
  bool prepared() const { return prepared_; }
  // Somebody else (the GPU) will set the slot's state to kReplyReady.
  void complete_later() {
    later_ = true;
    std::atomic<uint32_t>& state = channel_->slots[slot_].state;
    if (state.exchange(kReplyPolled) == kReplySleeping) futex_wake(&state);
  }
  std::atomic<uint32_t>* state() { return &channel_->slots[slot_].state; }
  int slot() const { return slot_; }

  int status = 0;
  int late_error = 0;
  std::string text;
  Packer outputs;  // values after the status
  uint32_t output_count = 0;

 private:
  Channel* channel_;
  int slot_;
  bool prepared_ = false;
  bool later_ = false;
};

// The device is lost for everybody; the frame has not been executed.
struct ContextLost {};

// One session's; called by whoever owns the ring.
class Executor {
 public:
  virtual ~Executor() = default;
  // A lane is being made for this channel. Throws std::runtime_error when it cannot be served.
  virtual void open(Channel*) {}
  // The lane's thread begins.
  virtual void begin() {}
  // Executes a frame that is_for_lane(). Throws std::invalid_argument when it is not as the
  // specification says, ContextLost when no call can succeed any more.
  virtual void run(Number number, Unpacker& fields, Answer* answer) = 0;
  // No frame has come for a moment; and: for so long that the lane goes to sleep.
  virtual void pause() {}
  virtual void rest() {}
  // The lane is closing: whatever waits in here returns.
  virtual void stop() {}
};

}  // namespace mnemosyne
