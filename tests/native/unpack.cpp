// Reads whole values, whatever they are, from possibly damaged bytes. Standard input: records of a
// 4-byte little-endian length and bytes. Prints a digit for each: 1 when the bytes are exactly one
// value of the kinds that Unpacker knows.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "../../csrc/common/msgpack.h"

using mnemosyne::Unpacker;

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

}  // namespace

int main() {
  uint32_t size;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    std::unique_ptr<char[]> data(new char[size]);  // of exactly this length, for the sanitizer
    if (fread(data.get(), 1, size, stdin) != size) return 1;
    putchar(is_one_value(data.get(), size) ? '1' : '0');
  }
  return 0;
}
