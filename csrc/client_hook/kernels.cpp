// Kernels: what the server says of them, and what a program may ask and set.
#include "kernels.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "frame.h"
#include "structs.h"
#include "tables.h"

namespace mnemosyne {
namespace {

constexpr int kModuleUnknown = -1;  // MODULE_UNKNOWN of the specification
constexpr size_t kUploadPiece = 256 << 10;

int ask(Kernel* kernel, Reply* reply) {
  Module* m = kernel->module;
  Frame frame(Number::kernel, 2);
  frame.array(4);
  frame.text(m->path.c_str());
  frame.unsigned_integer(m->offset);
  frame.unsigned_integer(m->size);
  frame.unsigned_integer(m->hash);
  frame.text(kernel->name);
  return frame.call(reply);
}

KernelInfo* info_of(const void* function, int* code) {
  Kernel* kernel = find_kernel(function);
  if (kernel) return resolve(kernel, code);
  *code = report(kInvalidDeviceFunction);
  return nullptr;
}

// What a program asks for once, by attribute. The cluster's size is given with each launch.
bool is_settable(int attribute) {
  return attribute == kMaxDynamicSharedAttribute || attribute == kCarveoutAttribute ||
         attribute == kNonPortableClusterAttribute || attribute == kClusterPolicyAttribute;
}

}  // namespace

int upload_module(const void* data, uint64_t size, uint64_t hash) {
  for (uint64_t at = 0; at < size; at += kUploadPiece) {
    uint64_t piece = size - at < kUploadPiece ? size - at : kUploadPiece;
    Frame frame(Number::module_bytes, 4);
    frame.leave_errors();
    frame.bytes(&hash, sizeof hash);
    frame.unsigned_integer(size);
    frame.unsigned_integer(at);
    frame.bytes(static_cast<const char*>(data) + at, piece);
    if (int code = frame.post()) return code;
  }
  return kSuccess;
}

KernelInfo* read_info(Reply* reply) {
  Unpacker& u = reply->values();
  auto* info = new KernelInfo;
  info->function = u.integer();
  info->parameter_bytes = 0;
  for (uint32_t n = u.array(); n && u.ok(); --n) {
    u.array();
    Parameter p;
    p.offset = static_cast<uint32_t>(u.integer());
    p.size = static_cast<uint32_t>(u.integer());
    info->parameters.push_back(p);
    if (p.offset + p.size > info->parameter_bytes) info->parameter_bytes = p.offset + p.size;
  }
  uint32_t count = u.array();
  for (uint32_t i = 0; i < KernelInfo::kCount; ++i)
    info->attributes[i] = i < count ? u.integer() : 0;
  if (u.ok()) return info;
  delete info;
  return nullptr;
}

static int tell_attribute(KernelInfo* info, int attribute, int value) {
  std::atomic<int64_t>& told = info->told[attribute + 1];
  if (told.exchange(int64_t{value} + 1) == int64_t{value} + 1) return kSuccess;
  Frame frame(Number::function_attribute, 3);
  frame.unsigned_integer(info->function);
  frame.integer(attribute);
  frame.integer(value);
  return frame.post();
}

int set_function_attribute(KernelInfo* info, int attribute, int value) {
  if (!is_settable(attribute)) return kInvalidValue;
  if (attribute == kMaxDynamicSharedAttribute) {
    const Device* d = device();
    constexpr size_t kOptIn = 97;  // cudaDevAttrMaxSharedMemoryPerBlockOptin
    int64_t most = d && d->attributes.size() > kOptIn ? d->attributes[kOptIn] : 0;
    if (value < 0 || value + info->attributes[KernelInfo::kShared] > most) return kInvalidValue;
    info->attributes[KernelInfo::kMaxDynamicShared] = value;
  } else if (attribute == kCarveoutAttribute) {
    if (value < -1 || value > 100) return kInvalidValue;
    info->carveout = value;
  } else if (attribute == kNonPortableClusterAttribute) {
    info->attributes[KernelInfo::kNonPortableCluster] = value;
  } else {
    info->attributes[KernelInfo::kClusterPolicy] = value;
  }
  return tell_attribute(info, attribute, value);
}

int set_cache_config(KernelInfo* info, int config) {
  constexpr int kCacheConfig = -1, kMostConfig = 3;  // CACHE_CONFIG of the specification
  if (config < 0 || config > kMostConfig) return kInvalidValue;
  return tell_attribute(info, kCacheConfig, config);
}

// Occupancy by (function, block size, dynamic shared memory, flags).
int ask_occupancy(KernelInfo* info, int block, size_t shared, unsigned flags, int* blocks) {
  uint64_t key[4] = {info->function, static_cast<uint64_t>(block), shared, flags};
  std::string content(reinterpret_cast<char*>(key), sizeof key);
  static auto* known = new std::unordered_map<std::string, int>;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = known->find(content);
    if (found != known->end()) return *blocks = found->second, kSuccess;
  }
  Frame frame(Number::occupancy, 4);
  frame.unsigned_integer(info->function);
  frame.integer(block);
  frame.unsigned_integer(shared);
  frame.unsigned_integer(flags);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  *blocks = static_cast<int>(reply.values().integer());
  std::lock_guard<std::mutex> lock(tables_mutex());
  (*known)[content] = *blocks;
  return kSuccess;
}

