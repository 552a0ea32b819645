#include "frame.h"

#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "capture.h"
#include "cudnn.h"
#include "host_functions.h"
#include "tables.h"

namespace mnemosyne {
namespace {

// Contents of library calls that have succeeded; they need no answer any more.
struct Succeeded {
  std::unordered_set<uint64_t> contents;

  bool has(uint64_t content) {
    std::lock_guard<std::mutex> lock(tables_mutex());
    return contents.count(content);
  }
  void add(uint64_t content) {
    constexpr size_t kMost = 1 << 18;  // sparse matrices may have another one in each step
    std::lock_guard<std::mutex> lock(tables_mutex());
    if (contents.size() >= kMost) contents.clear();
    contents.insert(content);
  }
};
Succeeded& succeeded() {
  static Succeeded* one = new Succeeded;
  return *one;
}

// What the libraries' own codes say instead of a cudaError_t.
struct Wording {
  int by_codes[7];  // in the order of Codes
  int cuda() const { return by_codes[0]; }
  int of(Codes codes) const { return by_codes[static_cast<int>(codes)]; }
};
constexpr Wording kWordings[] = {
    {{kInvalidValue, kInvalidValue, kBlasInvalidValue, kCudnnBadParam, kFftInvalidValue,
      kSolverInvalidValue, kSparseInvalidValue}},
    {{kInvalidResourceHandle, kInvalidResourceHandle, kBlasNotInitialized, kCudnnNotInitialized,
      kFftInvalidPlan, kSolverNotInitialized, kSparseNotInitialized}},
    {{kNotSupported, kNotSupported, kBlasNotSupported, kCudnnNotSupported, kFftNotSupported,
      kSolverNotSupported, kSparseNotSupported}},
};
constexpr Wording kOther{{kUnknown, kUnknown, kBlasInternalError, kCudnnInternalError,
                          kFftInternalError, kSolverInternalError, kSparseInternalError}};

}  // namespace

int Frame::code_of(int cuda_error) const {
  if (codes_ <= Codes::kDriver || cuda_error == kSuccess) return cuda_error;
  for (const Wording& wording : kWordings) {
    if (wording.cuda() == cuda_error) return wording.of(codes_);
  }
  return kOther.of(codes_);
}

int Frame::late_error() const { return leaves_errors_ ? kSuccess : code_of(take_late_error()); }

Session* Frame::ready(int* code) {
  Session* s = refused_ ? nullptr : session();
  if (s && host_functions.load(std::memory_order_acquire)) wait_for_functions(stream_);
  if (s && (packer_.size() <= kMaxFrame || fits(kMaxFrame))) return s;
  bool silent = codes_ != Codes::kCuda;
  *code = undone(!refused_ ? why_not() : silent ? refused_ : report(refused_));
  return nullptr;
}

// The server ends a client that sends more than kMaxFrame, and more than kRingBytes never fits.
bool Frame::fits(size_t most) {
  size_t size = packer_.size();
  if (size <= most) return true;
  constexpr char kWhy[] = "the arguments of this call take %zu bytes, more than the %zu that fit";
  char text[sizeof kWhy + 40];
  snprintf(text, sizeof text, kWhy, size, most);
  if (codes_ == Codes::kCuda)
    report(kNotSupported, "mnemosyne: %s", text);
  else if (codes_ == Codes::kCudnn)
    cudnn_failed(kCudnnNotSupported, text);
  else
    say("%s", text);
  refuse(kNotSupported);
  return false;
}

// Nothing has taken effect, so what the frame was to create does not exist.
int Frame::undone(int cuda_error) {
  if (created_in_) created_in_->remove(created_);
  return code_of(cuda_error);
}

int Frame::sent(int code) {
  if (position_ == 0) return undone(why_not());
  if (stream_) stream_->used_by(position_);
  return code;
}

// What the frame belongs to; a stream that waits for a captured event joins its capture.
Capture* Frame::capture() {
  if (!stream_ || refused_) return nullptr;
  Capture* own = stream_->capture.load(std::memory_order_relaxed);
  if (own || !event_) return own;
  Capture* events = find_capture(event_->captured.load(std::memory_order_relaxed));
  if (events && stream_ != find_stream(nullptr)) events->join(stream_);
  return events;
}

// A wait adds nothing to a sequence of frames.
int Frame::keep(Capture* c) {
  // With the null stream, all blocking streams would depend on the capture.
  if (stream_ == find_stream(nullptr)) return code_of(report(c->fail(kStreamCaptureImplicit)));
  bool foreign = event_ && event_->captured.load(std::memory_order_relaxed) != c->id;
  if (foreign) return code_of(report(c->fail(kStreamCaptureIsolation)));
  if (!fits(kMostKept)) return c->fail(refused_), code_of(refused_);
  if (!event_) c->add(packer_.data(), packer_.size());
  return kSuccess;
}

// Questions about cuDNN's plans are no work.
int Frame::uncapturable() {
  if (event_ && !stream_ && is_captured(event_)) return kCapturedEvent;
  Capture* c = codes_ == Codes::kCudnn ? nullptr : capture();
  return c ? c->fail(kStreamCaptureUnsupported) : kSuccess;
}

int Frame::post() {
  if (Capture* c = capture()) return keep(c);
  int code = 0;
  Session* s = ready(&code);
  if (!s) return code;
  if (settled_) return late_error();
  position_ = send_frame(s, packer_.data(), packer_.size(), kNoReply);
  return sent(late_error());
}

int Frame::call(Reply* reply) {
  int code = begin();
  return code ? code : end(reply);
}

int Frame::ask(Reply* reply) {
  constexpr size_t kMost = 1 << 16;
  static auto* answers = new std::unordered_map<uint64_t, std::string>;  // by content
  if (!refused_) {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = answers->find(content_);
    if (found != answers->end()) return reply->read_outputs(found->second), kSuccess;
  }
  if (int code = call(reply)) return code;
  std::lock_guard<std::mutex> lock(tables_mutex());
  if (answers->size() >= kMost) answers->clear();
  (*answers)[content_] = reply->raw();
  return kSuccess;
}

int Frame::begin() {
  if (int code = uncapturable()) return undone(report(code));
  int code = 0;
  Session* s = ready(&code);
  if (!s) return code;
  slot_ = acquire_reply_slot(s);
  if (slot_ < 0) return undone(why_not());
  position_ = send_frame(s, packer_.data(), packer_.size(), slot_);
  return sent(kSuccess);
}

int Frame::take_slot() {
  int slot = slot_;
  slot_ = kNoReply;
  return slot;
}

// A reply that is not waited for here would arrive in a slot that is another frame's by then.
Frame::~Frame() {
  Session* s = slot_ == kNoReply ? nullptr : session();
  if (s) retire_slot(s, slot_);
}

int Frame::end(Reply* reply) {
  int code = 0;
  Session* s = session();
  int slot = take_slot();
  bool answered = s && wait_reply(s, slot);
  if (answered) {
    ReplySlot& from = s->channel->slots[slot];
    reply->read(from.data, from.size <= kReplyBytes ? from.size : 0);
  }
  if (s) release_reply_slot(s, slot);
  if (!answered) return undone(why_not());
  Unpacker& values = reply->values();
  uint32_t count = values.array();
  code = static_cast<int>(values.integer());
  if (!values.ok()) code = code_of(kUnknown);
  if (code < 0) return code;  // between server and stub (MODULE_UNKNOWN); no program sees it
  if (code && count == 2) {
    size_t n;
    const char* why = values.bytes(&n);
    if (why && codes_ == Codes::kCuda) {
      report(code, "mnemosyne: %.*s", static_cast<int>(n), why);
    } else if (why && codes_ == Codes::kCudnn) {
      cudnn_failed(code, std::string(why, n));
    } else if (why && codes_ == Codes::kDriver) {
      explain(code, "mnemosyne: %.*s", static_cast<int>(n), why);
      say("%.*s", static_cast<int>(n), why);
    } else if (why && !(codes_ == Codes::kBlas && code == kBlasNotSupported)) {
      say("%.*s", static_cast<int>(n), why);
    }
  }
  if (code && count == 3 && codes_ == Codes::kCudnn) {
    size_t n;
    values.bytes(&n);  // empty: nobody has to be told now
    const char* why = values.bytes(&n);
    if (why) cudnn_note(std::string(why, n));
  }
  int late = late_error();
  if (codes_ == Codes::kCuda) report(code);
  return code ? code : late;
}

int Frame::once() {
  bool known = capture() || succeeded().has(content_);
  if (known && place_count_ == 0) {
    if (info_ && !refused_) *info_ = 0;  // these arguments are sound
    return post();
  }
  Reply reply;
  int code = call(&reply);
  if (code == 0) code = take(&reply);
  if (code == 0 && !known) succeeded().add(content_);
  return code;
}

// What comes back to host memory. With `info` comes the library's status.
int Frame::take(Reply* reply) {
  Unpacker& values = reply->values();
  for (int i = 0; i < place_count_; ++i) {
    size_t size;
    const char* value = values.bytes(&size);
    if (!value || size != places_[i].size) return code_of(kUnknown);
    memcpy(places_[i].to, value, size);
  }
  if (!info_) return 0;
  *info_ = static_cast<int>(values.integer());
  int status = static_cast<int>(values.integer());
  return values.ok() ? status : code_of(kUnknown);
}

}  // namespace mnemosyne
