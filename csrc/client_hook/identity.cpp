#include "identity.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace mnemosyne {
namespace {

using Entries = std::vector<std::string>;

Entries split(const std::string& list) {
  Entries entries{""};
  for (char c : list) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  return entries;
}

bool is_uuid(const std::string& entry) {
  return entry.compare(0, 4, "GPU-") == 0 || entry.compare(0, 4, "MIG-") == 0;
}

// The driver reads a number as strtol does: "1gpu" is 1. Negative: no number.
long number(const std::string& entry) {
  char* end;
  long n = strtol(entry.c_str(), &end, 10);
  return end == entry.c_str() ? -1 : n;
}

// Numbers count up to the first entry that is none; one that comes twice means no device at all.
bool names_first(const Entries& entries) {
  std::set<long> seen;
  for (const std::string& entry : entries) {
    long n = number(entry);
    if (n < 0) break;
    if (!seen.insert(n).second) return false;
  }
  return number(entries[0]) == 0;
}

// A UUID may be cut short. A second name for the only device there is comes to naming it twice.
bool names_uuid(const Entries& entries, const std::string& own) {
  size_t named = 0;
  while (named < entries.size() && is_uuid(entries[named]) &&
         own.compare(4, entries[named].size() - 4, entries[named], 4) == 0) {
    ++named;
  }
  return named == 1;
}

int attribute(const Device& d, size_t id) {
  return id < d.attributes.size() ? d.attributes[id] : 0;
}

}  // namespace

std::string uuid_text(const Device& d) {
  unsigned char u[16] = {};
  memcpy(u, d.uuid.data(), d.uuid.size() < 16 ? d.uuid.size() : 16);
  char text[64];
  snprintf(text, sizeof text,
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
           u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
           u[15]);
  return text;
}

std::string bus_id(const Device& d) {
  enum { kPciBus = 33, kPciDevice = 34, kPciDomain = 50 };  // cudaDeviceAttr
  char text[32];
  snprintf(text, sizeof text, "%04X:%02X:%02X.0", attribute(d, kPciDomain), attribute(d, kPciBus),
           attribute(d, kPciDevice));
  return text;
}

std::string why_hidden(const Device& d) {
  const char* variable = getenv("CUDA_VISIBLE_DEVICES");
  if (!variable) return "";
  Entries entries = split(variable);
  bool uuids = is_uuid(entries[0]);
  if (uuids ? names_uuid(entries, uuid_text(d)) : names_first(entries)) return "";
  return "CUDA_VISIBLE_DEVICES='" + std::string(variable) +
         "' hides the server's device, which is number 0 here whichever GPU it is (" +
         uuid_text(d) + "); unset it: the server chooses the GPU";
}

}  // namespace mnemosyne