KernelInfo* resolve(Kernel* kernel, int* code) {
  KernelInfo* info = kernel->info.load(std::memory_order_acquire);
  if (info) return info;
  if (!session()) return *code = why_not(), nullptr;
  static std::mutex* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  if ((info = kernel->info.load())) return info;
  Module& m = *kernel->module;
  if (!locate(&m)) return *code = report(kInvalidDeviceFunction), nullptr;
  Reply reply;
  *code = ask(kernel, &reply);
  if (*code == kModuleUnknown && (*code = upload_module(m.fatbin, m.size, m.hash)) == kSuccess) {
    *code = ask(kernel, &reply);
    if (*code == kModuleUnknown) *code = report(kUnknown);
  }
  if (*code) return nullptr;
  info = read_info(&reply);
  if (!info) *code = report(kUnknown);
  kernel->info.store(info, std::memory_order_release);
  return info;
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaFuncGetAttributes(void* attributes, const void* function) {
  if (!attributes) return report(kInvalidValue);
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  if (!info) return code;
  const std::atomic<int64_t>* a = info->attributes;
  cudaFuncAttributes f{};
  f.sharedSizeBytes = a[KernelInfo::kShared];
  f.constSizeBytes = a[KernelInfo::kConst];
  f.localSizeBytes = a[KernelInfo::kLocal];
  f.maxThreadsPerBlock = static_cast<int>(a[KernelInfo::kMaxThreads]);
  f.numRegs = static_cast<int>(a[KernelInfo::kRegisters]);
  f.ptxVersion = static_cast<int>(a[KernelInfo::kPtx]);
  f.binaryVersion = static_cast<int>(a[KernelInfo::kBinary]);
  f.maxDynamicSharedSizeBytes = static_cast<int>(a[KernelInfo::kMaxDynamicShared]);
  f.preferredShmemCarveout = static_cast<int>(info->carveout);
  f.clusterDimMustBeSet = static_cast<int>(a[KernelInfo::kClusterMustBeSet]);
  f.requiredClusterWidth = static_cast<int>(a[KernelInfo::kClusterWidth]);
  f.requiredClusterHeight = static_cast<int>(a[KernelInfo::kClusterHeight]);
  f.requiredClusterDepth = static_cast<int>(a[KernelInfo::kClusterDepth]);
  f.clusterSchedulingPolicyPreference = static_cast<int>(a[KernelInfo::kClusterPolicy]);
  f.nonPortableClusterSizeAllowed = static_cast<int>(a[KernelInfo::kNonPortableCluster]);
  memcpy(attributes, &f, sizeof f);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaFuncSetAttribute(const void* function, int attribute, int value) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return info ? report(set_function_attribute(info, attribute, value)) : code;
}

MNEMOSYNE_API cudaError_t cudaKernelSetAttributeForDevice(const void* kernel, int attribute,
                                                          int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}

MNEMOSYNE_API cudaError_t cudaFuncSetCacheConfig(const void* function, int config) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return info ? report(set_cache_config(info, config)) : code;
}

MNEMOSYNE_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block, size_t shared, unsigned flags) {
  if (!blocks) return report(kInvalidValue);
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return info ? report(ask_occupancy(info, block, shared, flags, blocks)) : code;
}

MNEMOSYNE_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                        const void* function,
                                                                        int block, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, shared, 0);
}
