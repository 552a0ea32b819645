#include "lane.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <stdexcept>

namespace mnemosyne {

Lane::Lane(int channel_fd, int notify_fd)
    : channel_(map_channel(channel_fd)), notify_fd_(notify_fd) {
  // A lane may take over from a worker that died: what has not completed is taken again.
  tail_ = channel_->completed.load(std::memory_order_acquire) & ~uint64_t{7};
  thread_ = std::thread(&Lane::run, this);
}

Lane::~Lane() {
  close("the session has ended");
  munmap(channel_, sizeof(Channel));
}

void Lane::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the event loop's thread
  while (wait_for_frames()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      loop_owns_ = true;
    }
    eventfd_write(notify_fd_, 1);
    std::unique_lock<std::mutex> lock(mutex_);
    handed_back_.wait(lock, [this] { return !loop_owns_ || stop_; });
  }
  ended_ = true;
}

bool Lane::wait_for_frames() {
  while (!stop_) {
    if (channel_->head.load(std::memory_order_acquire) != tail_) return true;
    channel_->server_sleeps.store(1, std::memory_order_seq_cst);
    if (channel_->head.load(std::memory_order_seq_cst) == tail_ && !stop_) {
      futex_wait(&channel_->server_sleeps, 1, 0);
    }
    channel_->server_sleeps.store(0, std::memory_order_relaxed);
  }
  return false;
}

std::vector<TakenFrame> Lane::take(size_t limit) {
  std::vector<TakenFrame> frames;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!loop_owns_ || stop_) return frames;
  uint64_t head = channel_->head.load(std::memory_order_acquire);
  while (frames.size() < limit && take_one(head, &frames)) {
  }
  if (frames.empty()) {
    loop_owns_ = false;
    handed_back_.notify_one();
  }
  return frames;
}

// Moves past one record; false when the ring is empty.
bool Lane::take_one(uint64_t head, std::vector<TakenFrame>* frames) {
  if (tail_ == head) return false;
  uint64_t waiting = head - tail_;
  uint64_t offset = tail_ % kRingBytes;
  uint64_t to_end = kRingBytes - offset;
  if (waiting > kRingBytes || waiting % 8)
    throw std::invalid_argument("the ring's head is impossible");
  Record record;
  memcpy(&record, channel_->ring + offset, sizeof record);
  if (record.size == kSkip) {
    if (to_end > waiting) throw std::invalid_argument("a skip record past the ring's head");
    tail_ += to_end;
    return true;
  }
  uint64_t length = sizeof record + padded(record.size);
  if (record.size > kMaxFrame || length > waiting || length > to_end) {
    throw std::invalid_argument("a frame that does not fit into the ring");
  }
  if (record.reply < kNoReply || record.reply >= kReplySlots) {
    throw std::invalid_argument("a reply slot that does not exist");
  }
  frames->push_back(
      {record.reply, std::string(channel_->ring + offset + sizeof record, record.size)});
  tail_ += length;
  ends_.push_back(tail_);
  return true;
}

void Lane::done(size_t count) {
  if (count > ends_.size()) throw std::invalid_argument("more frames done than taken");
  if (count == 0) return;
  uint64_t position = ends_[count - 1];
  ends_.erase(ends_.begin(), ends_.begin() + count);
  channel_->completed.store(position, std::memory_order_seq_cst);
  signal_progress(channel_);
}

void Lane::reply(int slot, const char* data, size_t size) {
  if (slot < 0 || slot >= kReplySlots || size > kReplyBytes) {
    throw std::invalid_argument("a reply that does not fit");
  }
  ReplySlot& to = channel_->slots[slot];
  if (to.state.load(std::memory_order_acquire) != kReplyWaited) return;
  memcpy(to.data, data, size);
  to.size = size;
  to.state.store(kReplyReady, std::memory_order_release);
  futex_wake(&to.state);
}

static void copy_text(char* to, const char* text) {
  strncpy(to, text, kTextBytes - 1);
  to[kTextBytes - 1] = 0;
}

void Lane::fail(int code, const char* text) {
  if (channel_->error.load(std::memory_order_acquire) != 0) return;
  copy_text(channel_->error_text, text);
  channel_->error.store(code, std::memory_order_release);
}

void Lane::close(const char* reason) {
  if (stop_.exchange(true)) return;
  mark_dead(channel_, reason);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    handed_back_.notify_all();
  }
  while (!ended_) {  // again: a hostile client may put the thread to sleep once more
    channel_->server_sleeps.store(0, std::memory_order_seq_cst);
    futex_wake(&channel_->server_sleeps);
    std::this_thread::yield();
  }
  thread_.join();
}

Channel* map_channel(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0 || status.st_size != sizeof(Channel)) {
    throw std::runtime_error("the file is no channel");
  }
  void* p = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) throw std::runtime_error("the channel cannot be mapped");
  return static_cast<Channel*>(p);
}

void mark_dead(Channel* channel, const char* reason) {
  if (channel->dead.load(std::memory_order_acquire)) return;
  copy_text(channel->dead_text, reason);
  channel->dead.store(1, std::memory_order_seq_cst);
  for (ReplySlot& slot : channel->slots) futex_wake(&slot.state);
  channel->progress.fetch_add(1, std::memory_order_release);
  futex_wake(&channel->progress);
}

}  // namespace mnemosyne
