// What goes into streams: launches, copies, events and waits.
#include "executor.h"

namespace mnemosyne::cuda {
namespace {

// cuda.h: what `extra` of cuLaunchKernel holds.
void* const kParamBuffer = reinterpret_cast<void*>(1);
void* const kParamSize = reinterpret_cast<void*>(2);
void* const kParamEnd = nullptr;

// CUlaunchAttributeID of what may pass: attributes without handles or pointers in them.
bool may_pass(int attribute) {
  constexpr int kCooperative = 2, kSynchronizationPolicy = 3, kClusterDimension = 4,
                kClusterPolicy = 5, kProgrammaticSerialization = 6, kPriority = 8,
                kMemSyncDomain = 10, kPreferredCluster = 11, kPreferredCarveout = 14;
  for (int known : {kCooperative, kSynchronizationPolicy, kClusterDimension, kClusterPolicy,
                    kProgrammaticSerialization, kPriority, kMemSyncDomain, kPreferredCluster,
                    kPreferredCarveout}) {
    if (attribute == known) return true;
  }
  return false;
}

}  // namespace

void CudaExecutor::execute(const calls::launch& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  put(c.stream, c.kName, a, [&](Stream s) {
    return driver().cuLaunchKernel(f.handle, c.gridX, c.gridY, c.gridZ, c.blockX, c.blockY,
                                   c.blockZ, c.sharedMem, s, nullptr, extra);
  });
}

void CudaExecutor::execute(const calls::launch_ex& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  std::vector<LaunchAttribute> attributes;
  Unpacker u = c.attributes.values();
  for (uint32_t n = u.array(); n; --n) {
    uint32_t fields = u.array();
    LaunchAttribute attribute{};
    attribute.id = static_cast<int>(u.integer());
    size_t length;
    const char* value = u.bytes(&length);
    if (fields != 2 || !u.ok() || length != sizeof attribute.value) {
      throw std::invalid_argument("launch_ex: its attributes are not [id, 64 bytes]");
    }
    memcpy(attribute.value, value, length);
    if (attribute.id == 0) continue;  // CU_LAUNCH_ATTRIBUTE_IGNORE
    if (!may_pass(attribute.id)) {
      std::string text = "launch attribute " + std::to_string(attribute.id) + " is not supported";
      return a->fail(kNotSupported, kNotSupported, text);
    }
    attributes.push_back(attribute);
  }
  put(c.stream, c.kName, a, [&](Stream s) {
    LaunchConfig config{c.gridX,  c.gridY,     c.gridZ, c.blockX,          c.blockY,
                        c.blockZ, c.sharedMem, s,       attributes.data(), 0};
    config.attribute_count = static_cast<unsigned>(attributes.size());
    return driver().cuLaunchKernelEx(&config, f.handle, nullptr, extra);
  });
}

// The driver copies from memory that is not registered before it returns.
void CudaExecutor::execute(const calls::copy_inline& c, Answer* a) {
  check_device(c.dst, c.data.size, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyHtoDAsync_v2(c.dst, c.data.data, c.data.size, s); });
}

void CudaExecutor::execute(const calls::copy_fetch& c, Answer* a) {
  constexpr uint64_t kMost = kReplyBytes - 64;
  if (c.count > kMost) return a->fail(kInvalidValue, kInvalidValue, "copy_fetch: too many bytes");
  check_device(c.src, c.count, c.kName, a);
  if (a->status || !a->wanted()) return;
  char* to = a->prepare(c.count);
  if (!to) return;
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoHAsync_v2(to, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_from_host& c, Answer* a) {
  check_device(c.dst, c.count, c.kName, a);
  void* from = host(c.hostOffset, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyHtoDAsync_v2(c.dst, from, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_to_host& c, Answer* a) {
  check_device(c.src, c.count, c.kName, a);
  void* to = host(c.hostOffset, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoHAsync_v2(to, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_device& c, Answer* a) {
  check_device(c.dst, c.count, c.kName, a);
  check_device(c.src, c.count, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemcpyDtoDAsync_v2(c.dst, c.src, c.count, s); });
}

void CudaExecutor::execute(const calls::copy_device_2d& c, Answer* a) {
  if (c.width == 0 || c.height == 0) return;
  check_rows(c.dst, c.dpitch, c.width, c.height, c.kName, a);
  check_rows(c.src, c.spitch, c.width, c.height, c.kName, a);
  Copy2d copy{};
  copy.src_type = copy.dst_type = kDeviceMemory;
  copy.src_device = c.src;
  copy.dst_device = c.dst;
  copy.src_pitch = c.spitch;
  copy.dst_pitch = c.dpitch;
  copy.width = c.width;
  copy.height = c.height;
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuMemcpy2DAsync_v2(&copy, s); });
}

void CudaExecutor::execute(const calls::cudaMemsetAsync& c, Answer* a) {
  check_device(c.devPtr, c.count, c.kName, a);
  auto value = static_cast<unsigned char>(c.value);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemsetD8Async(c.devPtr, value, c.count, s); });
}

void CudaExecutor::execute(const calls::cudaMemset2DAsync& c, Answer* a) {
  if (c.width == 0 || c.height == 0) return;
  check_rows(c.devPtr, c.pitch, c.width, c.height, c.kName, a);
  auto value = static_cast<unsigned char>(c.value);
  put(c.stream, c.kName, a, [&](Stream s) {
    return driver().cuMemsetD2D8Async(c.devPtr, c.pitch, value, c.width, c.height, s);
  });
}

void CudaExecutor::execute(const calls::event_record& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuEventRecordWithFlags(e, s, c.flags & 1); });
}

void CudaExecutor::execute(const calls::event_query& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  int code = e ? driver().cuEventQuery(e) : kSuccess;
  code == kNotReady ? a->fail(code, 0, "") : failed(code, c.kName, a);
}

void CudaExecutor::execute(const calls::stream_query& c, Answer* a) {
  SessionStream* s = stream(c.stream, c.kName, a);
  if (!s || streams_.is_done(s)) return;
  int code = streams_.order(s);
  if (!code) code = driver().cuStreamQuery(s->handle);
  code == kNotReady ? a->fail(code, 0, "") : failed(code, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaStreamWaitEvent& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuStreamWaitEvent(s, e, 0); });
}

void CudaExecutor::execute(const calls::cudaStreamSynchronize& c, Answer* a) {
  SessionStream* s = stream(c.stream, c.kName, a);
  if (!s || !a->wanted()) return;
  failed(streams_.order(s), c.kName, a);
  answer_after(s, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaDeviceSynchronize& c, Answer* a) {
  if (!a->wanted() || streams_.idle()) return;
  failed(streams_.fence_all(), c.kName, a);
  Stream all = waiter(a);
  if (!a->status) failed(streams_.join_all(all), c.kName, a);
  answer_in(all, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaEventSynchronize& c, Answer* a) {
  Event e = event(c.event, c.kName, a);
  if (!e || !a->wanted() || driver().cuEventQuery(e) == kSuccess) return;
  Stream waits = waiter(a);
  if (!a->status) failed(driver().cuStreamWaitEvent(waits, e, 0), c.kName, a);
  answer_in(waits, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaEventElapsedTime& c, Answer* a) {
  Event start = event(c.start, c.kName, a);
  Event end = event(c.end, c.kName, a);
  float milliseconds = 0;
  if (a->status) return;
  int code = driver().cuEventElapsedTime(&milliseconds, start, end);
  if (code == kNotReady) return a->fail(code, 0, "");
  failed(code, c.kName, a);
  a->outputs.real(milliseconds);
  a->output_count = 1;
}

}  // namespace mnemosyne::cuda
