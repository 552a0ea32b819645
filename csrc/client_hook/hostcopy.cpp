#include "hostcopy.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "../common/futex.h"

namespace mnemosyne {
namespace {

constexpr size_t kSlice = 256 << 10;
constexpr size_t kWorthSharing = 1 << 20;
constexpr int kHelpers = 3;
constexpr int kCpusToShare = 8;  // on a smaller machine the program needs the others
constexpr int kSpins = 4000;     // until the next piece of the same copy usually comes

// One copy at a time: its slices are taken by whoever is free.
struct Pool {
  std::mutex mutex;  // held by the thread whose copy it is
  std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<char*> to{nullptr};
  std::atomic<const char*> from{nullptr};
  std::atomic<size_t> n{0};
  // Which copy it is (upper half) and the next slice to take (lower half).
  std::atomic<uint64_t> next{UINT32_MAX};
  std::atomic<size_t> done{0};
};

// Never destroyed: helpers outlive everything else.
Pool& pool() {
  static Pool* one = new Pool;
  return *one;
}

// Copies slices of this generation until none is left.
void take_slices(Pool* p, uint32_t generation) {
  for (;;) {
    uint64_t next = p->next.load(std::memory_order_acquire);
    size_t start = (next & UINT32_MAX) * kSlice, n = p->n;
    if (next >> 32 != generation || start >= n) return;
    char* to = p->to + start;
    const char* from = p->from + start;
    size_t size = n - start < kSlice ? n - start : kSlice;
    if (!p->next.compare_exchange_weak(next, next + 1)) continue;
    memcpy(to, from, size);
    p->done.fetch_add(size, std::memory_order_release);
  }
}

void* help(void*) {
  Pool* p = &pool();
  uint32_t seen = 0;
  for (;;) {
    uint32_t generation = p->generation.load(std::memory_order_acquire);
    for (int i = 0; i < kSpins && generation == seen; ++i) {
      __builtin_ia32_pause();
      generation = p->generation.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      p->sleepers.fetch_add(1);
      futex_wait(&p->generation, seen, 0);
      p->sleepers.fetch_sub(1);
      continue;
    }
    seen = generation;
    take_slices(p, generation);
  }
  return nullptr;
}

bool start_helpers() {
  if (sysconf(_SC_NPROCESSORS_ONLN) < kCpusToShare) return false;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the program's own threads
  int started = 0;
  for (int i = 0; i < kHelpers; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, help, nullptr) != 0) break;
    pthread_detach(thread);
    ++started;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started > 0;
}

bool have_helpers() {
  static const bool started = start_helpers();
  return started;
}

}  // namespace

void copy_on_host(void* to, const void* from, size_t n) {
  Pool* p = &pool();
  if (n < kWorthSharing || !have_helpers() || !p->mutex.try_lock()) {
    memcpy(to, from, n);
    return;
  }
  uint32_t generation = p->generation.load(std::memory_order_relaxed) + 1;
  p->next.store(UINT32_MAX);  // a helper that comes late to the last copy takes nothing of this one
  p->to = static_cast<char*>(to);
  p->from = static_cast<const char*>(from);
  p->n = n;
  p->done.store(0, std::memory_order_relaxed);
  p->next.store(uint64_t{generation} << 32, std::memory_order_release);
  p->generation.store(generation, std::memory_order_seq_cst);
  if (p->sleepers.load(std::memory_order_seq_cst)) futex_wake(&p->generation);
  take_slices(p, generation);
  while (p->done.load(std::memory_order_acquire) != n) __builtin_ia32_pause();
  p->mutex.unlock();
}

}  // namespace mnemosyne
