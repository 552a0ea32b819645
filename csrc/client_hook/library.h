// Calls of cuFFT, cuSOLVER and cuSPARSE: a function, by name or number, and its arguments.
//
// How this works: a generated stub wraps each argument in the struct that says what it is, and
// passes them to one of the templates at the end. `put` writes what goes into the list, `take`
// reads what comes back; a struct that has neither of them is on one side only.
#pragma once

#include "../common/blas_types.h"
#include "descriptions.h"
#include "frame.h"

namespace mnemosyne {

struct Function {
  Function(Number message, Codes c, const char* function, bool decides = false)
      : carrier(message), codes(c), name(function), makes(decides) {}
  // One that runs: nothing remains of it in a handle.
  Function(Number message, Codes c, uint32_t function)
      : carrier(message), codes(c), number(function) {}

  Number carrier;  // the message
  Codes codes;
  const char* name = nullptr;
  uint32_t number = 0;  // without a name
  // Decides what can be done with the handle that it makes or names first.
  bool makes = false;
};

inline Handles* table_of(int) { return &fft_plans(); }
inline Handles* table_of(void*) { return &library_objects(); }
inline void* pointer_of(int handle) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(handle));
}
inline void* pointer_of(void* handle) { return handle; }
inline void handle_of(void* p, int* handle) {
  *handle = static_cast<int>(reinterpret_cast<intptr_t>(p));
}
inline void handle_of(void* p, void** handle) { *handle = p; }

template <typename H>
struct Object {
  H handle;
};
template <typename H>
struct ObjectOrNull {
  H handle;
};
template <typename H>
struct Described {  // by this call
  H handle;
};
template <typename H>
struct New {
  H* place;
};
template <typename H>
struct Gone {
  H handle;
};
struct Scalar {
  const void* p;
  size_t size;
};
struct Result {
  void* p;
  size_t size;
};
struct HostBytes {
  const void* p;
  size_t size;
  bool may_be_null = false;  // then no bytes are sent
};
struct HostRoom {  // null: nobody wants them
  void* p;
  size_t size;
};
struct Scratch {
  void* p;
};
template <typename T>
struct Out {
  T* place;
};
template <typename T>
struct InOut {
  T* place;
};

template <typename T>
constexpr bool kGoes = true;
template <>
inline constexpr bool kGoes<Scratch> = false;
template <>
inline constexpr bool kGoes<HostRoom> = false;
template <typename T>
inline constexpr bool kGoes<Out<T>> = false;

constexpr size_t kMostHostBytes = 4096;

inline void put(Frame* f, int v) { f->integer(v); }
inline void put(Frame* f, signed char v) { f->integer(v); }
inline void put(Frame* f, long long v) { f->integer(v); }
inline void put(Frame* f, size_t v) { f->unsigned_integer(v); }
inline void put(Frame* f, double v) { f->content_bytes(&v, sizeof v); }
inline void put(Frame* f, const void* p) { f->pointer(p); }
template <typename H>
void put(Frame* f, Object<H> a) {
  f->object(table_of(a.handle), pointer_of(a.handle));
}
template <typename H>
void put(Frame* f, ObjectOrNull<H> a) {
  if (!a.handle) return f->unsigned_integer(0);
  put(f, Object<H>{a.handle});
}
template <typename H>
void put(Frame* f, Described<H> a) {
  f->object(table_of(a.handle), pointer_of(a.handle), true);
}
template <typename H>
void put(Frame* f, New<H> a) {
  void* made = nullptr;
  f->create(table_of(H{}), a.place ? &made : nullptr);
  if (a.place) handle_of(made, a.place);
}
template <typename H>
void put(Frame* f, Gone<H> a) {
  f->destroy(table_of(a.handle), pointer_of(a.handle));
}
inline void put(Frame* f, Scalar a) {
  if (a.size == 0) f->refuse(kNotSupported);
  f->scalar(a.p, a.size);
}
inline void put(Frame* f, Result a) { f->result(a.p, a.size); }
inline void put(Frame* f, HostBytes a) {
  bool sound = a.p ? a.size <= kMostHostBytes : a.may_be_null || !a.size;
  if (!sound) f->refuse(kInvalidValue);
  f->content_bytes(a.p, a.p && sound ? a.size : 0);
}
inline void put(Frame* f, HostRoom a) {
  if (a.size > kReplyBytes - 64) f->refuse(kNotSupported);
}
inline void put(Frame*, Scratch) {}
template <typename T>
void put(Frame* f, Out<T> a) {
  if (!a.place) f->refuse(kInvalidValue);
}
template <typename T>
void put(Frame* f, InOut<T> a) {
  if (!a.place) f->refuse(kInvalidValue);
  f->unsigned_integer(a.place ? *a.place : 0);
}

