#include "wanted_memory.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

namespace mnemosyne {
namespace {

constexpr char kVariable[] = "MNEMOSYNE_MEMORY_BYTES";
constexpr uint64_t kGranule = 2 << 20;
constexpr double kMost = 1e18;  // more than any quota

int digit(char c) { return isdigit(static_cast<unsigned char>(c)) ? c - '0' : -1; }
int lower(char c) { return tolower(static_cast<unsigned char>(c)); }

void skip_spaces(const char** p) {
  while (isspace(static_cast<unsigned char>(**p))) ++*p;
}

// A decimal number without sign or exponent; negative when there is none.
double take_number(const char** p) {
  if (digit(**p) < 0) return -1;
  double value = 0, place = 1;
  for (; digit(**p) >= 0; ++*p) value = value * 10 + digit(**p);
  if (**p != '.') return value;
  if (digit(*++*p) < 0) return -1;
  for (; digit(**p) >= 0; ++*p) value += digit(**p) * (place /= 10);
  return value;
}

// 1 without a unit; K, KB and KiB are all 1024.
double take_unit(const char** p) {
  constexpr char kUnits[] = "kmgt";
  const char* unit = **p ? strchr(kUnits, lower(**p)) : nullptr;
  if (unit) ++*p;
  if (lower((*p)[0]) == 'i' && lower((*p)[1]) == 'b') ++*p;
  if (lower(**p) == 'b') ++*p;
  return unit ? static_cast<double>(uint64_t{1} << 10 * (unit - kUnits + 1)) : 1;
}

// Negative for what is no size.
double parse_size(const char* p) {
  skip_spaces(&p);
  double number = take_number(&p);
  skip_spaces(&p);
  double size = number * take_unit(&p);
  skip_spaces(&p);
  return *p ? -1 : size;
}

}  // namespace

std::string wanted_memory(uint64_t* bytes) {
  const char* text = getenv(kVariable);
  *bytes = 0;
  if (!text || !*text) return "";
  std::string name = std::string(kVariable) + ": ";
  double size = parse_size(text);
  if (size < 0) return name + "'" + text + "' is no size; write for example 512M or 4GiB";
  *bytes = static_cast<uint64_t>(std::min(size, kMost)) / kGranule * kGranule;
  return *bytes ? "" : name + "a client needs 2 MiB at least";
}

}  // namespace mnemosyne
