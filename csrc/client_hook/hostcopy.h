// Copies between host buffers, by several threads when it is worth it.
#pragma once

#include <cstddef>

namespace mnemosyne {

// memcpy. Large copies are shared with helper threads, which start on first need and then sleep.
void copy_on_host(void* to, const void* from, size_t n);

}  // namespace mnemosyne
