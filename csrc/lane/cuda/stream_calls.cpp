// What goes into streams besides launches: copies, events and waits.
#include "executor.h"

namespace mnemosyne::cuda {
namespace {

// CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL, which the driver takes in a capture alone.
constexpr uint32_t kExternal = 1;

}  // namespace

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

void CudaExecutor::execute(const calls::memset_words& c, Answer* a) {
  uint64_t most = place_.device_bytes / sizeof(uint32_t);
  check_device(c.devPtr, c.count > most ? place_.device_bytes + 1 : c.count * sizeof(uint32_t),
               c.kName, a);
  put(c.stream, c.kName, a,
      [&](Stream s) { return driver().cuMemsetD32Async(c.devPtr, c.value, c.count, s); });
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
  unsigned flags = streams_.captures() ? c.flags & kExternal : 0;
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuEventRecordWithFlags(e, s, flags); });
}

void CudaExecutor::execute(const calls::event_query& c, Answer* a) {
  Event e = past_event(c.event, c.kName, a);
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
  Event e = past_event(c.event, c.kName, a);
  unsigned flags = streams_.captures() ? c.flags & kExternal : 0;
  put(c.stream, c.kName, a, [&](Stream s) { return driver().cuStreamWaitEvent(s, e, flags); });
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
  Event e = past_event(c.event, c.kName, a);
  if (!e || !a->wanted() || driver().cuEventQuery(e) == kSuccess) return;
  Stream waits = waiter(a);
  if (!a->status) failed(driver().cuStreamWaitEvent(waits, e, 0), c.kName, a);
  answer_in(waits, c.kName, a);
}

void CudaExecutor::execute(const calls::cudaEventElapsedTime& c, Answer* a) {
  Event start = past_event(c.start, c.kName, a);
  Event end = past_event(c.end, c.kName, a);
  float milliseconds = 0;
  if (a->status) return;
  int code = driver().cuEventElapsedTime(&milliseconds, start, end);
  if (code == kNotReady) return a->fail(code, 0, "");
  failed(code, c.kName, a);
  a->outputs.real(milliseconds);
  a->output_count = 1;
}

}  // namespace mnemosyne::cuda
