// Reads golden frames (tests/golden, see tests/unit/golden.py for the lines) from standard input.
// Packs the values with Packer, which must give the kept bytes; reads the bytes with Unpacker,
// which must give the values, and must fail on every truncation. Prints how many lines agreed.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "../../csrc/common/msgpack.h"

using mnemosyne::Packer;
using mnemosyne::Unpacker;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size();) {
    char byte = static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    i += 2;
    size_t count = 1;
    if (i < hex.size() && hex[i] == '*') {
      size_t digits;
      count = std::stoul(hex.substr(i + 1), &digits);
      i += digits + 2;
    }
    bytes.append(count, byte);
  }
  return bytes;
}

double real_of(const std::string& bits) {
  uint64_t v = std::stoull(bits, nullptr, 16);
  double d;
  memcpy(&d, &v, sizeof d);
  return d;
}

uint64_t integer_of(const std::string& token) {
  return token[0] == '-' ? static_cast<uint64_t>(std::stoll(token)) : std::stoull(token);
}

void pack(Packer* p, const std::string& token) {
  std::string rest = token.substr(1);
  switch (token[0]) {
    case '[':
      return p->array(static_cast<uint32_t>(std::stoul(rest)));
    case 'r':
      return p->real(real_of(rest));
    case 't':
      return p->text(from_hex(rest).c_str());
    case 'b': {
      std::string bytes = from_hex(rest);
      return p->bytes(bytes.data(), bytes.size());
    }
    case '-':
      return p->integer(std::stoll(token));
    default:
      return p->unsigned_integer(std::stoull(token));
  }
}

// Whether the next value is this one.
bool unpack(Unpacker* u, const std::string& token) {
  std::string rest = token.substr(1);
  if (token[0] == '[') return u->array() == std::stoul(rest);
  if (token[0] == 'r') {
    double got = u->real(), wanted = real_of(rest);
    return memcmp(&got, &wanted, sizeof got) == 0;
  }
  if (token[0] == 't' || token[0] == 'b') {
    size_t size;
    const char* got = u->bytes(&size);
    return got && std::string(got, size) == from_hex(rest);
  }
  return static_cast<uint64_t>(u->integer()) == integer_of(token);
}

bool reads(const std::string& data, const std::vector<std::string>& tokens) {
  Unpacker u(data.data(), data.size());
  for (const std::string& token : tokens) {
    if (!unpack(&u, token)) return false;
  }
  return u.ok() && u.at_end();
}

// A truncated frame must fail, whatever values it still seems to hold. The copy ends where the
// frame does, so that a sanitizer sees a read past its end.
bool truncation_fails(const std::string& data, size_t size,
                      const std::vector<std::string>& tokens) {
  std::vector<char> cut(data.begin(), data.begin() + size);
  Unpacker u(cut.data(), cut.size());
  for (const std::string& token : tokens) unpack(&u, token);
  return !u.ok();
}

const char* fault(const std::string& data, const std::vector<std::string>& tokens) {
  Packer packer;
  for (const std::string& token : tokens) pack(&packer, token);
  if (std::string(packer.data(), packer.size()) != data) return "is packed otherwise";
  if (!reads(data, tokens)) return "is read otherwise";
  size_t step = data.size() < 2000 ? 1 : 997;  // of the long ones some
  for (size_t size = 0; size < data.size(); size += step) {
    if (!truncation_fails(data, size, tokens)) return "is read although it is truncated";
  }
  return nullptr;
}

}  // namespace

int main() {
  int good = 0, bad = 0;
  for (std::string line; std::getline(std::cin, line);) {
    size_t first = line.find(" | "), second = line.find(" | ", first + 1);
    std::istringstream values(line.substr(first + 3, second - first - 3));
    std::vector<std::string> tokens;
    for (std::string token; values >> token;) tokens.push_back(token);
    const char* why = fault(from_hex(line.substr(second + 3)), tokens);
    if (why) fprintf(stderr, "%s: %s\n", line.substr(0, 200).c_str(), why);
    ++(why ? bad : good);
  }
  printf("%d\n", good);
  return bad != 0;
}
