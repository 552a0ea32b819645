#include "errors.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "driver_codes.h"
#include "error_names.h"
#include "session.h"

namespace mnemosyne {
namespace {

struct ThreadErrors {
  int last;
  int detailed;  // the code that `detail` belongs to
  bool taken;    // the program has asked for the error: the next one is another
  char detail[640];
};
thread_local ThreadErrors errors;

const ErrorName* find_name(int code) {
  for (const ErrorName& name : kErrorNames) {
    if (name.code == code) return &name;
  }
  return nullptr;
}

}  // namespace

cudaError_t report(int code) {
  if (code == kSuccess || code == kNotReady) return code;
  if (errors.taken) errors.detailed = kSuccess;
  errors.taken = false;
  errors.last = code;
  return code;
}

// CUDA's own words first: programs look for them.
static void keep_detail(int code, const char* format, va_list args) {
  const ErrorName* name = find_name(code);
  size_t size = sizeof errors.detail;
  size_t used = name ? snprintf(errors.detail, size, "%s: ", name->text) : 0;
  vsnprintf(errors.detail + used, size - used, format, args);
  errors.detailed = code;
  errors.taken = false;
}

cudaError_t report(int code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  keep_detail(code, format, args);
  va_end(args);
  return report(code);
}

void explain(int code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  keep_detail(code, format, args);
  va_end(args);
}

static void print(const char* format, va_list args) {
  char line[640];
  int n = snprintf(line, sizeof line, "mnemosyne: ");
  n += vsnprintf(line + n, sizeof line - n - 1, format, args);
  if (n > static_cast<int>(sizeof line) - 2) n = sizeof line - 2;
  line[n++] = '\n';
  if (write(STDERR_FILENO, line, n) < 0) return;  // nobody left to tell
}

void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  print(format, args);
  va_end(args);
}

void say_once(bool* once, const char* format, ...) {
  if (__atomic_exchange_n(once, true, __ATOMIC_RELAXED)) return;
  va_list args;
  va_start(args, format);
  print(format, args);
  va_end(args);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaGetLastError() {
  int code = errors.last ? errors.last : take_late_error();
  errors.last = kSuccess;
  errors.taken = true;
  return code;
}

MNEMOSYNE_API cudaError_t cudaPeekAtLastError() {
  if (!errors.last) report(take_late_error());
  return errors.last;
}

MNEMOSYNE_API const char* cudaGetErrorString(cudaError_t code) {
  if (code != kSuccess && code == errors.detailed) return errors.detail;
  const ErrorName* name = find_name(code);
  return name ? name->text : "unrecognized error code";
}

MNEMOSYNE_API const char* cudaGetErrorName(cudaError_t code) {
  const ErrorName* name = find_name(code);
  return name ? name->name : "unrecognized error code";
}

// The driver's codes are the runtime's, as far as this library gives them out. A sentence is told
// once: most of the driver's failures have none, and must not be given an earlier one's.
MNEMOSYNE_API int cuGetErrorString(int code, const char** text) {
  if (!text) return kInvalidValue;
  const ErrorName* name = find_name(code);
  *text = name ? name->text : "unrecognized error code";
  if (code == kSuccess || errors.taken || code != driver_code(errors.detailed)) return kSuccess;
  *text = errors.detail;
  errors.taken = true;
  return kSuccess;
}

MNEMOSYNE_API int cuGetErrorName(int code, const char** text) {
  if (!text) return kInvalidValue;
  *text = cudaGetErrorName(code);
  return kSuccess;
}
