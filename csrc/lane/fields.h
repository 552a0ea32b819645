// How the fields of a frame are read where the lane executes it. What a field means is the
// executor's to check; here only its form is.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "../common/msgpack.h"

namespace mnemosyne {

// Bytes or text inside the frame; valid while the frame is being executed.
struct Bytes {
  const char* data;
  size_t size;
};

// A nested array, still encoded.
struct List {
  const char* data;
  size_t size;
  Unpacker values() const { return Unpacker(data, size); }
};

// A scalar on the host (its bytes) or on the device (its address). The largest has five elements:
// the parameters of a modified rotation.
struct Scalar {
  alignas(16) char host[kMaxScalar];
  size_t size = 0;
  uint64_t device = 0;
  // Throws std::invalid_argument when it is not where the library will look for it: an address of
  // the client's own means nothing here.
  const void* pointer(bool on_device) const {
    if (on_device == (size != 0)) throw std::invalid_argument("a scalar in the wrong memory");
    return size ? host : reinterpret_cast<const void*>(device);
  }
};

// What a routine of cuBLAS gives back, besides its status.
struct ReturnsResult {};   // a scalar, which goes to device memory or into the reply
struct ChangesScalars {};  // some of its scalars: when they were on the host, into the reply
struct ReturnsInfo {};     // what it says of its arguments; then its status is in the reply as well

// Where a routine finds and leaves what is not in the message.
struct BlasPlaces {
  bool on_device;          // scalars are in device memory
  void* result = nullptr;  // for a result that goes into the reply
  int32_t info = 0;
};

template <typename T>
void get_integer(Unpacker& u, T* to) {
  int64_t v = u.signed_integer();
  if (v < std::numeric_limits<T>::min() || v > std::numeric_limits<T>::max()) {
    throw std::invalid_argument(std::to_string(v) + " is out of range");
  }
  *to = static_cast<T>(v);
}

inline void get(Unpacker& u, int32_t* to) { get_integer(u, to); }
inline void get(Unpacker& u, uint32_t* to) { get_integer(u, to); }
inline void get(Unpacker& u, int64_t* to) { *to = u.signed_integer(); }
inline void get(Unpacker& u, uint64_t* to) { *to = u.unsigned_integer(); }
inline void get(Unpacker& u, double* to) { *to = u.real(); }
inline void get(Unpacker& u, Bytes* to) {
  if (!u.at_bytes()) throw std::invalid_argument("no bytes where they should be");
  to->data = u.bytes(&to->size);
}
inline void get(Unpacker& u, List* to) {
  if (!u.at_array()) throw std::invalid_argument("no list where it should be");
  to->data = u.position();
  u.skip();
  to->size = u.position() - to->data;
}
inline void get(Unpacker& u, Scalar* to) {
  if (!u.at_bytes()) return get(u, &to->device);
  const char* p = u.bytes(&to->size);
  if (!u.ok()) return;
  if (to->size == 0 || to->size > sizeof to->host) {
    throw std::invalid_argument("a scalar of " + std::to_string(to->size) + " bytes");
  }
  memcpy(to->host, p, to->size);
}

// Reads one message's fields, which must be all there is, and runs it.
template <typename Call, typename Run>
void read_and_run(Unpacker& u, Run&& run) {
  Call call;
  call.read(u);
  if (!u.ok() || !u.at_end()) {
    throw std::invalid_argument(std::string(Call::kName) + ": its fields are not as declared");
  }
  run(call);
}

}  // namespace mnemosyne
