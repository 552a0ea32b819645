#include "frame.h"

#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "capture.h"
#include "cudnn.h"
#include "descriptions.h"
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

int alignment_class(const void* p) {
  auto v = reinterpret_cast<uintptr_t>(p) | 256;
  return __builtin_ctzll(v);
}

uint64_t number_of(void* handle) { return reinterpret_cast<uint64_t>(handle); }

// A descriptor may be one that the program has ended.
uint64_t number_of(const HandleState* state, void* handle) {
  return state && state->number ? state->number : number_of(handle);
}

// The three names of the session's own stream are one number on the wire.
uint64_t number_of_stream(cudaStream_t s) { return is_own_stream(s) ? 0 : number_of(s); }

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

Frame::Frame(Number number, uint32_t fields, Codes codes)
    : codes_(codes), content_(static_cast<uint64_t>(number)) {
  packer_.array(fields + 1);
  packer_.integer(static_cast<int>(number));
}

void Frame::integer(int64_t v) {
  packer_.integer(v);
  mix(v);
}

void Frame::unsigned_integer(uint64_t v) {
  packer_.unsigned_integer(v);
  mix(v);
}

void Frame::real(double v) { packer_.real(v); }

void Frame::pointer(const void* p) {
  packer_.unsigned_integer(reinterpret_cast<uint64_t>(p));
  mix(alignment_class(p));
}

void Frame::stream(cudaStream_t s) {
  stream_ = find_stream(s);
  if (!stream_) refuse(kInvalidResourceHandle);
  packer_.unsigned_integer(number_of_stream(s));
}

// A parked event that is used again has the server's old record: none must see it.
void Frame::event(cudaEvent_t e) {
  event_ = events().find(e);
  if (!event_) refuse(kInvalidResourceHandle);
  packer_.unsigned_integer(event_ && event_->is_blank() ? kBlankEvent : number_of(e));
}

void Frame::event_itself(cudaEvent_t e) {
  if (!events().find(e)) refuse(kInvalidResourceHandle);
  packer_.unsigned_integer(number_of(e));
}

void Frame::blas(cublasHandle_t handle) {
  HandleState* state = blas_handles().find(handle);
  packer_.unsigned_integer(number_of(handle));
  if (!state) return refuse(kInvalidResourceHandle);
  stream_ = find_stream(state->blas.stream);
  scalars_on_device_ = state->blas.pointer_mode != 0;
  mix(state->blas.math_mode);
  BlasSettings settings = state->blas;
  Capture* c = capture();
  BlasSettings* known = &state->blas_sent;
  if (c) known = &c->blas->try_emplace(state, BlasSettings::unknown()).first->second;
  if (settings == *known) return;
  Frame configure(Number::blas_configure, 7, codes_);
  configure.packer_.unsigned_integer(number_of(handle));
  configure.packer_.unsigned_integer(number_of_stream(settings.stream));
  configure.integer(settings.math_mode);
  configure.integer(settings.pointer_mode);
  configure.pointer(settings.workspace);
  configure.unsigned_integer(settings.workspace_bytes);
  configure.integer(settings.sm_count);
  if (!stream_) configure.refuse(kInvalidResourceHandle);
  if (c) configure.stream_ = stream_;
  int code = configure.post();
  if (code) return refuse(code);
  *known = settings;
}

void Frame::cudnn(cudnnHandle_t handle) {
  HandleState* state = cudnn_handles().find(handle);
  packer_.unsigned_integer(number_of(handle));
  if (!state) refuse(kInvalidResourceHandle);
  stream(state ? state->stream : nullptr);
}

void Frame::function(const char* name) {
  packer_.text(name);
  for (const char* c = name; *c; ++c) mix(*c);
}

void Frame::library_stream(Handles* table, void* handle) {
  owner_ = handle ? table->find(handle) : nullptr;
  stream(owner_ ? owner_->stream : nullptr);
  if (int code = uncapturable()) refuse(code);  // a library may wait for the GPU
  scalars_on_device_ = owner_ && owner_->pointer_mode != 0;
}

