// A thread that looks after the context while any session has work on the GPU: it notices a fault
// that no call may ever report, and tells the status page when a session's work is done. It sleeps
// while all are idle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "driver.h"

namespace mnemosyne::cuda {

// One session, as the watch sees it; called by its thread.
class Watched {
 public:
  virtual ~Watched() = default;
  // Whether the session has no work on the GPU any more; says so on the status page.
  virtual bool settle() = 0;
  virtual int number() const = 0;
};

class Watch {
 public:
  // `context` is made current in the watch's thread; `notify_fd` is an eventfd that is written to
  // once, after a fault.
  Watch(void* context, int notify_fd);
  ~Watch();

  void add(Watched* session);
  void remove(Watched* session);
  // A session has work again.
  void wake();
  // A call of the driver has returned this code. Returns whether the context is lost.
  bool report(int code);

  // Whether several sessions had work on the GPU a moment ago.
  bool shared() const { return shared_.load(std::memory_order_relaxed); }
  int fault() const { return fault_.load(); }  // a CUresult; 0: none
  // Numbers of the sessions whose work was unfinished when the fault was noticed.
  std::vector<int> suspects();

 private:
  void run();
  void look();
  void blame(std::unique_lock<std::mutex>* lock);
  bool note(int code);

  void* context_;
  int notify_fd_;
  Stream stream_ = nullptr;  // of its own; nothing runs in it
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched*> sessions_;
  std::vector<int> suspects_;
  std::atomic<int> fault_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> shared_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mnemosyne::cuda
