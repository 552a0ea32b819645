// NVML as a program sees it through the proxy: one device, with the client's own quota of memory.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "errors.h"
#include "session.h"

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaMemGetInfo(size_t*, size_t*);
MNEMOSYNE_API cudaError_t cudaDeviceGetPCIBusId(char*, int, int);

namespace {

// nvml.h: nvmlReturn_t.
enum NvmlReturn {
  kOk = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9
};
void* const kDeviceHandle = reinterpret_cast<void*>(0x6e76);

int give(void** handle, bool found) {
  if (!device()) return kDriverNotLoaded;
  *handle = kDeviceHandle;
  return found ? kOk : kNotFound;
}

int copy_text(char* to, unsigned size, const char* text) {
  if (strlen(text) >= size) return kInsufficientSize;
  strcpy(to, text);
  return kOk;
}

void format_uuid(char* text, size_t size) {
  unsigned char u[16] = {};
  memcpy(u, device()->uuid.data(), device()->uuid.size() < 16 ? device()->uuid.size() : 16);
  snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
           u[14], u[15]);
}

struct MemoryInfo {
  unsigned long long total, free, used;
};

}  // namespace

MNEMOSYNE_API int nvmlInit_v2() { return device() ? kOk : kDriverNotLoaded; }
MNEMOSYNE_API int nvmlInit() { return nvmlInit_v2(); }
MNEMOSYNE_API int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
MNEMOSYNE_API int nvmlShutdown() { return kOk; }

MNEMOSYNE_API const char* nvmlErrorString(int code) {
  switch (code) {
    case kOk:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kInsufficientSize:
      return "Insufficient Size";
    case kNotFound:
      return "Not Found";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Not Supported";
  }
}

MNEMOSYNE_API int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!count) return kInvalidArgument;
  *count = device() ? 1 : 0;
  return kOk;
}

MNEMOSYNE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (!handle) return kInvalidArgument;
  int code = give(handle, true);
  return code || index == 0 ? code : int{kInvalidArgument};
}

MNEMOSYNE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* wanted, void** handle) {
  if (!wanted || !handle) return kInvalidArgument;
  char own[32];
  if (!device() || cudaDeviceGetPCIBusId(own, sizeof own, 0)) return kDriverNotLoaded;
  size_t n = strlen(own), m = strlen(wanted);  // the domain may be written with more zeros
  return give(handle, m >= n && strcasecmp(wanted + m - n, own) == 0);
}

MNEMOSYNE_API int nvmlDeviceGetHandleByUUID(const char* wanted, void** handle) {
  if (!wanted || !handle) return kInvalidArgument;
  if (!device()) return kDriverNotLoaded;
  char own[64];
  format_uuid(own, sizeof own);
  return give(handle, strcmp(own, wanted) == 0);
}

MNEMOSYNE_API int nvmlDeviceGetUUID(void*, char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  if (!device()) return kUninitialized;
  char own[64];
  format_uuid(own, sizeof own);
  return copy_text(text, size, own);
}

MNEMOSYNE_API int nvmlDeviceGetName(void*, char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  return device() ? copy_text(text, size, device()->name.c_str()) : int{kUninitialized};
}

// Before the client holds a slot, all of its quota is free.
MNEMOSYNE_API int nvmlDeviceGetMemoryInfo(void*, MemoryInfo* info) {
  if (!info) return kInvalidArgument;
  if (!device()) return kUninitialized;
  size_t free = device()->quota, total = device()->quota;
  if (attached()) cudaMemGetInfo(&free, &total);
  *info = {total, free, total - free};
  return kOk;
}

// nvml.h: nvmlProcessInfo_v1_t and, longer, nvmlProcessInfo_t.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
};
struct ProcessInfoV3 {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

namespace mnemosyne {
namespace {

// A client sees itself alone.
template <typename Info>
int list_processes(unsigned* count, Info* infos) {
  if (!count) return kInvalidArgument;
  if (!device()) return kUninitialized;
  unsigned room = *count;
  *count = attached() ? 1 : 0;
  if (*count == 0) return kOk;
  if (room == 0 || !infos) return kInsufficientSize;
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  infos[0] = Info{};
  infos[0].pid = static_cast<unsigned>(getpid());
  infos[0].used = total - free;
  return kOk;
}

}  // namespace
}  // namespace mnemosyne

MNEMOSYNE_API int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, ProcessInfo* infos) {
  return list_processes(count, infos);
}

MNEMOSYNE_API int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count,
                                                          ProcessInfoV3* infos) {
  return list_processes(count, infos);
}

MNEMOSYNE_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (!version) return kInvalidArgument;
  *version = device() ? device()->cuda : 0;
  return kOk;
}

MNEMOSYNE_API int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  return copy_text(text, size, "580.0");
}
