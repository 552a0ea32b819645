// The server's end of a channel: a thread that waits for frames and runs them, or hands them to the
// worker's event loop.
//
// How this works: the ring has one owner at a time. The lane's thread owns it while it waits, and
// runs what its executor can. When another frame comes it passes ownership to the event loop and
// writes to the eventfd. The loop takes frames until the ring is empty or the next one is the
// executor's, which passes ownership back. So frames take effect in order, a busy client costs no
// thread switches, and an idle one costs nothing: the thread spins for a moment, then sleeps.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../common/channel.h"
#include "executor.h"

namespace mnemosyne {

struct TakenFrame {
  int reply;
  std::string bytes;
};

class Lane {
 public:
  // Without an executor every frame is the event loop's. Throws std::runtime_error when the file is
  // no channel, or the executor cannot serve it.
  Lane(int channel_fd, int notify_fd, Executor* executor = nullptr);
  ~Lane();

  // Frames in order; none passes the ring back to the thread. Throws std::invalid_argument when the
  // client broke the ring's rules.
  std::vector<TakenFrame> take(size_t limit);
  void done(size_t count);
  void reply(int slot, const char* data, size_t size);
  void fail(int code, const char* text);
  void close(const char* reason);

 private:
  // One record of the ring; `end` is the position after it.
  struct Peeked {
    int reply;
    const char* frame;
    uint32_t size;
    uint64_t end;
  };

  void run();
  void hand_over();
  bool wait_for_frames();
  bool spin();
  bool run_frames();
  void wait_for_end();
  bool run_one(const Peeked& record);
  void answer(int slot, const Answer& answer);
  bool peek(uint64_t head, Peeked* record);
  void publish();

  Channel* channel_;
  int notify_fd_;
  Executor* executor_;
  uint64_t tail_;
  uint64_t published_;
  std::vector<char> frame_;    // a copy of the frame being executed
  std::string broken_;         // how the client broke the rules
  std::deque<uint64_t> ends_;  // positions after the frames taken and not yet done
  std::mutex mutex_;
  std::condition_variable handed_back_;
  bool loop_owns_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

Channel* map_channel(int fd);
// `code`: the cudaError_t that the client's calls return from now on; 0 for "the server is gone".
void mark_dead(Channel* channel, int code, const char* reason);

}  // namespace mnemosyne
