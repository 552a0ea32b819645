#include "lane.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "../generated/calls.h"

namespace mnemosyne {
namespace {

constexpr uint64_t kPublishedAtOnce = 4 << 10;  // bytes of frames
constexpr auto kPause = std::chrono::microseconds(40);
constexpr auto kSpin = std::chrono::microseconds(1000);
constexpr auto kNap = std::chrono::microseconds(100);
constexpr unsigned kCpusToSpin = 4;  // on a smaller machine the client needs the CPU

// The message number of a frame, which is [number, ...]; 0 when it has none.
int number_of(const char* frame, size_t size) {
  Unpacker u(frame, size);
  bool filled = u.array() > 0;
  int64_t number = u.integer();
  return u.ok() && filled && number > 0 && number <= INT32_MAX ? static_cast<int>(number) : 0;
}

bool is_executors(const char* frame, size_t size) {
  return is_for_lane(static_cast<Number>(number_of(frame, size)));
}

}  // namespace

Lane::Lane(int channel_fd, int notify_fd, Executor* executor)
    : channel_(map_channel(channel_fd)), notify_fd_(notify_fd), executor_(executor) {
  // A lane may take over from a worker that died: what has not completed is taken again.
  tail_ = published_ = channel_->completed.load(std::memory_order_acquire) & ~uint64_t{7};
  if (executor_) {
    frame_.resize(kMaxFrame);
    try {
      executor_->open(channel_);
    } catch (...) {
      munmap(channel_, sizeof(Channel));
      throw;
    }
  }
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
  if (executor_) executor_->begin();
  while (wait_for_frames()) {
    if (!executor_ || !run_frames()) hand_over();
  }
  ended_ = true;
}

void Lane::hand_over() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    loop_owns_ = true;
  }
  eventfd_write(notify_fd_, 1);
  std::unique_lock<std::mutex> lock(mutex_);
  handed_back_.wait(lock, [this] { return !loop_owns_ || stop_; });
}

bool Lane::wait_for_frames() {
  while (!stop_) {
    if (executor_ && spin()) break;  // also when it was woken for frames that are yet to come
    if (channel_->head.load(std::memory_order_acquire) != tail_) return true;
    channel_->server_sleeps.store(1, std::memory_order_seq_cst);
    if (channel_->head.load(std::memory_order_seq_cst) == tail_ && !stop_) {
      futex_wait(&channel_->server_sleeps, 1, 0);
    }
    channel_->server_sleeps.store(0, std::memory_order_relaxed);
  }
  return !stop_;
}

// Waits without sleeping; false when it has been long enough.
bool Lane::spin() {
  static const bool worthwhile = std::thread::hardware_concurrency() >= kCpusToSpin;
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  bool paused = false;
  while (!stop_) {
    for (int i = 0; i < 64; ++i) {
      if (channel_->head.load(std::memory_order_acquire) != tail_) return true;
      __builtin_ia32_pause();
    }
    auto waited = Clock::now() - start;
    if (!paused && waited > kPause) {
      executor_->pause();
      paused = true;
    }
    if (waited > kSpin || !worthwhile) break;
  }
  executor_->rest();
  return false;
}

// Runs what the executor can; true when the ring is empty.
bool Lane::run_frames() {
  try {
    while (!stop_) {
      Peeked record;
      if (!peek(channel_->head.load(std::memory_order_acquire), &record)) break;
      if (record.reply != kNoReply) publish();  // it may take long; what came before has been done
      if (!run_one(record)) return publish(), false;
      tail_ = record.end;
      if (tail_ - published_ >= kPublishedAtOnce) publish();
    }
  } catch (const std::invalid_argument& error) {
    broken_ = error.what();
    return false;
  } catch (const ContextLost&) {
    publish();
    wait_for_end();
  }
  publish();
  return true;
}

// The frame stays in the ring for another worker, if the session lives that long.
void Lane::wait_for_end() {
  std::unique_lock<std::mutex> lock(mutex_);
  handed_back_.wait(lock, [this] { return stop_.load(); });
}

