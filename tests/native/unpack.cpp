// Reads possibly damaged frames as the lane reads them, and as whole values of any kind. Standard
// input: records of a 4-byte little-endian length and bytes. Prints two letters for each: whether
// the lane takes it (y, n, or - when the message is the event loop's), and whether the bytes are
// exactly one value of the kinds that Unpacker knows (y, n).
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "../../csrc/common/msgpack.h"
#include "../../csrc/generated/calls.h"

using namespace mnemosyne;

namespace {

// Takes one value, or the head of an array; false when it is neither.
bool step(Unpacker* u, uint64_t* values) {
  Unpacker as_integer = *u, as_bytes = *u, as_real = *u, as_array = *u;
  size_t size;
  as_integer.integer();
  if (as_integer.ok()) return *u = as_integer, true;
  as_bytes.bytes(&size);
  if (as_bytes.ok()) return *u = as_bytes, true;
  as_real.real();
  if (as_real.ok()) return *u = as_real, true;
  *values += as_array.array();
  if (as_array.ok()) return *u = as_array, true;
  return false;
}

bool is_one_value(const char* data, size_t size) {
  Unpacker u(data, size);
  for (uint64_t values = 1; values; --values) {
    if (!step(&u, &values)) return false;
  }
  return u.at_end();
}

// As Lane::run_one does.
char taken_by_lane(const char* data, size_t size) {
  Unpacker u(data, size);
  uint32_t values = u.array();
  int64_t number = u.integer();
  if (!u.ok() || values == 0 || number <= 0 || number > INT32_MAX) return '-';
  auto known = static_cast<Number>(number);
  if (!is_for_lane(known)) return '-';
  if (values != 1 + field_count(known)) return 'n';
  try {
    dispatch(known, u, [](const auto&) {});
    return 'y';
  } catch (const std::invalid_argument&) {
    return 'n';
  }
}

}  // namespace

int main() {
  uint32_t size;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    std::unique_ptr<char[]> data(new char[size]);  // of exactly this length, for the sanitizer
    if (fread(data.get(), 1, size, stdin) != size) return 1;
    putchar(taken_by_lane(data.get(), size));
    putchar(is_one_value(data.get(), size) ? 'y' : 'n');
  }
  return 0;
}
