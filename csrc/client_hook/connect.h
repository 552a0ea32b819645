// The handshake with the supervisor, on its Unix socket.
#pragma once

#include <string>

#include "session.h"

namespace mnemosyne {

struct Welcome {
  Device device;
  uint64_t session;
  uint64_t device_base, device_bytes, host_base, host_bytes, staging_bytes;
  int socket = -1;
  int channel_fd = -1;
  int host_fd = -1;
};

std::string socket_path();
// Asks for the device's description ("probe") or a slot ("attach"). Returns "" or what went wrong;
// *no_server tells that nobody answered at the socket.
std::string say_hello(const char* purpose, Welcome* welcome, bool* no_server);

}  // namespace mnemosyne
