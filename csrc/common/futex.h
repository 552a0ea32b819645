// Futexes on words in shared memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace mnemosyne {

// Sleeps while *word == expected; returns when woken, or after `milliseconds` (0: no limit).
inline void futex_wait(std::atomic<uint32_t>* word, uint32_t expected, int milliseconds) {
  timespec limit{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, milliseconds ? &limit : nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace mnemosyne
