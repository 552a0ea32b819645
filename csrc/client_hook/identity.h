// What the server's device is called, and whether CUDA_VISIBLE_DEVICES lets the program see it.
#pragma once

#include <string>

#include "session.h"

namespace mnemosyne {

// As nvidia-smi writes it: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6.
std::string uuid_text(const Device& d);
// As cudaDeviceGetPCIBusId writes it.
std::string bus_id(const Device& d);
// Empty, or a line that says by what the device is hidden and what to do. A program sees one
// device, whichever GPU the server has taken: that is number 0.
std::string why_hidden(const Device& d);

}  // namespace mnemosyne
