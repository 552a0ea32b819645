// The server's end of a channel: a thread that waits for frames and hands them to the worker.
//
// How this works: the ring has one owner at a time. The lane's thread owns it while it waits; when
// frames arrive it passes ownership to the event loop and writes to the eventfd. The loop takes
// frames until the ring is empty, which passes ownership back. So a busy client costs no thread
// switches, and an idle one costs nothing.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../common/channel.h"

namespace mnemosyne {

struct TakenFrame {
  int reply;
  std::string bytes;
};

class Lane {
 public:
  // Throws std::runtime_error when the file is no channel.
  Lane(int channel_fd, int notify_fd);
  ~Lane();

  // Frames in order; none passes the ring back to the thread. Throws std::invalid_argument when the
  // client broke the ring's rules.
  std::vector<TakenFrame> take(size_t limit);
  void done(size_t count);
  void reply(int slot, const char* data, size_t size);
  void fail(int code, const char* text);
  void close(const char* reason);

 private:
  void run();
  bool wait_for_frames();
  bool take_one(uint64_t head, std::vector<TakenFrame>* frames);

  Channel* channel_;
  int notify_fd_;
  uint64_t tail_;
  std::deque<uint64_t> ends_;  // positions after the frames taken and not yet done
  std::mutex mutex_;
  std::condition_variable handed_back_;
  bool loop_owns_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

Channel* map_channel(int fd);
void mark_dead(Channel* channel, const char* reason);

}  // namespace mnemosyne
