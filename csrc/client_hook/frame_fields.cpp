// What a frame is made of: numbers, and the handles of the program's, which are checked at the
// call.
#include "capture.h"
#include "descriptions.h"
#include "frame.h"

namespace mnemosyne {
namespace {

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
  leave_errors();
  created_ = table->unpark(flags);
  settled_ = created_ != nullptr;
  if (!created_) created_ = table->add(flags, priority);
  *handle = created_;
  packer_.unsigned_integer(number_of(created_));
}

void Frame::destroy(Handles* table, void* handle) {
  HandleState* state = table->find(handle);
  packer_.unsigned_integer(number_of(state, handle));
  if (state) leave_capture(state);
  settled_ = table == &events() && table->park(handle);
  if (!settled_ && !table->remove(handle)) refuse(kInvalidResourceHandle);
}

}  // namespace mnemosyne
