// A call on its way: builds the frame, checks handles at the call, sends it and reads the reply.
#pragma once

#include "../common/msgpack.h"
#include "../generated/numbers.h"
#include "errors.h"
#include "handles.h"
#include "session.h"

namespace mnemosyne {

// A reply's outputs after a status of zero. Copied out of the slot, so it can be kept.
class Reply {
 public:
  Reply() : unpacker_(nullptr, 0) {}
  void read(const char* data, size_t size) {
    text_.assign(data, size);
    unpacker_ = Unpacker(text_.data(), text_.size());
  }
  // One that was kept, of a call that succeeded.
  void read_outputs(const std::string& raw) {
    read(raw.data(), raw.size());
    unpacker_.array();
    unpacker_.integer();
  }
  Unpacker& values() { return unpacker_; }
  const std::string& raw() const { return text_; }

 private:
  std::string text_;
  Unpacker unpacker_;
};

// How a library words "invalid handle", "no server" and the like. The driver has the runtime's
// codes, but its errors are never the thread's last one.
enum class Codes { kCuda, kDriver, kBlas, kCudnn, kFft, kSolver, kSparse };

class Frame {
 public:
  Frame(Number number, uint32_t fields, Codes codes = Codes::kCuda);
  ~Frame();

  void integer(int64_t v);
  void unsigned_integer(uint64_t v);
  void real(double v);
  void pointer(const void* p);
  void stream(cudaStream_t s);
  void event(cudaEvent_t e);  // whose record matters
  void event_itself(cudaEvent_t e);
  void blas(cublasHandle_t handle);  // sends the handle's settings first, if they changed
  void cudnn(cudnnHandle_t handle);  // and its stream: two fields
  void function(const char* name);   // of a library
  // The stream of its handle, if it has one. Scalars that follow are as the handle says.
  void library_stream(Handles* table, void* handle);
  void work_area();  // that handle's
  // A handle or descriptor among the arguments; `describes`: the call only sets it.
  void object(Handles* table, void* handle, bool describes = false);
  void scalar(const void* p, size_t size);  // as the pointer mode of the handle says
  // Where a scalar goes to, and one that is changed in place: as the pointer mode says. What comes
  // back to host memory is there when once() returns, with success.
  void result(void* p, size_t size);
  void in_out(void* p, size_t size);
  // Where once() puts what a library says of the arguments; always in host memory, not in the
  // frame.
  void info(int* p);
  void bytes(const void* p, size_t size);
  void content_bytes(const void* p, size_t size);  // the same, and they decide; see content()
  char* bytes_room(size_t size);
  void text(const char* s);
  void array(uint32_t count);
  void packed(const std::string& values) { packed(values, values); }  // already encoded
  void packed(const std::string& values, const std::string& content);

  // The client invents a handle; it is forgotten again when the frame cannot be sent.
  void create(Handles* table, void** handle, unsigned flags = 0, int priority = 0);
  // After success: the frame has changed the object that it made, or named first.
  void keep_content();
  void destroy(Handles* table, void* handle);
  // An earlier call's error is left for the next call: with this one's result, what it makes would
  // be lost. So it is with whatever create() makes.
  void leave_errors() { leaves_errors_ = true; }
  // Keeps the frame, which makes or sets an object, until that is used; see descriptions.h.
  int describe();
  // A check at the call failed: the frame is not sent and `code` is the call's result.
  void refuse(int code) { refused_ = refused_ ? refused_ : code; }

  // Sends without waiting. Returns a code of the library, an earlier asynchronous error included.
  int post();
  // Sends and waits for the reply.
  int call(Reply* reply);
  // The same for a question that the content decides: it is sent once.
  int ask(Reply* reply);
  // The two halves of call(): end() may be called later, and once if begin() returned zero.
  int begin();
  int end(Reply* reply);
  bool begun() const { return slot_ != kNoReply; }
  // Waits for the reply until this content has succeeded once; from then on posts, unless something
  // comes back to host memory.
  int once();

  // Why the program cannot be answered while a graph is captured, a cudaError_t; zero if it can.
  int uncapturable();

  // Gives away the slot where the reply of begin() arrives; see retire_slot().
  int take_slot();
  // Hash of what decides whether a library can do the call: sizes, alignments, descriptors.
  uint64_t content() const { return content_; }
  uint64_t position() const { return position_; }  // of the frame in the ring, once sent

 private:
  Session* ready(int* code);
  bool fits(size_t most);
  Capture* capture();
  int keep(Capture* capture);
  int code_of(int cuda_error) const;
  int late_error() const;
  int sent(int code);
  int undone(int cuda_error);
  void mix(uint64_t v) { content_ = (content_ ^ v) * 0x9e3779b97f4a7c15 ^ content_ >> 29; }

  void comes_back(void* p, size_t size) { places_[place_count_++] = {p, size}; }
  int take(Reply* reply);

  struct Place {
    void* to;
    size_t size;
  };
  static constexpr int kMostPlaces = 4;  // of the four outputs of a rotation

  Packer packer_;
  Codes codes_;
  int refused_ = 0;
  uint64_t content_;
  uint64_t position_ = 0;
  int slot_ = kNoReply;
  bool leaves_errors_ = false;
  bool settled_ = false;  // by parking: there is nothing to send
  HandleState* stream_ = nullptr;
  HandleState* event_ = nullptr;
  HandleState* owner_ = nullptr;   // the library's handle
  HandleState* object_ = nullptr;  // what it names first
  bool scalars_on_device_ = false;
  Place places_[kMostPlaces];
  int place_count_ = 0;
  int* info_ = nullptr;
  Handles* created_in_ = nullptr;
  void* created_ = nullptr;
};

}  // namespace mnemosyne
