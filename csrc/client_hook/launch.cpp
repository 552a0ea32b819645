#include "launch.h"

#include <cstring>

#include "streams.h"

namespace mnemosyne {
namespace {

// cudaLaunchAttributeID
constexpr int kCooperative = 2, kClusterDimension = 4, kProgrammaticEvent = 7,
              kLaunchCompletionEvent = 12;

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
    return kLaunchOutOfResources;
  }
  auto most = static_cast<size_t>(info.attributes[KernelInfo::kMaxDynamicShared]);
  return c.shared > most ? kInvalidValue : kSuccess;
}

int check_cluster(const KernelInfo& info, const Configuration& c,
                  const cudaLaunchAttribute& attribute) {
  constexpr uint64_t kPortable = 8, kMost = 16;
  unsigned size[3];
  memcpy(size, attribute.val, sizeof size);
  uint64_t blocks = uint64_t{size[0]} * size[1] * size[2];
  bool wide = info.attributes[KernelInfo::kNonPortableCluster] != 0;
  if (blocks == 0 || blocks > (wide ? kMost : kPortable)) return kInvalidClusterSize;
  bool whole = c.grid.x % size[0] == 0 && c.grid.y % size[1] == 0 && c.grid.z % size[2] == 0;
  return whole ? kSuccess : kInvalidClusterSize;
}

// All blocks of a cooperative launch must be resident at once.
int check_cooperative(KernelInfo* info, const Configuration& c) {
  constexpr size_t kMultiprocessors = 16;  // cudaDevAttrMultiProcessorCount
  const Device* d = device();
  uint64_t processors =
      d && d->attributes.size() > kMultiprocessors ? d->attributes[kMultiprocessors] : 0;
  int threads = static_cast<int>(c.block.x * c.block.y * c.block.z), resident = 0;
  if (int code = ask_occupancy(info, threads, c.shared, 0, &resident)) return code;
  uint64_t blocks = uint64_t{c.grid.x} * c.grid.y * c.grid.z;
  return blocks > processors * resident ? kCooperativeLaunchTooLarge : kSuccess;
}

int check_attributes(KernelInfo* info, const Configuration& c, const LaunchAttributes& attributes) {
  for (unsigned i = 0; i < attributes.count; ++i) {
    const cudaLaunchAttribute& one = attributes.first[i];
    int code = kSuccess;
    if (one.id == kClusterDimension) code = check_cluster(*info, c, one);
    if (one.id == kCooperative && one.val[0]) code = check_cooperative(info, c);
    if (code) return code;
  }
  return kSuccess;
}

// The event of an attribute that has one, else null.
cudaEvent_t event_in(const cudaLaunchAttribute& attribute) {
  cudaEvent_t event = nullptr;
  if (attribute.id == kProgrammaticEvent || attribute.id == kLaunchCompletionEvent) {
    memcpy(&event, attribute.val, sizeof event);
  }
  return event;
}

void put_dim(Frame* frame, dim3 d) {
  frame->unsigned_integer(d.x);
  frame->unsigned_integer(d.y);
  frame->unsigned_integer(d.z);
}

// cuda.h: the keys of what `extra` lists.
void* const kEnd = nullptr;
void* const kBuffer = reinterpret_cast<void*>(1);
void* const kBufferSize = reinterpret_cast<void*>(2);

// Where the arguments lie if they are in a buffer.
struct Buffer {
  const void* data = nullptr;
  size_t size = 0;

  explicit Buffer(void** extra) {
    for (void** at = extra; at && *at != kEnd; at += 2) {
      if (*at == kBuffer) data = at[1];
      if (*at == kBufferSize) size = *static_cast<size_t*>(at[1]);
    }
  }
};

bool has_arguments(const KernelInfo& info, const Arguments& args) {
  if (args.each || info.parameters.empty()) return true;
  Buffer buffer(args.extra);
  return buffer.data && buffer.size >= info.parameter_bytes;
}

void put_arguments(char* to, const KernelInfo& info, const Arguments& args) {
  memset(to, 0, info.parameter_bytes);
  if (!args.each && info.parameter_bytes) {
    memcpy(to, Buffer(args.extra).data, info.parameter_bytes);
    return;
  }
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    memcpy(to + info.parameters[i].offset, args.each[i], info.parameters[i].size);
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

// As the runtime's calls do it: what is wrong with the call is the thread's last error.
int launch(Kernel* kernel, const Launch& l) {
  int code = kSuccess;
  KernelInfo* info = resolve(kernel, &code);
  if (!info) return report(code);
  code = check_launch(info, l);
  return code ? report(code) : send_launch(info, l);
}

}  // namespace

void put_size(Frame* frame, const Configuration& c) {
  put_dim(frame, c.grid);
  put_dim(frame, c.block);
  frame->unsigned_integer(c.shared);
}

void put_attributes(Frame* frame, const LaunchAttributes& attributes) {
  frame->array(attributes.count);
  for (unsigned i = 0; i < attributes.count; ++i) {
    const cudaLaunchAttribute& one = attributes.first[i];
    cudaEvent_t event = event_in(one);
    if (event && !events().find(event)) frame->refuse(kInvalidResourceHandle);
    frame->array(2);
    frame->integer(one.id);
    frame->bytes(one.val, sizeof one.val);
  }
}

int check_launch(KernelInfo* info, const Launch& l) {
  if (int code = check(*info, l.size)) return code;
  if (!has_arguments(*info, l.args)) return kInvalidValue;
  return check_attributes(info, l.size, l.attributes);
}

int send_launch(KernelInfo* info, const Launch& l) {
  bool plain = l.attributes.count == 0;
  Frame frame(plain ? Number::launch : Number::launch_ex, plain ? 10 : 11);
  frame.unsigned_integer(info->function);
  put_size(&frame, l.size);
  frame.stream(l.size.stream);
  put_arguments(frame.bytes_room(info->parameter_bytes), *info, l.args);
  if (!plain) put_attributes(&frame, l.attributes);
  int code = finish(&frame);
  for (unsigned i = 0; i < l.attributes.count; ++i) {
    int recorded = record_sent(event_in(l.attributes.first[i]), frame.position());
    if (!code) code = recorded;
  }
  return code;
}

cudaLaunchAttribute cooperative() {
  cudaLaunchAttribute attribute{};
  attribute.id = kCooperative;
  attribute.val[0] = 1;
  return attribute;
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
  return launch(static_cast<Kernel*>(kernel), {{grid, block, shared, stream}, {args, nullptr}});
}

MNEMOSYNE_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                                           size_t shared, cudaStream_t stream) {
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  return launch(kernel, {{grid, block, shared, stream}, {args, nullptr}});
}

MNEMOSYNE_API cudaError_t cudaLaunchKernelExC(const void* config, const void* function,
                                              void** args) {
  if (!config) return report(kInvalidValue);
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  const auto& c = *static_cast<const cudaLaunchConfig_t*>(config);
  return launch(kernel, {{c.gridDim, c.blockDim, c.dynamicSmemBytes, c.stream},
                         {args, nullptr},
                         {c.attrs, c.numAttrs}});
}

MNEMOSYNE_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                      void** args, size_t shared,
                                                      cudaStream_t stream) {
  Kernel* kernel = find_kernel(function);
  if (!kernel) return report(kInvalidDeviceFunction);
  cudaLaunchAttribute together = cooperative();
  return launch(kernel, {{grid, block, shared, stream}, {args, nullptr}, {&together, 1}});
}
