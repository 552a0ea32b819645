// The streams of one session, and how far the GPU has come with each.
//
// How this works: every operation put into a stream counts. A fence makes the GPU write the count
// into a word of pinned memory when it gets there; one comes after each kFenceEvery operations and
// when the client pauses, because a fence after every operation would slow the stream down. While
// the GPU has not come to a lone client's last one, only a long pause brings another. So counted ==
// finished means that a stream is idle, and it is known without asking the driver.
//
// The session's null stream is a stream of its own, for in one context a real one would make
// clients wait for each other. What CUDA says of the legacy null stream is kept among the session's
// streams with events: it waits for the blocking ones and they wait for it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver.h"

namespace mnemosyne::cuda {

struct SessionStream {
  SessionStream(Stream h, bool b, std::atomic<uint32_t>* word, size_t i)
      : handle(h), blocking(b), finished(word), index(i) {}
  Stream handle;
  bool blocking;                    // orders itself with the null stream
  std::atomic<uint32_t>* finished;  // the GPU writes here
  size_t index;                     // of that word
  std::atomic<uint32_t> counted{0};
  uint32_t fenced = 0;
  Event mark = nullptr;   // where another stream waits
  uint32_t marked = 0;    // `counted` when it was recorded
  uint32_t awaited = 0;   // `counted` that the null stream waits for already
  uint32_t ordered = 0;   // blocking: the null stream's count it waits for; see order()
  bool removed = false;   // by the client; it ends when its work is done
  bool captures = false;  // what is put into it does not run

  bool idle() const {
    return finished->load(std::memory_order_acquire) == counted.load(std::memory_order_relaxed);
  }
};

class Streams {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr uint32_t kFenceEvery = 512;     // one costs the GPU about 10 us
  static constexpr uint32_t kMostInFlight = 1000;  // the driver blocks a little above that

  // `words`: kMost words of pinned memory.
  explicit Streams(std::atomic<uint32_t>* words);

  // By the owner of the ring. Numbers are the client's; 0 is the null stream.
  bool add(uint64_t number, Stream handle, bool blocking);
  // The stream has no number any more, and is destroyed after its work; false: there is none.
  bool remove(uint64_t number);
  void destroy_all();
  SessionStream* find(uint64_t number);
  // From now on every number is this stream's; null: its own again.
  void redirect(SessionStream* all) { redirect_ = all; }
  // Whether every number is a stream's that captures.
  bool captures() const { return redirect_ && redirect_->captures; }
  // Whether the GPU has done its work. The null stream's is also what CUDA makes it wait for.
  bool is_done(SessionStream* s);

  // Before an operation: waits inside the GPU for what CUDA orders before it. A CUresult.
  int order(SessionStream* s);
  // An operation is about to go into the stream; and: it did not.
  static void count(SessionStream* s, uint32_t operations = 1);
  static void uncount(SessionStream* s);
  // After an operation: a fence, if one is due. A CUresult.
  int fence_sometimes(SessionStream* s);
  // Makes the GPU write down how far it has come, in all streams.
  int fence_all();
  // In those whose last fence it has come to: the others will not be idle soon.
  int fence_reached();
  // Makes `waiter` wait for all work of all streams so far.
  int join_all(Stream waiter);
  // Blocks until all streams have nothing left to do. A CUresult.
  int synchronize();

  // By any thread.
  bool idle();

 private:
  bool holds_up_null(const SessionStream& s) const;
  int mark(SessionStream* s);
  int fence(SessionStream* s);
  void sweep();
  void destroy(SessionStream* s);

  std::atomic<uint32_t>* words_;
  std::vector<std::unique_ptr<SessionStream>> all_;  // with those that are removed but at work
  std::unordered_map<uint64_t, SessionStream*> by_number_;
  std::vector<size_t> free_words_;
  std::mutex mutex_;  // of all_, against other threads' idle()
  SessionStream* null_ = nullptr;
  int blocking_ = 0;  // blocking streams besides the null stream
  uint64_t last_number_ = 0;
  SessionStream* last_ = nullptr;
  SessionStream* redirect_ = nullptr;
};

}  // namespace mnemosyne::cuda