bool Lane::run_one(const Peeked& record) {
  memcpy(frame_.data(), record.frame, record.size);  // the client may still write to the ring
  if (!is_executors(frame_.data(), record.size)) return false;
  Unpacker u(frame_.data(), record.size);
  uint32_t values = u.array();
  auto number = static_cast<Number>(u.integer());
  if (values != 1 + field_count(number)) throw std::invalid_argument("a frame of another length");
  Answer answer(channel_, record.reply);
  executor_->run(number, u, &answer);
  this->answer(record.reply, answer);
  return true;
}

void Lane::answer(int slot, const Answer& answer) {
  if (slot == kNoReply) {
    if (answer.status) fail(answer.late_error, answer.text.c_str());
    return;
  }
  if (answer.later() && !answer.status) return;
  Packer reply;
  bool text = answer.status && !answer.text.empty();
  reply.array(answer.status ? 1 + text : 1 + answer.output_count);
  reply.integer(answer.status);
  if (text) reply.text(answer.text.c_str());
  if (!answer.status) reply.append(answer.outputs.data(), answer.outputs.size());
  this->reply(slot, reply.data(), reply.size());
}

void Lane::publish() {
  if (published_ == tail_) return;
  published_ = tail_;
  channel_->completed.store(tail_, std::memory_order_seq_cst);
  signal_progress(channel_);
}

std::vector<TakenFrame> Lane::take(size_t limit) {
  std::vector<TakenFrame> frames;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!loop_owns_ || stop_) return frames;
  if (!broken_.empty()) throw std::invalid_argument(broken_);
  uint64_t head = channel_->head.load(std::memory_order_acquire);
  Peeked record;
  while (frames.size() < limit && peek(head, &record)) {
    std::string bytes(record.frame, record.size);
    if (executor_ && is_executors(bytes.data(), bytes.size())) break;
    frames.push_back({record.reply, std::move(bytes)});
    tail_ = record.end;
    ends_.push_back(tail_);
  }
  if (frames.empty()) {
    loop_owns_ = false;
    handed_back_.notify_one();
  }
  return frames;
}

// The next record; false when the ring is empty.
bool Lane::peek(uint64_t head, Peeked* found) {
  for (;;) {
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
      continue;
    }
    uint64_t length = sizeof record + padded(record.size);
    if (record.size > kMaxFrame || length > waiting || length > to_end) {
      throw std::invalid_argument("a frame that does not fit into the ring");
    }
    if (record.reply < kNoReply || record.reply >= kReplySlots) {
      throw std::invalid_argument("a reply slot that does not exist");
    }
    *found = {record.reply, channel_->ring + offset + sizeof record, record.size, tail_ + length};
    return true;
  }
}

void Lane::done(size_t count) {
  if (count > ends_.size()) throw std::invalid_argument("more frames done than taken");
  if (count == 0) return;
  uint64_t position = ends_[count - 1];
  ends_.erase(ends_.begin(), ends_.begin() + count);
  published_ = position;
  channel_->completed.store(position, std::memory_order_seq_cst);
  signal_progress(channel_);
}

void Lane::reply(int slot, const char* data, size_t size) {
  if (slot < 0 || slot >= kReplySlots || size > kReplyBytes) {
    throw std::invalid_argument("a reply that does not fit");
  }
  ReplySlot& to = channel_->slots[slot];
  if (!is_awaited(to.state.load(std::memory_order_acquire))) return;
  memcpy(to.data, data, size);
  to.size = size;
  if (to.state.exchange(kReplyReady) == kReplySleeping) futex_wake(&to.state);
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
  mark_dead(channel_, 0, reason);
  if (executor_) executor_->stop();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    handed_back_.notify_all();
  }
  while (!ended_) {  // again: a hostile client may put the thread to sleep once more
    channel_->server_sleeps.store(0, std::memory_order_seq_cst);
    futex_wake(&channel_->server_sleeps);
    std::this_thread::sleep_for(kNap);  // a library may be waiting for the GPU
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

void mark_dead(Channel* channel, int code, const char* reason) {
  if (channel->dead.load(std::memory_order_acquire)) return;
  copy_text(channel->dead_text, reason);
  channel->dead_code.store(code, std::memory_order_relaxed);
  channel->dead.store(1, std::memory_order_seq_cst);
  for (ReplySlot& slot : channel->slots) futex_wake(&slot.state);
  channel->progress.fetch_add(1, std::memory_order_release);
  futex_wake(&channel->progress);
}

}  // namespace mnemosyne
