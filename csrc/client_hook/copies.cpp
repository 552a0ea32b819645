// Copies. Which way one goes depends on the pointers: device memory and pinned memory lie in the
// session's slots, everything else is pageable memory of this process and travels inline (small) or
// through the staging area in front of the host slot.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "frame.h"
#include "hostcopy.h"
#include "memory.h"

namespace mnemosyne {
namespace {

constexpr size_t kInline = 8 << 10;
constexpr size_t kFetch = 4 << 10;  // must fit into a reply
constexpr size_t kPiece = 2 << 20;
constexpr size_t kMostPieces = 16;  // each may hold a reply slot
constexpr size_t kAhead = 4;        // pieces of a copy to the host that are on their way at once

// A part of the staging area that one copy uses.
struct Piece {
  uint64_t start;   // counted on and on, like positions in the ring
  uint64_t offset;  // in the host slot
  int slot;         // free once the reply arrives here, or one of the values below
};
constexpr int kInUse = -2;
constexpr int kFree = kNoReply;

// The staging area, used as a ring: pieces are handed out and become free in order.
class Staging {
 public:
  // `size` bytes in one piece; waits for earlier ones. Null when the server is gone, or when that
  // would be a wait for another thread and the caller must not: it has pieces itself.
  Piece* take(Session* s, size_t size, bool has_pieces = false) {
    std::unique_lock<std::mutex> lock(mutex_);
    size = (size + 63) & ~size_t{63};
    uint64_t area = s->staging_bytes;
    for (;;) {
      uint64_t start = next_;  // again after each wait: other threads take pieces meanwhile
      if (start % area + size > area) start += area - start % area;  // pieces never wrap
      bool fits = pieces_.empty() || start + size - pieces_.front().start <= area;
      if (fits && pieces_.size() < kMostPieces) {
        pieces_.push_back({start, start % area, kInUse});
        next_ = start + size;
        return &pieces_.back();
      }
      int slot = pieces_.front().slot;
      if (slot == kInUse) {
        if (has_pieces) return nullptr;
        released_.wait(lock);
        continue;
      }
      pieces_.pop_front();
      if (slot != kFree && !retire_slot(s, slot)) return nullptr;
    }
  }
  void free_after(Piece* piece, int slot) {
    std::lock_guard<std::mutex> lock(mutex_);
    piece->slot = slot;
    released_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::deque<Piece> pieces_;  // addresses stay valid: only the ends change
  uint64_t next_ = 0;
};
Staging& staging() {
  static Staging* one = new Staging;
  return *one;
}

// Sends a copy; waits for it when the caller's function has to.
int send(Frame* frame, bool wait) {
  if (!wait) return frame->post();
  Reply reply;
  return frame->call(&reply);
}

int copy_in_inline(void* dst, const void* src, size_t n, cudaStream_t stream) {
  Frame frame(Number::copy_inline, 3);
  frame.pointer(dst);
  frame.bytes(src, n);
  frame.stream(stream);
  return frame.post();
}

int copy_from_slot(void* dst, uint64_t offset, size_t n, cudaStream_t stream, bool wait) {
  Frame frame(Number::copy_from_host, 4);
  frame.pointer(dst);
  frame.unsigned_integer(offset);
  frame.unsigned_integer(n);
  frame.stream(stream);
  return send(&frame, wait);
}

// A wait for the stream whose reply comes to *slot while the caller goes on.
int fence(cudaStream_t stream, int* slot) {
  Frame frame(Number::cudaStreamSynchronize, 1);
  frame.stream(stream);
  int code = frame.begin();
  *slot = frame.take_slot();
  return code;
}

void put_copy_to_slot(Frame* frame, uint64_t offset, const void* src, size_t n,
                      cudaStream_t stream) {
  frame->unsigned_integer(offset);
  frame->pointer(src);
  frame->unsigned_integer(n);
  frame->stream(stream);
}

int copy_to_slot(uint64_t offset, const void* src, size_t n, cudaStream_t stream, bool wait) {
  Frame frame(Number::copy_to_host, 4);
  put_copy_to_slot(&frame, offset, src, n, stream);
  return send(&frame, wait);
}

int copy_in_staged(Session* s, void* dst, const void* src, size_t n, cudaStream_t stream) {
  for (size_t done = 0; done < n; done += kPiece) {
    size_t size = n - done < kPiece ? n - done : kPiece;
    Piece* piece = staging().take(s, size);
    if (!piece) return why_not();
    copy_on_host(s->host + piece->offset, static_cast<const char*>(src) + done, size);
    int code = copy_from_slot(static_cast<char*>(dst) + done, piece->offset, size, stream, false);
    int slot = kFree;
    int fenced = fence(stream, &slot);  // also if the code is an earlier call's
    if (!code) code = fenced;
    staging().free_after(piece, slot);
    if (code) return code;
  }
  return kSuccess;
}

// A piece of a copy to the host, on its way.
struct Arriving {
  Arriving(Piece* p, char* to, size_t n)
      : piece(p), dst(to), size(n), frame(Number::copy_to_host, 4) {}
  Piece* piece;
  char* dst;
  size_t size;
  Frame frame;
};

int receive(Session* s, Arriving* a, int code) {
  Reply reply;
  int own = a->frame.begun() ? a->frame.end(&reply) : kUnknown;  // the piece is in use until then
  if (!code) code = own;
  if (!code) copy_on_host(a->dst, s->host + a->piece->offset, a->size);
  staging().free_after(a->piece, kFree);
  return code;
}

int copy_out_staged(Session* s, void* dst, const void* src, size_t n, cudaStream_t stream) {
  std::deque<Arriving> arriving;
  int code = kSuccess;
  for (size_t sent = 0; (sent < n && !code) || !arriving.empty();) {
    size_t size = n - sent < kPiece ? n - sent : kPiece;
    bool more = sent < n && !code && arriving.size() < kAhead;
    Piece* piece = more ? staging().take(s, size, !arriving.empty()) : nullptr;
    if (piece) {
      Arriving& a = arriving.emplace_back(piece, static_cast<char*>(dst) + sent, size);
      put_copy_to_slot(&a.frame, piece->offset, static_cast<const char*>(src) + sent, size, stream);
      code = a.frame.begin();
      sent += size;
      continue;
    }
    if (arriving.empty()) return why_not();
    int received = receive(s, &arriving.front(), code);
    arriving.pop_front();
    if (!code) code = received;
  }
  return code;
}

int fetch(void* dst, const void* src, size_t n, cudaStream_t stream) {
  Frame frame(Number::copy_fetch, 3);
  frame.pointer(src);
  frame.unsigned_integer(n);
  frame.stream(stream);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  size_t got;
  const char* data = reply.values().bytes(&got);
  if (!data || got != n) return kUnknown;
  memcpy(dst, data, n);
  return kSuccess;
}

int copy_in(Session* s, void* dst, const void* src, size_t n, cudaStream_t stream, bool wait) {
  if (s->is_pinned(src, n)) return copy_from_slot(dst, s->host_offset(src), n, stream, wait);
  if (n <= kInline) return copy_in_inline(dst, src, n, stream);
  return copy_in_staged(s, dst, src, n, stream);
}

int copy_out(Session* s, void* dst, const void* src, size_t n, cudaStream_t stream, bool wait) {
  if (s->is_pinned(dst, n)) return copy_to_slot(s->host_offset(dst), src, n, stream, wait);
  if (n <= kFetch) return fetch(dst, src, n, stream);
  return copy_out_staged(s, dst, src, n, stream);
}

int copy_device(void* dst, const void* src, size_t n, cudaStream_t stream) {
  Frame frame(Number::copy_device, 4);
  frame.pointer(dst);
  frame.pointer(src);
  frame.unsigned_integer(n);
  frame.stream(stream);
  return frame.post();
}

// Natively a copy between host buffers waits for the stream's earlier work.
int copy_host(void* dst, const void* src, size_t n, cudaStream_t stream) {
  Frame frame(Number::cudaStreamSynchronize, 1);
  frame.stream(stream);
  Reply reply;
  int code = frame.call(&reply);
  if (!code) memcpy(dst, src, n);
  return code;
}

enum Kind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

// Copies that wait say at once, as natively, that nothing is there.
int check_allocated(const void* p, size_t n) {
  if (is_allocated(p, n)) return kSuccess;
  return report(kInvalidValue, "mnemosyne: there is no device memory of %zu bytes at %p", n, p);
}

int copy(void* dst, const void* src, size_t n, int kind, cudaStream_t stream, bool wait) {
  if (n == 0) return kSuccess;
  if (!dst || !src || kind < kHostToHost || kind > kDefault) return kInvalidValue;
  Session* s = session();
  if (!s) return why_not();
  bool to_device = s->is_device(dst), from_device = s->is_device(src);  // the server checks n
  bool wants_to = kind == kHostToDevice || kind == kDeviceToDevice;
  bool wants_from = kind == kDeviceToHost || kind == kDeviceToDevice;
  if (kind != kDefault && (wants_to > to_device || wants_from > from_device)) return kInvalidValue;
  int code = wait && to_device ? check_allocated(dst, n) : kSuccess;
  if (!code && wait && from_device) code = check_allocated(src, n);
  if (code) return code;
  if (to_device && from_device) return copy_device(dst, src, n, stream);
  if (to_device) return copy_in(s, dst, src, n, stream, wait);
  if (from_device) return copy_out(s, dst, src, n, stream, wait);
  return copy_host(dst, src, n, stream);
}

int copy_2d(char* dst, size_t dpitch, const char* src, size_t spitch, size_t width, size_t height,
            int kind, cudaStream_t stream, bool wait) {
  if (width == 0 || height == 0) return kSuccess;
  if (width > dpitch || width > spitch) return kInvalidPitch;
  if (width == dpitch && width == spitch) return copy(dst, src, width * height, kind, stream, wait);
  Session* s = session();
  if (!s) return why_not();
  if (s->is_device(dst) && s->is_device(src)) {
    size_t further = height - 1;
    int code = wait ? check_allocated(dst, further * dpitch + width) : kSuccess;
    if (!code && wait) code = check_allocated(src, further * spitch + width);
    if (code) return code;
    Frame frame(Number::copy_device_2d, 7);
    frame.pointer(dst);
    frame.unsigned_integer(dpitch);
    frame.pointer(src);
    frame.unsigned_integer(spitch);
    frame.unsigned_integer(width);
    frame.unsigned_integer(height);
    frame.stream(stream);
    return frame.post();
  }
  for (size_t row = 0; row < height; ++row) {
    if (int code = copy(dst + row * dpitch, src + row * spitch, width, kind, stream, wait))
      return code;
  }
  return kSuccess;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t);
MNEMOSYNE_API cudaError_t cudaMemset2DAsync(void*, size_t, int, size_t, size_t, cudaStream_t);

MNEMOSYNE_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, int kind,
                                          cudaStream_t stream) {
  return report(copy(dst, src, n, kind, stream, false));
}

MNEMOSYNE_API cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, int kind) {
  return report(copy(dst, src, n, kind, nullptr, true));
}

MNEMOSYNE_API cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t n,
                                              cudaStream_t stream) {
  return report(copy(dst, src, n, kDeviceToDevice, stream, false));
}

MNEMOSYNE_API cudaError_t cudaMemcpyPeer(void* dst, int, const void* src, int, size_t n) {
  return report(copy(dst, src, n, kDeviceToDevice, nullptr, true));
}

MNEMOSYNE_API cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src,
                                            size_t spitch, size_t width, size_t height, int kind,
                                            cudaStream_t stream) {
  return report(copy_2d(static_cast<char*>(dst), dpitch, static_cast<const char*>(src), spitch,
                        width, height, kind, stream, false));
}

MNEMOSYNE_API cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch,
                                       size_t width, size_t height, int kind) {
  return report(copy_2d(static_cast<char*>(dst), dpitch, static_cast<const char*>(src), spitch,
                        width, height, kind, nullptr, true));
}

MNEMOSYNE_API cudaError_t cudaMemset(void* p, int value, size_t n) {
  return cudaMemsetAsync(p, value, n, nullptr);
}

MNEMOSYNE_API cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width,
                                       size_t height) {
  return cudaMemset2DAsync(p, pitch, value, width, height, nullptr);
}
