// The lock of the client's tables: handles, allocations, kernels, what is cached by content.
//
// It is held for a look-up only, never while a call waits. So fork() can take it first, and a child
// finds the tables whole and the lock free, whatever other threads were doing.
#pragma once

#include <mutex>

namespace mnemosyne {

std::mutex& tables_mutex();

}  // namespace mnemosyne