void Frame::work_area() { pointer(owner_ ? owner_->work_area : nullptr); }

void Frame::object(Handles* table, void* handle, bool describes) {
  HandleState* state = table->find(handle);
  if (state && !describes) send_description(state, handle);
  packer_.unsigned_integer(number_of(state, handle));
  if (!state) return refuse(kInvalidResourceHandle);
  mix(state->content);
  if (!object_) object_ = state;
}

void Frame::keep_content() {
  HandleState* changed = created_in_ ? created_in_->find(created_) : object_;
  if (changed) changed->content = content_;
}

void Frame::scalar(const void* p, size_t size) {
  if (scalars_on_device_) return pointer(p);
  if (!p) return refuse(kInvalidValue);
  packer_.bytes(p, size);
}

void Frame::result(void* p, size_t size) {
  if (!p) refuse(kInvalidValue);
  if (scalars_on_device_) return pointer(p);
  comes_back(p, size);
  pointer(nullptr);
}

void Frame::in_out(void* p, size_t size) {
  scalar(p, size);
  if (!scalars_on_device_) comes_back(p, size);
}

void Frame::info(int* p) {
  if (!p) refuse(kInvalidValue);
  info_ = p;
}

void Frame::bytes(const void* p, size_t size) { packer_.bytes(p, size); }

void Frame::content_bytes(const void* p, size_t size) {
  bytes(p, size);
  for (size_t i = 0; i < size; ++i) mix(static_cast<const unsigned char*>(p)[i]);
}

char* Frame::bytes_room(size_t size) { return packer_.bytes_room(size); }
void Frame::text(const char* s) { packer_.text(s); }
void Frame::array(uint32_t count) { packer_.array(count); }

void Frame::packed(const std::string& values, const std::string& content) {
  packer_.append(values.data(), values.size());
  for (unsigned char c : content) mix(c);
}

void Frame::create(Handles* table, void** handle, unsigned flags, int priority) {
  if (!handle) {
    packer_.unsigned_integer(0);
    return refuse(kInvalidValue);
  }
  created_in_ = table;
  created_ = table->unpark(flags);
  settled_ = created_ != nullptr;
  if (!created_) created_ = table->add(flags, priority);
  *handle = created_;
  packer_.unsigned_integer(number_of(created_));
}

void Frame::destroy(Handles* table, void* handle) {
  packer_.unsigned_integer(number_of(table->find(handle), handle));
  settled_ = table == &events() && table->park(handle);
  if (!settled_ && !table->remove(handle)) refuse(kInvalidResourceHandle);
}

int Frame::code_of(int cuda_error) const {
  if (codes_ <= Codes::kDriver || cuda_error == kSuccess) return cuda_error;
  for (const Wording& wording : kWordings) {
    if (wording.cuda() == cuda_error) return wording.of(codes_);
  }
  return kOther.of(codes_);
}

Session* Frame::ready(int* code) {
  Session* s = refused_ ? nullptr : session();
  if (s) return s;
  bool silent = codes_ == Codes::kDriver;
  *code = undone(!refused_ ? why_not() : silent ? refused_ : report(refused_));
  return nullptr;
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
  if (events) events->join(stream_);
  return events;
}

// A wait adds nothing to a sequence of frames.
int Frame::keep(Capture* c) {
  bool foreign = event_ && event_->captured.load(std::memory_order_relaxed) != c->id;
  if (foreign) return code_of(report(c->fail(kStreamCaptureIsolation)));
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
  if (settled_) return code_of(take_late_error());
  position_ = send_frame(s, packer_.data(), packer_.size(), kNoReply);
  return sent(code_of(take_late_error()));
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
  int late = take_late_error();
  if (codes_ == Codes::kCuda) report(code);
  return code ? code : code_of(late);
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
