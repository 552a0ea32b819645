// What the device is, and which one is current: answered from the description the server gave.
#include <cstdio>
#include <cstring>

#include "dl.h"
#include "errors.h"
#include "identity.h"
#include "session.h"

using namespace mnemosyne;

namespace mnemosyne {
namespace {

// Code for "there is no device": no server means no device.
int check_device(int ordinal) {
  if (int code = check_process()) return code;
  if (!device()) return why_not();
  return ordinal == 0 ? kSuccess : report(kInvalidDevice);
}

int attribute(int* value, int id) {
  const Device* d = device();
  if (!d) return why_not();
  if (id < 0 || id >= static_cast<int>(d->attributes.size())) return report(kInvalidValue);
  *value = d->attributes[id];
  return kSuccess;
}

}  // namespace
}  // namespace mnemosyne

MNEMOSYNE_API cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return report(kInvalidValue);
  *count = 0;
  if (int code = check_process()) return code;
  *count = device() ? 1 : 0;
  return *count ? kSuccess : why_not();
}

MNEMOSYNE_API cudaError_t cudaGetDevice(int* ordinal) {
  if (!ordinal) return report(kInvalidValue);
  if (int code = check_process()) return code;
  *ordinal = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaSetDevice(int ordinal) { return check_device(ordinal); }
MNEMOSYNE_API cudaError_t cudaInitDevice(int ordinal, unsigned, unsigned) {
  return check_device(ordinal);
}
MNEMOSYNE_API cudaError_t cudaSetDeviceFlags(unsigned) { return kSuccess; }

MNEMOSYNE_API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (!flags) return report(kInvalidValue);
  *flags = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaChooseDevice(int* ordinal, const void*) {
  if (!ordinal) return report(kInvalidValue);
  *ordinal = 0;
  return check_device(0);
}

MNEMOSYNE_API cudaError_t cudaGetDeviceProperties(void* properties, int ordinal) {
  if (!properties) return report(kInvalidValue);
  if (int code = check_device(ordinal)) return code;
  const std::string& p = device()->properties;
  memcpy(properties, p.data(), p.size());
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaDeviceGetAttribute(int* value, int id, int ordinal) {
  if (!value) return report(kInvalidValue);
  if (int code = check_device(ordinal)) return code;
  return attribute(value, id);
}

MNEMOSYNE_API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int ordinal) {
  if (!text) return report(kInvalidValue);
  if (int code = check_device(ordinal)) return code;
  snprintf(text, size, "%s", bus_id(*device()).c_str());
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaDeviceGetByPCIBusId(int* ordinal, const char* text) {
  if (!ordinal || !text) return report(kInvalidValue);
  if (int code = check_device(0)) return code;
  *ordinal = 0;
  return strcasecmp(bus_id(*device()).c_str(), text) == 0 ? kSuccess : report(kInvalidDevice);
}

MNEMOSYNE_API cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  if (!can) return report(kInvalidValue);
  *can = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return check_device(0);
}

// Limits and cache preferences are the context's, which is shared: asking is answered with the
// defaults, setting changes nothing.
MNEMOSYNE_API cudaError_t cudaDeviceGetLimit(size_t* value, int limit) {
  if (!value) return report(kInvalidValue);
  constexpr size_t kDefaults[] = {1024, 1 << 20, 8 << 20};  // stack, printf FIFO, malloc heap
  if (limit < 0 || limit > 2) return report(kNotSupported);
  *value = kDefaults[limit];
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaDeviceSetLimit(int, size_t) { return kSuccess; }
MNEMOSYNE_API cudaError_t cudaDeviceSetCacheConfig(int) { return kSuccess; }
MNEMOSYNE_API cudaError_t cudaProfilerStart() { return kSuccess; }
MNEMOSYNE_API cudaError_t cudaProfilerStop() { return kSuccess; }

MNEMOSYNE_API cudaError_t cudaDeviceReset() {
  return report(kNotSupported,
                "mnemosyne: cudaDeviceReset would end the other programs' context; "
                "exit the process instead");
}

MNEMOSYNE_API cudaError_t cudaDriverGetVersion(int* version) {
  if (!version) return report(kInvalidValue);
  *version = device() ? device()->cuda : 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return report(kInvalidValue);
  using Own = cudaError_t (*)(int*);
  auto own = reinterpret_cast<Own>(native_function("libcudart.so", "cudaRuntimeGetVersion"));
  if (own) return own(version);
  *version = device() ? device()->cuda : 0;
  return kSuccess;
}
