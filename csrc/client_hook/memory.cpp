#include "memory.h"

#include "frame.h"
#include "structs.h"
#include "tables.h"

namespace mnemosyne {
namespace {

constexpr uintptr_t kGrain = 512;  // bytes: allocations begin and end at its multiples

}  // namespace

void Ranges::add(const void* start, size_t size) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  ranges_[static_cast<const char*>(start)] = size;
}

bool Ranges::remove(const void* start) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  return ranges_.erase(static_cast<const char*>(start)) == 1;
}

bool Ranges::find(const void* p, const void** start, size_t* size) {
  auto at = static_cast<const char*>(p);
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return false;
  auto range = std::prev(after);
  if (at >= range->first + range->second) return false;
  *start = range->first;
  *size = range->second;
  return true;
}

Ranges& device_memory() {
  static Ranges* one = new Ranges;
  return *one;
}

Ranges& imported_memory() {
  static Ranges* one = new Ranges;
  return *one;
}

Ranges& pinned_memory() {
  static Ranges* one = new Ranges;
  return *one;
}

Ranges& registered_memory() {
  static Ranges* one = new Ranges;
  return *one;
}

namespace {

int allocate(void** out, size_t bytes, Number message) {
  if (!out) return kInvalidValue;
  *out = nullptr;
  if (bytes == 0) return kSuccess;
  Session* s = session();
  if (!s) return why_not();
  Frame frame(message, 1);
  frame.leave_errors();
  frame.unsigned_integer(bytes);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  uint64_t answer = reply.values().integer();
  bool host = message == Number::host_alloc;
  *out = host ? s->host + answer : reinterpret_cast<char*>(answer);
  (host ? pinned_memory() : device_memory()).add(*out, bytes);
  return kSuccess;
}

int release(void* p) {
  if (!p) return kSuccess;
  if (!device_memory().remove(p)) return kInvalidValue;
  Frame frame(Number::free, 1);
  frame.pointer(p);
  return frame.post();
}

int release_host(void* p) {
  if (!p) return kSuccess;
  Session* s = session();
  if (!s) return why_not();
  if (!pinned_memory().remove(p)) return kInvalidValue;
  Frame frame(Number::host_free, 1);
  frame.unsigned_integer(s->host_offset(p));
  return frame.post();
}

bool find_device_memory(const void* p, const void** start, size_t* size) {
  return device_memory().find(p, start, size) || imported_memory().find(p, start, size);
}

enum MemoryType { kUnregistered, kHost, kDevice };

cudaPointerAttributes describe(const void* p) {
  const void* start;
  size_t size;
  void* at = const_cast<void*>(p);
  if (find_device_memory(p, &start, &size)) return {kDevice, 0, at, nullptr};
  if (pinned_memory().find(p, &start, &size)) return {kHost, 0, at, at};
  if (registered_memory().find(p, &start, &size)) return {kHost, 0, nullptr, at};
  return {kUnregistered, -1, nullptr, at};
}

}  // namespace

bool is_allocated(const void* p, size_t n) {
  auto first = reinterpret_cast<uintptr_t>(p), last = first + n - 1;
  auto is_in_one = [](uintptr_t at) {
    const void* start;
    size_t size;
    return find_device_memory(reinterpret_cast<void*>(at / kGrain * kGrain), &start, &size);
  };
  return last >= first && is_in_one(first) && is_in_one(last);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaMalloc(void** p, size_t bytes) {
  return report(allocate(p, bytes, Number::malloc));
}

// The arena is not ordered by streams: a free takes effect after the work sent before it.
MNEMOSYNE_API cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) {
  return cudaMalloc(p, bytes);
}

MNEMOSYNE_API cudaError_t cudaMallocFromPoolAsync(void** p, size_t bytes, void*, cudaStream_t) {
  return cudaMalloc(p, bytes);
}

MNEMOSYNE_API cudaError_t cudaFree(void* p) { return report(release(p)); }