template <typename Other>
void take(Unpacker*, Other) {}
template <typename T>
void take(Unpacker* u, Out<T> a) {
  *a.place = static_cast<T>(u->integer());
}
template <typename T>
void take(Unpacker* u, InOut<T> a) {
  *a.place = static_cast<T>(u->unsigned_integer());
}
inline void take(Unpacker* u, HostRoom a) {
  size_t size;
  const char* p = u->bytes(&size);
  if (p && a.p && size == a.size) memcpy(a.p, p, size);
}

// The fields of a frame. `handle`: whose stream and pointer mode it is.
template <typename... Arguments>
void fill(Frame* frame, const Function& function, Handles* table, void* handle,
          const Arguments&... arguments) {
  if (function.name) {
    frame->function(function.name);
    frame->library_stream(table, handle);
  } else {
    frame->unsigned_integer(function.number);
    frame->library_stream(table, handle);
    frame->work_area();
  }
  frame->array((0u + ... + uint32_t{kGoes<Arguments>}));
  (put(frame, arguments), ...);
}

inline uint32_t field_count(const Function& function) { return function.name ? 3 : 4; }

template <typename H, typename... Arguments>
int post(const Function& function, H handle, const Arguments&... arguments) {
  Frame frame(function.carrier, field_count(function), function.codes);
  fill(&frame, function, table_of(handle), pointer_of(handle), arguments...);
  int code = frame.post();  // perhaps an earlier call's
  if (frame.position() && function.makes) frame.keep_content();
  return code;
}

// Makes or sets what is only settings, or ends it; see descriptions.h.
template <typename... Arguments>
int describe(const Function& function, void*, const Arguments&... arguments) {
  Frame frame(function.carrier, field_count(function), function.codes);
  fill(&frame, function, nullptr, nullptr, arguments...);
  return frame.describe();
}
inline int retire(const Function& function, void*, Gone<void*> gone) {
  HandleState* state = library_objects().find(gone.handle);
  if (!state || !retire(state)) return post(function, static_cast<void*>(nullptr), gone);
  library_objects().remove(gone.handle);
  return 0;
}

template <typename H, typename... Arguments>
int once(const Function& function, H handle, const Arguments&... arguments) {
  Frame frame(function.carrier, field_count(function), function.codes);
  fill(&frame, function, table_of(handle), pointer_of(handle), arguments...);
  return frame.once();
}

// A question that its arguments decide.
template <typename H, typename... Arguments>
int ask(const Function& function, H handle, const Arguments&... arguments) {
  Frame frame(function.carrier, field_count(function), function.codes);
  fill(&frame, function, table_of(handle), pointer_of(handle), arguments...);
  Reply reply;
  if (int code = frame.ask(&reply)) return code;
  (take(&reply.values(), arguments), ...);
  return 0;
}

template <typename H, typename... Arguments>
int call(const Function& function, H handle, const Arguments&... arguments) {
  Frame frame(function.carrier, field_count(function), function.codes);
  fill(&frame, function, table_of(handle), pointer_of(handle), arguments...);
  if (function.makes) frame.leave_errors();
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  (take(&reply.values(), arguments), ...);
  if (function.makes) frame.keep_content();
  return 0;
}

}  // namespace mnemosyne
