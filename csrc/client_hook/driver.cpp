// The driver API's queries. There is one device and one context, which no client owns.
#include <dlfcn.h>

#include <cstring>

#include "errors.h"
#include "exports.h"
#include "frame.h"
#include "structs.h"

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaGetDeviceCount(int*);
MNEMOSYNE_API cudaError_t cudaDeviceGetAttribute(int*, int, int);
MNEMOSYNE_API cudaError_t cudaDeviceSynchronize();
MNEMOSYNE_API cudaError_t cudaDeviceGetLimit(size_t*, int);
MNEMOSYNE_API cudaError_t cudaDeviceSetLimit(int, size_t);

namespace {

void* const kContext = reinterpret_cast<void*>(0x4d4e);
thread_local void* current_context = nullptr;

int copy_uuid(char* uuid, int ordinal) {
  if (!device()) return why_not();
  if (ordinal != 0) return kInvalidDevice;
  memset(uuid, 0, 16);
  memcpy(uuid, device()->uuid.data(), device()->uuid.size() < 16 ? device()->uuid.size() : 16);
  return kSuccess;
}

// What cudaGetDriverEntryPoint and cuGetProcAddress write to their result.
enum EntryPointStatus { kFound, kNotFound };

int entry_point(const char* symbol, void** function, int* status) {
  if (!symbol || !function) return kInvalidValue;
  *function = find_export(symbol);
  if (status) *status = *function ? kFound : kNotFound;
  return kSuccess;
}

}  // namespace

MNEMOSYNE_API int cuInit(unsigned) {
  return !check_process() && device() ? int{kSuccess} : why_not();
}

MNEMOSYNE_API int cuDriverGetVersion(int* version) {
  if (!version) return kInvalidValue;
  *version = device() ? device()->cuda : 0;
  return kSuccess;
}

MNEMOSYNE_API int cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }

MNEMOSYNE_API int cuDeviceGet(int* handle, int ordinal) {
  if (!handle) return kInvalidValue;
  if (!device()) return why_not();
  *handle = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}

MNEMOSYNE_API int cuDeviceGetAttribute(int* value, int id, int ordinal) {
  return cudaDeviceGetAttribute(value, id, ordinal);
}

MNEMOSYNE_API int cuDeviceComputeCapability(int* major, int* minor, int ordinal) {
  if (!major || !minor) return kInvalidValue;
  int code = cudaDeviceGetAttribute(major, 75, ordinal);
  return code ? code : cudaDeviceGetAttribute(minor, 76, ordinal);
}

MNEMOSYNE_API int cuDeviceGetName(char* name, int size, int ordinal) {
  if (!device()) return why_not();
  if (ordinal != 0) return kInvalidDevice;
  if (!name || size < 1) return kInvalidValue;
  strncpy(name, device()->name.c_str(), size - 1);
  name[size - 1] = 0;
  return kSuccess;
}

MNEMOSYNE_API int cuDeviceGetUuid(char* uuid, int ordinal) {
  if (!uuid) return kInvalidValue;
  return copy_uuid(uuid, ordinal);
}
MNEMOSYNE_API int cuDeviceGetUuid_v2(char* uuid, int ordinal) {
  if (!uuid) return kInvalidValue;
  return copy_uuid(uuid, ordinal);
}

MNEMOSYNE_API int cuDeviceTotalMem_v2(size_t* bytes, int ordinal) {
  if (!bytes) return kInvalidValue;
  if (!device()) return why_not();
  cudaDeviceProp properties{};
  memcpy(&properties, device()->properties.data(), sizeof properties);
  *bytes = properties.totalGlobalMem;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}

// "Active" means that this process uses the device: torch asks before it would create a context.
MNEMOSYNE_API int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  if (!flags || !active) return kInvalidValue;
  *flags = 0;
  *active = attached() != nullptr;
  return kSuccess;
}

MNEMOSYNE_API int cuDevicePrimaryCtxRetain(void** context, int) {
  if (!context) return kInvalidValue;
  *context = kContext;
  return session() ? kSuccess : why_not();
}

MNEMOSYNE_API int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }

MNEMOSYNE_API int cuCtxGetCurrent(void** context) {
  if (!context) return kInvalidValue;
  *context = current_context ? current_context : attached() ? kContext : nullptr;
  return kSuccess;
}

MNEMOSYNE_API int cuCtxSetCurrent(void* context) {
  if (context && context != kContext) return kInvalidValue;
  current_context = context;
  return kSuccess;
}

MNEMOSYNE_API int cuCtxGetDevice(int* ordinal) {
  if (!ordinal) return kInvalidValue;
  *ordinal = 0;
  return kSuccess;
}

// A library with a CUDA runtime of its own looks here for tables that no header describes. NVRTC
// and NVML look too, and do without.
MNEMOSYNE_API int cuGetExportTable(const void** table, const void*) {
  if (!table) return kInvalidValue;
  static bool said;
  Dl_info caller;
  *table = nullptr;
  bool known = dladdr(__builtin_return_address(0), &caller);
  if (known && !strstr(caller.dli_fname, "libnvrtc") && !strstr(caller.dli_fname, "libnvidia-ml")) {
    say_once(&said, "%s has a CUDA runtime of its own, which is not supported", caller.dli_fname);
  }
  return kSymbolNotFound;
}

MNEMOSYNE_API int cuLogsRegisterCallback(void*, void*, void** handle) {
  if (handle) *handle = kContext;
  return kSuccess;
}

MNEMOSYNE_API int cuLogsUnregisterCallback(void*) { return kSuccess; }

MNEMOSYNE_API int cuCtxGetLimit(size_t* value, int limit) {
  return cudaDeviceGetLimit(value, limit);
}

MNEMOSYNE_API int cuCtxSetLimit(int limit, size_t value) {
  return cudaDeviceSetLimit(limit, value);
}

// `count` words of 32 bits.
MNEMOSYNE_API int cuMemsetD32Async(uint64_t p, unsigned value, size_t count, cudaStream_t stream) {
  Frame frame(Number::memset_words, 4, Codes::kDriver);
  frame.pointer(reinterpret_cast<void*>(p));
  frame.unsigned_integer(value);
  frame.unsigned_integer(count);
  frame.stream(stream);
  return frame.post();
}

MNEMOSYNE_API int cuCtxSynchronize() { return cudaDeviceSynchronize(); }

MNEMOSYNE_API int cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t,
                                      int* status) {
  return entry_point(symbol, function, status);
}

MNEMOSYNE_API int cuGetProcAddress(const char* symbol, void** function, int, uint64_t) {
  int status;
  int code = entry_point(symbol, function, &status);
  return code || status == kFound ? code : kSymbolNotFound;
}

MNEMOSYNE_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                                  unsigned long long, int* status) {
  return entry_point(symbol, function, status);
}

MNEMOSYNE_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                           unsigned, unsigned long long,
                                                           int* status) {
  return entry_point(symbol, function, status);
}
