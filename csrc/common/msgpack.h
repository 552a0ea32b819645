// The part of msgpack that frames use, in its shortest encodings (as the msgpack package writes
// it).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace mnemosyne {

// Bounds of nested arrays and of scalars; see mnemosyne/protocol/frames.py.
constexpr uint32_t kMaxList = 1024;
constexpr int kMaxDepth = 64;
constexpr uint32_t kMaxScalar = 40;  // bytes

// Appends values to a buffer: on the stack until it outgrows it. Never throws.
class Packer {
 public:
  Packer() : data_(inline_), size_(0), room_(sizeof inline_) {}
  ~Packer() {
    if (data_ != inline_) free(data_);
  }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }

  void array(uint32_t count) {
    if (count < 16) return byte(0x90 | count);
    count < 0x10000 ? tagged(0xdc, count, 2) : tagged(0xdd, count, 4);
  }
  void unsigned_integer(uint64_t v) {
    if (v < 0x80) return byte(v);
    if (v < 0x100) return tagged(0xcc, v, 1);
    if (v < 0x10000) return tagged(0xcd, v, 2);
    v >> 32 ? tagged(0xcf, v, 8) : tagged(0xce, v, 4);
  }
  void integer(int64_t v) {
    if (v >= 0) return unsigned_integer(v);
    if (v >= -32) return byte(v);
    if (v >= INT8_MIN) return tagged(0xd0, v, 1);
    if (v >= INT16_MIN) return tagged(0xd1, v, 2);
    v >= INT32_MIN ? tagged(0xd2, v, 4) : tagged(0xd3, v, 8);
  }
  void real(double v) {
    uint64_t bits;
    memcpy(&bits, &v, 8);
    tagged(0xcb, bits, 8);
  }
  void text(const char* s) {
    size_t n = strlen(s);
    if (n < 32) {
      byte(0xa0 | n);
    } else {
      length(0xd9, n);
    }
    raw(s, n);
  }
  void bytes(const void* p, size_t n) {
    length(0xc4, n);
    raw(p, n);
  }
  // Values that are encoded already.
  void append(const void* p, size_t n) { raw(p, n); }
  // Room for n bytes, which the caller fills.
  char* bytes_room(size_t n) {
    bytes_length(n);
    return extend(n);
  }
  // Says that n bytes follow.
  void bytes_length(size_t n) { length(0xc4, n); }

 private:
  void byte(uint64_t v) { *extend(1) = static_cast<char>(v); }
  void tagged(uint8_t tag, uint64_t v, int n) {
    char* p = extend(n + 1);
    *p++ = static_cast<char>(tag);
    while (n--) *p++ = static_cast<char>(v >> (8 * n));
  }
  // tag, tag + 1, tag + 2: lengths of 1, 2 and 4 bytes.
  void length(uint8_t tag, size_t n) {
    if (n < 0x100) return tagged(tag, n, 1);
    n < 0x10000 ? tagged(tag + 1, n, 2) : tagged(tag + 2, n, 4);
  }
  void raw(const void* p, size_t n) {
    if (n) memcpy(extend(n), p, n);  // of nothing, p may be null
  }
  char* extend(size_t n) {
    if (size_ + n > room_) grow(size_ + n);
    char* p = data_ + size_;
    size_ += n;
    return p;
  }
  void grow(size_t needed) {
    room_ = needed * 2;
    char* bigger = static_cast<char*>(malloc(room_));
    if (!bigger) abort();
    memcpy(bigger, data_, size_);
    if (data_ != inline_) free(data_);
    data_ = bigger;
  }

  char inline_[1024];
  char* data_;
  size_t size_;
  size_t room_;
};

