// Every function this library exports, by name; generated from the specification.
#pragma once

#include <atomic>
#include <cstdint>

namespace mnemosyne {

struct Export {
  const char* name;
  void* function;
};

// The function that a program gets for a name (newest version of a versioned driver call), or null.
void* find_export(const char* name);

// The answer of a call that is not offered: says its name and the reason once, on stderr. A call of
// the runtime also becomes the thread's last error; the driver's next error text tells of its own.
int refuse(int code, const char* name, const char* reason, bool* said);
int refuse_driver(int code, const char* name, const char* reason, bool* said);
int refuse_runtime(int code, const char* name, const char* reason, bool* said);

// Calls the library's own function, which the program has loaded (see dl.h). `known` keeps it. It
// has two parameters at most, none a floating point number; 0 when there is no such library.
uint64_t pass_on(std::atomic<void*>* known, const char* library, const char* name, uint64_t a,
                 uint64_t b);

}  // namespace mnemosyne
