// The handshake with the supervisor, on its Unix socket.
#pragma once

#include <string>

#include "session.h"

namespace mnemosyne {

// The server's answer. Its files are closed with it; the socket is the session's.
struct Welcome {
  ~Welcome();

  Device device;
  uint64_t device_base, device_bytes, host_base, host_bytes, staging_bytes;
  int socket = -1;
  int fds[2] = {-1, -1};  // the channel, the host slot
};

std::string socket_path();
// Asks for the device's description ("probe") or a slot ("attach"). Returns "" or what went wrong.
std::string say_hello(const char* purpose, Welcome* welcome);

}  // namespace mnemosyne
