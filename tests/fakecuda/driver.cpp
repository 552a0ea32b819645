// The process's state, the device, its context, and how calls are found.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "fakecuda.h"

namespace fakecuda {
namespace {

constexpr char kName[] = "NVIDIA H200", kBusId[] = "0000:01:00.0";
constexpr char kUuid[] = "fakecuda-gpu-000";

// By number of the attribute; build.py writes them.
const int kAttributes[] = {
#include "attributes.inc"
};

size_t limits[CU_LIMIT_MAX] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};

const struct {
  CUresult code;
  const char *name, *text;
} kErrors[] = {
#define ERROR(code, text) {code, #code, text}
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
#undef ERROR
};

int the_context;  // its address is the handle
const CUcontext kPrimary = reinterpret_cast<CUcontext>(&the_context);
thread_local std::vector<CUcontext> current;  // this thread's stack of contexts

void check(CUcontext context) {
  if (context && context != kPrimary) die("%p is no context", static_cast<void*>(context));
}

CUresult text_of(CUresult code, const char** to, bool name) {
  *to = nullptr;
  for (auto& one : kErrors) {
    if (one.code == code) *to = name ? one.name : one.text;
  }
  return *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class Body>
CUresult of_device(const char* name, CUdevice device, Body body) {
  return call(name, kDevice,
              [&](Lock&) { return device == 0 ? body() : CUDA_ERROR_INVALID_DEVICE; });
}

}  // namespace

thread_local const char* current_call = "";
thread_local bool in_host_function = false;

State& state() {
  static State* const one = new State;
  return *one;
}

std::string public_name(const char* name) {
  std::string text = name;
  bool versioned = text.size() > 3 && text.compare(text.size() - 3, 3, "_v2") == 0;
  return versioned ? text.substr(0, text.size() - 3) : text;
}

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* value = getenv(name);
  return value && *value ? strtoull(value, nullptr, 0) : otherwise;
}

CUresult refusal(Needs needs) {
  const State& s = state();
  if (needs == kNothing) return CUDA_SUCCESS;
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  if (!s.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == kDevice) return CUDA_SUCCESS;
  if (s.fatal != CUDA_SUCCESS || needs == kInit) return s.fatal;
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  return s.retained ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void log_line(const char* format, ...) {
  static const char* const path = getenv("FAKECUDA_LOG");
  static const int log = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (log < 0) return;
  va_list args;
  va_start(args, format);
  vdprintf(log, format, args);
  va_end(args);
}

void log_call(const char* name, CUresult result) {
  log_line("%s %d\n", public_name(name).c_str(), result);
}

void die(const char* format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  fprintf(stderr, "fakecuda: %s: %s\n", public_name(current_call).c_str(), text);
  abort();
}

}  // namespace fakecuda

using namespace fakecuda;

CUresult cuInit(unsigned) {
  if (const char* path = getenv("FAKECUDA_CUDNN")) dlopen(path, RTLD_NOW);
  return call(__func__, kNothing, [](Lock&) { return give(&state().initialized, true); });
}

CUresult cuDriverGetVersion(int* version) {
  return call(__func__, kNothing, [&](Lock&) { return give(version, 13000); });
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  return call(__func__, kNothing, [&](Lock&) { return text_of(code, name, true); });
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  return call(__func__, kNothing, [&](Lock&) { return text_of(code, text, false); });
}

CUresult cuDeviceGetCount(int* count) {
  return call(__func__, kDevice, [&](Lock&) { return give(count, 1); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return of_device(__func__, ordinal, [&] { return give(device, 0); });
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return of_device(__func__, device, [&] {
    snprintf(name, static_cast<size_t>(size), "%s", kName);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return of_device(__func__, device, [&] {
    memcpy(uuid->bytes, kUuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return of_device(__func__, device, [&] {
    if (size < static_cast<int>(sizeof kBusId)) return CUDA_ERROR_INVALID_VALUE;
    strcpy(id, kBusId);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return of_device(__func__, device, [&] {
    if (attribute <= 0 || attribute >= static_cast<int>(std::size(kAttributes)))
      return CUDA_ERROR_INVALID_VALUE;
    return give(value, kAttributes[attribute]);
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return call(__func__, kInit, [&](Lock&) {
    ++state().retained;
    return give(context, kPrimary);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return call(__func__, kInit, [](Lock&) {
    if (!state().retained) return CUDA_ERROR_INVALID_CONTEXT;
    --state().retained;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  return call(__func__, kInit, [&](Lock&) {
    *flags = 0;
    return give(active, state().retained ? 1 : 0);
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return call(__func__, kInit, [&](Lock&) {
    check(context);
    if (!current.empty()) current.pop_back();
    if (context) current.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return call(__func__, kInit,
              [&](Lock&) { return give(context, current.empty() ? nullptr : current.back()); });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return call(__func__, kInit, [&](Lock&) {
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    check(context);
    current.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return call(__func__, kContext, [&](Lock&) {
    if (context) *context = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return call(__func__, kContext, [&](Lock&) { return give(device, 0); });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return call(__func__, kContext, [&](Lock&) {
    return limit < CU_LIMIT_MAX ? give(&limits[limit], value) : CUDA_ERROR_UNSUPPORTED_LIMIT;
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return call(__func__, kContext, [&](Lock&) {
    return limit < CU_LIMIT_MAX ? give(value, limits[limit]) : CUDA_ERROR_UNSUPPORTED_LIMIT;
  });
}

// From these versions of CUDA on, a name means a function with other parameters.
static const struct {
  const char* name;
  int version;
} kReplaced[] = {
    {"cuCtxGetDevice", 13000}, {"cuCtxSynchronize", 13000}, {"cuLaunchHostFunc", 13020}};

static void* this_library() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(cuInit), &info);
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// Of older versions there is nothing to know: nobody asks for what cuda.h replaced long ago.
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  static void* const library = this_library();
  *function = dlsym(library, (std::string(name) + "_v2").c_str());
  if (!*function) *function = dlsym(library, name);
  for (auto& one : kReplaced) {
    if (!strcmp(one.name, name) && version >= one.version) *function = nullptr;
  }
  auto found = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (status) *status = found;
  return CUDA_SUCCESS;
}

// Names without a version, which dlsym finds in a real driver too.
#undef cuGetProcAddress
#undef cuDeviceGetUuid
extern "C" {
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  CUresult result = cuGetProcAddress_v2(name, function, version, flags, nullptr);
  return *function ? result : CUDA_ERROR_NOT_FOUND;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
}
