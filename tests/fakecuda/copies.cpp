// Copies and memsets, in streams.
#include <algorithm>
#include <cstring>

#include "fakecuda.h"

namespace fakecuda {
namespace {

// A rectangle of memory; a plain range is one row.
struct Rows {
  CUdeviceptr start;
  size_t pitch = 0;
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
};

void expect(const Place& place, const Rows& rows) {
  if (rows.type == CU_MEMORYTYPE_UNIFIED || place.device == (rows.type == CU_MEMORYTYPE_DEVICE)) {
    return;
  }
  die("0x%llx is %sdevice memory", rows.start, place.device ? "" : "not ");
}

// Pageable memory is read before the call returns, and written before it returns, as documented.
CUresult copy(Lock& lock, CUstream stream, Rows to, Rows from, size_t width, size_t height = 1) {
  Stream* s = find_stream(stream);
  if (!width || !height) return CUDA_SUCCESS;
  if (height > 1 && (to.pitch < width || from.pitch < width)) return CUDA_ERROR_INVALID_VALUE;
  size_t to_size = to.pitch * (height - 1) + width, from_size = from.pitch * (height - 1) + width;
  if (!can_copy(to.start, to_size) || !can_copy(from.start, from_size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Place target = find_place(to.start, to_size, kWrite);
  Place source = find_place(from.start, from_size, kRead);
  expect(target, to);
  expect(source, from);
  auto staged = std::make_shared<std::string>();
  if (source.pageable) source.bytes = staged->assign(source.bytes, from_size).data();
  auto run = [=, keep = staged] {
    for (size_t row = 0; row < height; ++row) {
      memmove(target.bytes + row * to.pitch, source.bytes + row * from.pitch, width);
    }
  };
  std::vector<Range> touches{{to.start, to_size}};
  if (!source.pageable) touches.push_back({from.start, from_size});
  uint64_t number = enqueue(s, {touches, run});
  return target.pageable ? wait_for(lock, s, number) : CUDA_SUCCESS;
}

CUresult fill(CUstream stream, Rows to, unsigned char value, size_t width, size_t height = 1) {
  Stream* s = find_stream(stream);
  if (!width || !height) return CUDA_SUCCESS;
  if (height > 1 && to.pitch < width) return CUDA_ERROR_INVALID_VALUE;
  size_t size = to.pitch * (height - 1) + width;
  if (!can_copy(to.start, size)) return CUDA_ERROR_INVALID_VALUE;
  char* target = find_shared(to.start, size, kWrite).bytes;
  auto run = [=] {
    for (size_t row = 0; row < height; ++row) memset(target + row * to.pitch, value, width);
  };
  enqueue(s, {{{to.start, size}}, run});
  return CUDA_SUCCESS;
}

Rows rows_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y,
             size_t pitch) {
  if (type == CU_MEMORYTYPE_ARRAY) die("arrays are not faked");
  CUdeviceptr start = type == CU_MEMORYTYPE_HOST ? number(host) : device;
  return {start + y * pitch + x, pitch, type};
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return call(__func__, kContext,
              [&](Lock& lock) { return copy(lock, stream, {to}, {from}, size); });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return call(__func__, kContext, [&](Lock& lock) {
    Rows host{number(from), 0, CU_MEMORYTYPE_HOST};
    return copy(lock, stream, {to, 0, CU_MEMORYTYPE_DEVICE}, host, size);
  });
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return call(__func__, kContext, [&](Lock& lock) {
    Rows host{number(to), 0, CU_MEMORYTYPE_HOST};
    return copy(lock, stream, host, {from, 0, CU_MEMORYTYPE_DEVICE}, size);
  });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return call(__func__, kContext, [&](Lock& lock) {
    Rows target{to, 0, CU_MEMORYTYPE_DEVICE}, source{from, 0, CU_MEMORYTYPE_DEVICE};
    return copy(lock, stream, target, source, size);
  });
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) {
  return call(__func__, kContext, [&](Lock& lock) {
    Rows to =
        rows_of(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstPitch);
    Rows from =
        rows_of(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcPitch);
    return copy(lock, stream, to, from, c->WidthInBytes, c->Height);
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream) {
  return call(__func__, kContext, [&](Lock&) { return fill(stream, {to}, value, size); });
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return call(__func__, kContext, [&](Lock&) {
    size_t size = count * sizeof value;
    auto* words = reinterpret_cast<uint32_t*>(find_shared(to, size, kWrite).bytes);
    enqueue(find_stream(stream), {{{to, size}}, [=] { std::fill_n(words, count, value); }});
    return CUDA_SUCCESS;
  });
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return call(__func__, kContext,
              [&](Lock&) { return fill(stream, {to, pitch}, value, width, height); });
}
