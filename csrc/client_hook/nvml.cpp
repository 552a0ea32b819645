// NVML as a program sees it through the proxy: one device, with the client's own quota of memory.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "errors.h"
#include "identity.h"

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaMemGetInfo(size_t*, size_t*);

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
  if (!described()) return kDriverNotLoaded;
  *handle = kDeviceHandle;
  return found ? kOk : kNotFound;
}

int copy_text(char* to, unsigned size, const char* text) {
  if (strlen(text) >= size) return kInsufficientSize;
  strcpy(to, text);
  return kOk;
}

struct MemoryInfo {
  unsigned long long total, free, used;
};

}  // namespace

MNEMOSYNE_API int nvmlInit_v2() { return described() ? kOk : kDriverNotLoaded; }
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
  *count = described() ? 1 : 0;
  return kOk;
}

MNEMOSYNE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (!handle) return kInvalidArgument;
  int code = give(handle, true);
  return code || index == 0 ? code : int{kInvalidArgument};
}

MNEMOSYNE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* wanted, void** handle) {
  if (!wanted || !handle) return kInvalidArgument;
  if (!described()) return kDriverNotLoaded;
  std::string own = bus_id(*described());
  size_t n = own.size(), m = strlen(wanted);  // the domain may be written with more zeros
  return give(handle, m >= n && strcasecmp(wanted + m - n, own.c_str()) == 0);
}

MNEMOSYNE_API int nvmlDeviceGetHandleByUUID(const char* wanted, void** handle) {
  if (!wanted || !handle) return kInvalidArgument;
  if (!described()) return kDriverNotLoaded;
  return give(handle, uuid_text(*described()) == wanted);
}

MNEMOSYNE_API int nvmlDeviceGetUUID(void*, char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  if (!described()) return kUninitialized;
  return copy_text(text, size, uuid_text(*described()).c_str());
}

MNEMOSYNE_API int nvmlDeviceGetName(void*, char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  return described() ? copy_text(text, size, described()->name.c_str()) : int{kUninitialized};
}

// Before the client holds a slot, all of its quota is free.
MNEMOSYNE_API int nvmlDeviceGetMemoryInfo(void*, MemoryInfo* info) {
  if (!info) return kInvalidArgument;
  if (!described()) return kUninitialized;
  size_t free = described()->quota, total = described()->quota;
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
  if (!described()) return kUninitialized;
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
  *version = described() ? described()->cuda : 0;
  return kOk;
}

MNEMOSYNE_API int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  if (!text) return kInvalidArgument;
  return copy_text(text, size, "580.0");
}
