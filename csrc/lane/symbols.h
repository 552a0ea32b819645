// Functions of a library that is opened at run time.
#pragma once

#include <dlfcn.h>

namespace mnemosyne {

// False: the library has no such function.
template <typename F>
bool find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace mnemosyne
