#include "watch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace mnemosyne::cuda {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(2);
constexpr auto kCallsReturn = std::chrono::milliseconds(5);
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

Watch::Watch(void* context, int notify_fd) : context_(context), notify_fd_(notify_fd) {
  if (int code = driver().cuStreamCreateWithPriority(&stream_, kNonBlocking, 0)) {
    throw std::runtime_error(error_name(code));
  }
  thread_ = std::thread(&Watch::run, this);
}

Watch::~Watch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
  driver().cuStreamDestroy_v2(stream_);
}

void Watch::add(Watched* session) {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.push_back(session);
}

void Watch::remove(Watched* session) {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.erase(std::remove(sessions_.begin(), sessions_.end(), session), sessions_.end());
}

void Watch::wake() {
  if (busy_.exchange(true)) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
  }
  changed_.notify_one();
}

bool Watch::report(int code) {
  if (!note(code)) return false;
  wake();
  return true;
}

bool Watch::note(int code) {
  int none = 0;
  if (is_fatal(code)) fault_.compare_exchange_strong(none, code);
  return is_fatal(code);
}

std::vector<int> Watch::suspects() {
  std::lock_guard<std::mutex> lock(mutex_);
  return suspects_;
}

void Watch::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  driver().cuCtxSetCurrent(context_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    if (!busy_) {
      changed_.wait(lock);
      continue;
    }
    look();
    if (fault_) return blame(&lock);
    changed_.wait_for(lock, kInterval);
  }
}

// One look at everything.
void Watch::look() {
  busy_ = false;  // before looking: a session that starts meanwhile sets it again
  note(driver().cuStreamQuery(stream_));
  int at_work = 0;
  for (Watched* session : sessions_) at_work += !session->settle();
  if (at_work) busy_ = true;
  shared_ = at_work > 1;
}

// After a fault nothing gets done any more: what is unfinished now was at work then. Only lanes in
// the middle of a call, which will fail, take that back.
void Watch::blame(std::unique_lock<std::mutex>* lock) {
  changed_.wait_for(*lock, kCallsReturn, [this] { return stop_; });
  for (Watched* session : sessions_) {
    if (!session->settle()) suspects_.push_back(session->number());
  }
  eventfd_write(notify_fd_, 1);
}

}  // namespace mnemosyne::cuda
