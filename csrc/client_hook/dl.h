// The dynamic linker, past this library's own dlopen.
#pragma once

namespace mnemosyne {

// The function of this name in the CUDA library that the program has loaded under a file name with
// this prefix ("libcudnn.so"); null when it has loaded none, or the library lacks the function.
void* native_function(const char* library, const char* name);

// The linker's dlopen, which knows no library of this name but the machine's.
void* real_dlopen(const char* file, int flags);

}  // namespace mnemosyne