MNEMOSYNE_API cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }

MNEMOSYNE_API cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  return report(allocate(p, bytes, Number::host_alloc));
}

MNEMOSYNE_API cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return cudaHostAlloc(p, bytes, 0);
}

MNEMOSYNE_API cudaError_t cudaFreeHost(void* p) { return report(release_host(p)); }

// Copies from registered memory are staged; it cannot be mapped into the device.
MNEMOSYNE_API cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned flags) {
  constexpr unsigned kMapped = 2, kIoMemory = 4;
  const void* start;
  size_t size;
  if (!p || !bytes) return report(kInvalidValue);
  if (int code = check_process()) return code;
  if (flags & (kMapped | kIoMemory)) {
    return report(kNotSupported,
                  "mnemosyne: cudaHostRegister cannot map existing memory into the device; "
                  "use cudaHostAlloc or pin_memory()");
  }
  if (registered_memory().find(p, &start, &size)) return report(kHostMemoryAlreadyRegistered);
  registered_memory().add(p, bytes);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaHostUnregister(void* p) {
  if (int code = check_process()) return code;
  return registered_memory().remove(p) ? kSuccess : report(kHostMemoryNotRegistered);
}

MNEMOSYNE_API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (!device) return report(kInvalidValue);
  if (int code = check_process()) return code;
  *device = describe(host).devicePointer;
  return *device ? kSuccess : report(kInvalidValue);
}

MNEMOSYNE_API cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  if (!flags) return report(kInvalidValue);
  if (int code = check_process()) return code;
  const void* start;
  size_t size;
  *flags = 0;
  return pinned_memory().find(host, &start, &size) ? kSuccess : report(kInvalidValue);
}

MNEMOSYNE_API cudaError_t cudaPointerGetAttributes(void* attributes, const void* p) {
  if (!attributes) return report(kInvalidValue);
  if (int code = check_process()) return code;
  *static_cast<cudaPointerAttributes*>(attributes) = describe(p);
  return kSuccess;
}

MNEMOSYNE_API int cuPointerGetAttribute(void* data, int attribute, uint64_t p) {
  if (!data) return kInvalidValue;
  if (int code = check_process()) return code;
  enum {
    kMemoryType = 2,
    kDevicePointer = 3,
    kHostPointer = 4,
    kDeviceOrdinal = 9,
    kRangeStart = 11,
    kRangeSize = 12
  };
  cudaPointerAttributes a = describe(reinterpret_cast<void*>(p));
  if (a.type == kUnregistered) return kInvalidValue;
  const void* start = nullptr;
  size_t size = 0;
  for (Ranges* ranges :
       {&device_memory(), &imported_memory(), &pinned_memory(), &registered_memory()}) {
    if (ranges->find(reinterpret_cast<void*>(p), &start, &size)) break;
  }
  switch (attribute) {
    case kMemoryType:
      return *static_cast<unsigned*>(data) = a.type, kSuccess;
    case kDevicePointer:
      return *static_cast<void**>(data) = a.devicePointer, kSuccess;
    case kHostPointer:
      return *static_cast<void**>(data) = a.hostPointer, kSuccess;
    case kDeviceOrdinal:
      return *static_cast<int*>(data) = 0, kSuccess;
    case kRangeStart:
      return *static_cast<const void**>(data) = start, kSuccess;
    case kRangeSize:
      return *static_cast<size_t*>(data) = size, kSuccess;
    default:
      return kNotSupported;
  }
}

MNEMOSYNE_API int cuMemGetAddressRange_v2(uint64_t* base, size_t* size, uint64_t p) {
  const void* start;
  size_t bytes;
  if (!find_device_memory(reinterpret_cast<void*>(p), &start, &bytes)) return kInvalidValue;
  if (base) *base = reinterpret_cast<uint64_t>(start);
  if (size) *size = bytes;
  return kSuccess;
}
