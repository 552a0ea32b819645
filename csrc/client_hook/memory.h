// What this client has allocated: to check pointers at the call and to describe them.
#pragma once

#include <map>

#include "types.h"

namespace mnemosyne {

// Ranges of addresses by start. Thread-safe.
class Ranges {
 public:
  void add(const void* start, size_t size);
  bool remove(const void* start);
  // The range that holds p; false if none does.
  bool find(const void* p, const void** start, size_t* size);

 private:
  std::map<const char*, size_t> ranges_;
};

Ranges& device_memory();
Ranges& imported_memory();  // cudaIpcOpenMemHandle
Ranges& pinned_memory();
Ranges& registered_memory();  // cudaHostRegister

// Whether n bytes (at least one) begin and end in device memory of this client's.
bool is_allocated(const void* p, size_t n);

}  // namespace mnemosyne
