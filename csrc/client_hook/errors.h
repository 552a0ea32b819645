// Errors as a CUDA program sees them: a code per thread, and a sentence that says more than the
// code.
#pragma once

#include "types.h"

namespace mnemosyne {

// Remembers the code as the thread's last error and returns it. kSuccess leaves the last error
// alone.
cudaError_t report(int code);
// The same with a sentence, which cudaGetErrorString then tells for this code in this thread.
cudaError_t report(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
// What cuGetErrorString tells next of this code; the driver's calls leave the last error alone.
void explain(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
// As report, and prints the line to stderr the first time that `once` is false.
void say_once(bool* once, const char* format, ...) __attribute__((format(printf, 2, 3)));
// One line to stderr.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace mnemosyne
