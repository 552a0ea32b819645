// Launches and what a program may ask of a kernel.
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

int upload(const Module& m) {
  for (uint64_t at = 0; at < m.size; at += kUploadPiece) {
    uint64_t piece = m.size - at < kUploadPiece ? m.size - at : kUploadPiece;
    Frame frame(Number::module_bytes, 4);
    frame.bytes(&m.hash, sizeof m.hash);
    frame.unsigned_integer(m.size);
    frame.unsigned_integer(at);
    frame.bytes(m.fatbin + at, piece);
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

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
constexpr int kMaxNested = 16;
struct Configurations {
  Configuration stack[kMaxNested];
  int depth;
};
thread_local Configurations configurations;  // between <<<...>>> and the launch

int check(const KernelInfo& info, const Configuration& c) {
  uint64_t threads = uint64_t{c.block.x} * c.block.y * c.block.z;
  if (threads == 0 || uint64_t{c.grid.x} * c.grid.y * c.grid.z == 0) return kInvalidConfiguration;
  if (c.grid.x > INT32_MAX || c.grid.y > 65535 || c.grid.z > 65535) return kInvalidConfiguration;
  if (c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64 || threads > 1024) {
    return kInvalidConfiguration;
  }
  if (static_cast<int64_t>(threads) > info.attributes[KernelInfo::kMaxThreads]) {
    return 701;  // cudaErrorLaunchOutOfResources
  }
  auto most = static_cast<size_t>(info.attributes[KernelInfo::kMaxDynamicShared]);
  return c.shared > most ? kInvalidValue : kSuccess;
}

void put_dim(Frame* frame, dim3 d) {
  frame->unsigned_integer(d.x);
  frame->unsigned_integer(d.y);
  frame->unsigned_integer(d.z);
}

void put_launch(Frame* frame, const KernelInfo& info, const Configuration& c, void** args) {
  frame->unsigned_integer(info.function);
  put_dim(frame, c.grid);
  put_dim(frame, c.block);
  frame->unsigned_integer(c.shared);
  frame->stream(c.stream);
  char* to = frame->bytes_room(info.parameter_bytes);
  memset(to, 0, info.parameter_bytes);
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    memcpy(to + info.parameters[i].offset, args[i], info.parameters[i].size);
  }
}

bool launch_blocking() {
  static const bool wanted = [] {
    const char* v = getenv("CUDA_LAUNCH_BLOCKING");
    return v && *v && strcmp(v, "0") != 0;
  }();
  return wanted;
}

int finish(Frame* frame) {
  if (!launch_blocking()) return frame->post();
  Reply reply;
  return frame->call(&reply);
}

KernelInfo* checked(Kernel* kernel, const Configuration& c, void** args, int* code) {
  KernelInfo* info = resolve(kernel, code);
  if (!info) return nullptr;
  *code = !args && !info->parameters.empty() ? kInvalidValue : check(*info, c);
  return *code ? nullptr : info;
}

int launch(Kernel* kernel, const Configuration& c, void** args) {
  int code = kSuccess;
  KernelInfo* info = checked(kernel, c, args, &code);
  if (!info) return report(code);
  Frame frame(Number::launch, 10);
  put_launch(&frame, *info, c, args);
  return finish(&frame);
}

int launch_with(Kernel* kernel, const cudaLaunchConfig_t& config, void** args) {
  Configuration c{config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream};
  if (config.numAttrs == 0) return launch(kernel, c, args);
  int code = kSuccess;
  KernelInfo* info = checked(kernel, c, args, &code);
  if (!info) return report(code);
  Frame frame(Number::launch_ex, 11);
  put_launch(&frame, *info, c, args);
  frame.array(config.numAttrs);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    frame.array(2);
    frame.integer(config.attrs[i].id);
    frame.bytes(config.attrs[i].val, sizeof config.attrs[i].val);
  }
  return finish(&frame);
}

KernelInfo* info_of(const void* function, int* code) {
  Kernel* kernel = find_kernel(function);
  if (kernel) return resolve(kernel, code);
  *code = report(kInvalidDeviceFunction);
  return nullptr;
}

enum FuncAttribute { kMaxDynamicSharedAttribute = 8, kCarveoutAttribute = 9 };

int set_attribute(KernelInfo* info, int attribute, int value) {
  if (attribute == kMaxDynamicSharedAttribute) {
    const Device* d = device();
    constexpr size_t kOptIn = 97;  // cudaDevAttrMaxSharedMemoryPerBlockOptin
    int64_t most = d && d->attributes.size() > kOptIn ? d->attributes[kOptIn] : 0;
    if (value < 0 || value + info->attributes[KernelInfo::kShared] > most) return kInvalidValue;
    info->attributes[KernelInfo::kMaxDynamicShared] = value;
  } else if (attribute == kCarveoutAttribute) {
    info->carveout = value;
  }
  Frame frame(Number::function_attribute, 3);
  frame.unsigned_integer(info->function);
  frame.integer(attribute);
  frame.integer(value);
  return frame.post();
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

}  // namespace

KernelInfo* resolve(Kernel* kernel, int* code) {
  KernelInfo* info = kernel->info.load(std::memory_order_acquire);
  if (info) return info;
  if (!session()) return *code = why_not(), nullptr;
  static std::mutex* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  if ((info = kernel->info.load())) return info;
  if (!locate(kernel->module)) return *code = report(kInvalidDeviceFunction), nullptr;
  Reply reply;
  *code = ask(kernel, &reply);
  if (*code == kModuleUnknown && (*code = upload(*kernel->module)) == kSuccess) {
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

MNEMOSYNE_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                   cudaStream_t stream) {
  Configurations& c = configurations;
  if (c.depth == kMaxNested) return kInvalidValue;
  c.stack[c.depth++] = {grid, block, shared, stream};
  return kSuccess;
}

MNEMOSYNE_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                     void* stream) {
  Configurations& c = configurations;
  if (c.depth == 0) return report(kInvalidConfiguration);
  const Configuration& top = c.stack[--c.depth];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = find_kernel(function);
  return *kernel ? kSuccess : report(kInvalidDeviceFunction);
}

MNEMOSYNE_API cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void** args,
                                             size_t shared, cudaStream_t stream) {
  if (!kernel) return report(kInvalidDeviceFunction);
  return launch(static_cast<Kernel*>(kernel), {grid, block, shared, stream}, args);
}

MNEMOSYNE_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                                           size_t shared, cudaStream_t stream) {
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  return launch(kernel, {grid, block, shared, stream}, args);
}

MNEMOSYNE_API cudaError_t cudaLaunchKernelExC(const void* config, const void* function,
                                              void** args) {
  if (!config) return report(kInvalidValue);
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  return launch_with(kernel, *static_cast<const cudaLaunchConfig_t*>(config), args);
}

MNEMOSYNE_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                      void** args, size_t shared,
                                                      cudaStream_t stream) {
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  cudaLaunchAttribute cooperative{};
  cooperative.id = 2;  // cudaLaunchAttributeCooperative
  cooperative.val[0] = 1;
  cudaLaunchConfig_t config{grid, block, shared, stream, &cooperative, 1};
  return launch_with(kernel, config, args);
}

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
  memcpy(attributes, &f, sizeof f);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaFuncSetAttribute(const void* function, int attribute, int value) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return info ? report(set_attribute(info, attribute, value)) : code;
}

MNEMOSYNE_API cudaError_t cudaKernelSetAttributeForDevice(const void* kernel, int attribute,
                                                          int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}

// A hint; the server decides.
MNEMOSYNE_API cudaError_t cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }

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
