// Functions of a library that is opened at run time.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace mnemosyne {

// False: the library has no such function.
template <typename F>
bool find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

// Throws std::runtime_error when it has none.
template <typename F>
void need(void* library, const char* name, F* function) {
  if (!find(library, name, function)) {
    throw std::runtime_error(std::string("a library is too old: it has no ") + name);
  }
}

}  // namespace mnemosyne
