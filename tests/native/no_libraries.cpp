// What dl.cpp does for the client library. A test program has no library's calls to pass on, and
// must not have the dlopen that dl.cpp brings.
#include "../../csrc/client_hook/dl.h"

namespace mnemosyne {

void* native_function(const char*, const char*) { return nullptr; }

}  // namespace mnemosyne
