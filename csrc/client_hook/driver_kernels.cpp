// The driver API's calls on kernels. A CUfunction is a kernel of this library, of either API.
#include "driver_codes.h"
#include "frame.h"
#include "launch.h"

namespace mnemosyne {
namespace {

// Null: *code says why.
KernelInfo* info_of(const void* function, int* code) {
  Kernel* kernel = find_kernel(function);
  *code = kInvalidResourceHandle;
  return kernel ? resolve(kernel, code) : nullptr;
}

int run(const void* function, const Launch& l) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  if (info) code = check_launch(info, l);
  return driver_code(code ? code : send_launch(info, l));
}

// By CUfunction_attribute.
constexpr int kAttributes[] = {
    KernelInfo::kMaxThreads,
    KernelInfo::kShared,
    KernelInfo::kConst,
    KernelInfo::kLocal,
    KernelInfo::kRegisters,
    KernelInfo::kPtx,
    KernelInfo::kBinary,
    -1,  // whether it was compiled to cache global loads: no
    KernelInfo::kMaxDynamicShared,
    -1,  // the carveout, which is kept apart
    KernelInfo::kClusterMustBeSet,
    KernelInfo::kClusterWidth,
    KernelInfo::kClusterHeight,
    KernelInfo::kClusterDepth,
    KernelInfo::kNonPortableCluster,
    KernelInfo::kClusterPolicy,
};

Configuration size_of(const CUlaunchConfig& c) {
  return {{c.gridDimX, c.gridDimY, c.gridDimZ},
          {c.blockDimX, c.blockDimY, c.blockDimZ},
          c.sharedMemBytes,
          c.hStream};
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned shared, cudaStream_t stream, void** args, void** extra) {
  Configuration size{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
  return run(function, {size, {args, extra}});
}

MNEMOSYNE_API int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y,
                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                            unsigned block_z, unsigned shared, cudaStream_t stream,
                                            void** args) {
  Configuration size{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
  cudaLaunchAttribute together = cooperative();
  return run(function, {size, {args, nullptr}, {&together, 1}});
}

MNEMOSYNE_API int cuLaunchKernelEx(const CUlaunchConfig* config, void* function, void** args,
                                   void** extra) {
  if (!config) return kInvalidValue;
  return run(function, {size_of(*config), {args, extra}, {config->attrs, config->numAttrs}});
}

MNEMOSYNE_API int cuFuncGetAttribute(int* value, int attribute, void* function) {
  constexpr int kCount = sizeof kAttributes / sizeof *kAttributes;
  if (!value || attribute < 0 || attribute >= kCount) return kInvalidValue;
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  if (!info) return driver_code(code);
  int at = kAttributes[attribute];
  *value = at < 0 ? 0 : static_cast<int>(info->attributes[at]);
  if (attribute == kCarveoutAttribute) *value = static_cast<int>(info->carveout);
  return kSuccess;
}

MNEMOSYNE_API int cuFuncSetAttribute(void* function, int attribute, int value) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return driver_code(info ? set_function_attribute(info, attribute, value) : code);
}

MNEMOSYNE_API int cuFuncSetCacheConfig(void* function, int config) {
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return driver_code(info ? set_cache_config(info, config) : code);
}

MNEMOSYNE_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function,
                                                                       int block, size_t shared,
                                                                       unsigned flags) {
  if (!blocks) return kInvalidValue;
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  return driver_code(info ? ask_occupancy(info, block, shared, flags, blocks) : code);
}

MNEMOSYNE_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function,
                                                              int block, size_t shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, shared, 0);
}

MNEMOSYNE_API int cuOccupancyMaxActiveClusters(int* clusters, void* function,
                                               const CUlaunchConfig* config) {
  if (!clusters || !config) return kInvalidValue;
  int code = kSuccess;
  KernelInfo* info = info_of(function, &code);
  if (!info) return driver_code(code);
  Frame frame(Number::max_clusters, 9, Codes::kDriver);
  frame.unsigned_integer(info->function);
  put_size(&frame, size_of(*config));
  put_attributes(&frame, {config->attrs, config->numAttrs});
  Reply reply;
  if ((code = frame.call(&reply))) return driver_code(code);
  *clusters = static_cast<int>(reply.values().integer());
  return kSuccess;
}
