// How much device memory the program asks for, within the server's quota.
#pragma once

#include <cstdint>
#include <string>

namespace mnemosyne {

// Reads MNEMOSYNE_MEMORY_BYTES, which `mnemosyne run --memory` sets: a size such as 512M or 4GiB,
// by the rules of mnemosyne/server/options.py; 0 when there is none. Returns "" or what is wrong.
std::string wanted_memory(uint64_t* bytes);

}  // namespace mnemosyne
