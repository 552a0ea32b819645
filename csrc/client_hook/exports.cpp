#include "exports.h"

#include <cstring>

#include "../generated/export_table.h"
#include "dl.h"
#include "errors.h"

namespace mnemosyne {

void* find_export(const char* name) {
  // Sorted by name, so this is a binary search.
  size_t low = 0, high = sizeof kExports / sizeof *kExports;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(kExports[middle].name, name);
    if (order == 0) return kExports[middle].function;
    (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
  }
  return nullptr;
}

int refuse(int code, const char* name, const char* reason, bool* said) {
  say_once(said, "%s is not supported: %s", name, reason);
  return code;
}

int refuse_runtime(int code, const char* name, const char* reason, bool* said) {
  say_once(said, "%s is not supported: %s", name, reason);
  return report(code, "mnemosyne: %s is not supported: %s", name, reason);
}

int refuse_driver(int code, const char* name, const char* reason, bool* said) {
  say_once(said, "%s is not supported: %s", name, reason);
  explain(code, "mnemosyne: %s is not supported: %s", name, reason);
  return code;
}

uint64_t pass_on(std::atomic<void*>* known, const char* library, const char* name, uint64_t a,
                 uint64_t b) {
  void* function = known->load(std::memory_order_relaxed);
  if (!function) known->store(function = native_function(library, name), std::memory_order_relaxed);
  return function ? reinterpret_cast<uint64_t (*)(uint64_t, uint64_t)>(function)(a, b) : 0;
}

}  // namespace mnemosyne