// Reads values one by one. After anything unexpected `ok()` is false and every value is empty.
class Unpacker {
 public:
  Unpacker(const char* data, size_t size) : at_(data), end_(data + size) {}
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == end_; }
  const char* position() const { return at_; }
  // Whether bytes come next.
  bool at_bytes() const {
    return at_ != end_ && static_cast<uint8_t>(*at_) >= 0xc4 && static_cast<uint8_t>(*at_) <= 0xc6;
  }

  bool at_array() const {
    uint8_t tag = at_ == end_ ? 0 : static_cast<uint8_t>(*at_);
    return (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
  }

  uint32_t array() {
    uint8_t tag = take_tag();
    if ((tag & 0xf0) == 0x90) return tag & 0x0f;
    if (tag == 0xdc) return take(2);
    if (tag == 0xdd) return take(4);
    return fail();
  }
  int64_t integer() {
    uint8_t tag = take_tag();
    if (tag < 0x80) return tag;
    if (tag >= 0xe0) return static_cast<int8_t>(tag);
    switch (tag) {
      case 0xcc:
        return take(1);
      case 0xcd:
        return take(2);
      case 0xce:
        return take(4);
      case 0xcf:
        return take(8);
      case 0xd0:
        return static_cast<int8_t>(take(1));
      case 0xd1:
        return static_cast<int16_t>(take(2));
      case 0xd2:
        return static_cast<int32_t>(take(4));
      case 0xd3:
        return take(8);
    }
    return fail();
  }
  // Integers that must have a sign, or must not be negative; 64 bits of either kind.
  int64_t signed_integer() {
    bool large = at_ != end_ && static_cast<uint8_t>(*at_) == 0xcf;
    int64_t v = integer();
    return large && v < 0 ? fail() : v;
  }
  uint64_t unsigned_integer() {
    bool large = at_ != end_ && static_cast<uint8_t>(*at_) == 0xcf;
    int64_t v = integer();
    return !large && v < 0 ? fail() : static_cast<uint64_t>(v);
  }
  double real() {
    uint8_t tag = take_tag();
    if (tag == 0xca) return as<float>(static_cast<uint32_t>(take(4)));
    if (tag == 0xcb) return as<double>(take(8));
    return fail();
  }
  // Bytes or text; the pointer stays valid as long as the buffer.
  const char* bytes(size_t* size) {
    uint8_t tag = take_tag();
    *size = 0;
    size_t n = 0;
    if ((tag & 0xe0) == 0xa0) {
      n = tag & 0x1f;
    } else if (tag == 0xc4 || tag == 0xd9) {
      n = take(1);
    } else if (tag == 0xc5 || tag == 0xda) {
      n = take(2);
    } else if (tag == 0xc6 || tag == 0xdb) {
      n = take(4);
    } else {
      fail();
    }
    if (!ok_ || n > static_cast<size_t>(end_ - at_)) {
      fail();
      return nullptr;
    }
    const char* p = at_;
    at_ += n;
    *size = n;
    return p;
  }
  // Moves past one integer, bytes or array of such values.
  void skip(int depth = kMaxDepth) {
    size_t size;
    if (at_bytes()) return void(bytes(&size));
    if (!at_array()) return void(integer());
    uint32_t count = depth ? array() : fail();
    if (count > kMaxList) fail();
    for (; count && ok_; --count) skip(depth - 1);
  }

 private:
  uint8_t take_tag() { return static_cast<uint8_t>(take(1)); }
  uint64_t take(int n) {
    if (!ok_ || end_ - at_ < n) return fail();
    uint64_t v = 0;
    while (n--) v = v << 8 | static_cast<uint8_t>(*at_++);
    return v;
  }
  template <typename Real, typename Bits>
  static Real as(Bits bits) {
    static_assert(sizeof(Real) == sizeof(Bits), "the same bits");
    Real v;
    memcpy(&v, &bits, sizeof v);
    return v;
  }
  uint8_t fail() {
    ok_ = false;
    at_ = end_;
    return 0;
  }

  const char* at_;
  const char* end_;
  bool ok_ = true;
};

}  // namespace mnemosyne
