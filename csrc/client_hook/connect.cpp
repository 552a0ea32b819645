#include "connect.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../common/msgpack.h"
#include "../generated/numbers.h"
#include "dl.h"
#include "wanted_memory.h"

namespace mnemosyne {
namespace {

constexpr int kHello = 1;
constexpr int kWelcome = 2;
constexpr int kRefusal = 3;
constexpr int kSeconds = 20;  // a worker may have to start before it answers
constexpr uint32_t kMaxControl = 1 << 20;

// The server binds it for its own user alone, and talks to no other.
constexpr int kForeign = EACCES;

// Where the server listens unless it is told of another place.
std::string default_path() {
  const char* directory = getenv("XDG_RUNTIME_DIR");
  if (directory && *directory) return std::string(directory) + "/mnemosyne.sock";
  return "/tmp/mnemosyne-" + std::to_string(getuid()) + ".sock";
}

std::string no_connection(const std::string& path, int error) {
  if (error == kForeign) {
    return "the socket " + path +
           " belongs to another user; give the server another --socket, and set "
           "MNEMOSYNE_SOCKET to the same path";
  }
  if (error == ENAMETOOLONG) return "the socket's path is longer than 107 bytes: " + path;
  std::string option = path == default_path() ? "" : " --socket " + path;
  return "no server at " + path + " (" + strerror(error) +
         "); start one with: python -m mnemosyne.server --clients 4" + option;
}

// A server that accepts, and then fails to answer.
std::string no_answer(const std::string& path, int error) {
  std::string server = "the server at " + path;
  if (error == EAGAIN) {
    return server + " did not answer within " + std::to_string(kSeconds) +
           " s; its log may say why; if it hangs, stop it and start it again";
  }
  return server + " hung up (" + strerror(error) +
         "); its log says why; use the same version of mnemosyne for both";
}

std::string program_name() {
  char line[256];
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line);
  if (fd >= 0) close(fd);
  std::string name(line, n > 0 ? n : 0);
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
    if (static_cast<unsigned char>(c) > '~') c = '?';
  }
  return name;
}

// The version that the library itself tells, without a device; 0 when the program has not loaded
// it.
size_t version_of(const char* library, const char* function) {
  using Version = size_t (*)();
  auto ask = reinterpret_cast<Version>(native_function(library, function));
  return ask ? ask() : 0;
}

size_t runtime_version() {
  using Ask = int (*)(int*);
  auto ask = reinterpret_cast<Ask>(native_function("libcudart.so", "cudaRuntimeGetVersion"));
  int version = 0;
  return ask && ask(&version) == kSuccess ? version : 0;
}

void pack_libraries(Packer* p) {
  const struct {
    const char* name;
    size_t version;
  } libraries[] = {
      {"cudart", runtime_version()},
      {"cublasLt", version_of("libcublasLt.so", "cublasLtGetVersion")},
      {"cudnn", version_of("libcudnn.so", "cudnnGetVersion")},
  };
  uint32_t loaded = 0;
  for (const auto& library : libraries) loaded += library.version != 0;
  p->array(loaded);
  for (const auto& library : libraries) {
    if (!library.version) continue;
    p->array(2);
    p->text(library.name);
    p->unsigned_integer(library.version);
  }
}

void pack_hello(Packer* p, const char* purpose, uint64_t memory) {
  p->array(9);
  p->integer(kHello);
  p->text(purpose);
  p->integer(kProtocolVersion);
  p->text(kSpecDigest);
  p->integer(getpid());
  p->text(program_name().c_str());
  pack_libraries(p);
  p->unsigned_integer(memory);
  p->integer(0);
}

bool is_foreign(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid != getuid();
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(address.sun_path, path.data(), path.size());
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  timeval limit{kSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (connected && !is_foreign(fd)) return fd;
  int saved = connected ? kForeign : errno;
  close(fd);
  errno = saved;
  return -1;
}

bool send_all(int fd, const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  while (size) {
    ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= n;
  }
  return true;
}

// Reads exactly `size` bytes; file descriptors that ride along go to `fds` (two at most).
bool receive_all(int fd, char* data, size_t size, int* fds) {
  while (size) {
    iovec piece{data, size};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ECONNRESET;
    if (n <= 0) return false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_type != SCM_RIGHTS) continue;
      memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    }
    data += n;
    size -= n;
  }
  return true;
}

std::string take_text(Unpacker* u) {
  size_t n;
  const char* p = u->bytes(&n);
  return p ? std::string(p, n) : std::string();
}

void unpack_welcome(Unpacker* u, Welcome* w) {
  u->integer();  // the session's number, which only the server uses
  w->device_base = u->integer();
  w->device_bytes = u->integer();
  w->host_base = u->integer();
  w->host_bytes = u->integer();
  w->staging_bytes = u->integer();
  w->device.quota = u->integer();
  w->device.cuda = static_cast<int>(u->integer());
  w->device.name = take_text(u);
  w->device.uuid = take_text(u);
  w->device.properties = take_text(u);
  for (uint32_t i = u->array(); i && u->ok(); --i) {
    u->array();
    uint64_t id = u->integer();
    int value = static_cast<int>(u->integer());
    if (id >= 4096) continue;
    if (w->device.attributes.size() <= id) w->device.attributes.resize(id + 1);
    w->device.attributes[id] = value;
  }
}

std::string refusal(const std::string& path, Unpacker* u) {
  std::string reason = take_text(u);
  return "the server at " + path +
         (reason.empty() ? " refused; its log says why" : " refused: " + reason);
}

std::string read_answer(int fd, const std::string& path, Welcome* welcome) {
  uint32_t length = 0;
  if (!receive_all(fd, reinterpret_cast<char*>(&length), sizeof length, welcome->fds)) {
    return no_answer(path, errno);
  }
  if (length > kMaxControl) return "the server's answer is too long";
  std::string body(length, 0);
  if (!receive_all(fd, &body[0], length, welcome->fds)) return no_answer(path, errno);
  Unpacker u(body.data(), body.size());
  u.array();
  int64_t kind = u.integer();
  if (kind == kRefusal) return refusal(path, &u);
  if (kind != kWelcome) return "the server answered something else than welcome";
  unpack_welcome(&u, welcome);
  return u.ok() ? "" : "the server's welcome is malformed";
}

}  // namespace

std::string socket_path() {
  const char* path = getenv("MNEMOSYNE_SOCKET");
  return path && *path ? path : default_path();
}

Welcome::~Welcome() {
  for (int fd : fds) {
    if (fd >= 0) close(fd);
  }
}

std::string say_hello(const char* purpose, Welcome* welcome) {
  uint64_t memory;
  std::string wrong = wanted_memory(&memory);
  if (!wrong.empty()) return wrong;
  std::string path = socket_path();
  int fd = connect_to(path);
  if (fd < 0) return errno == EAGAIN ? no_answer(path, errno) : no_connection(path, errno);
  Packer hello;
  pack_hello(&hello, purpose, memory);
  uint32_t length = hello.size();
  bool sent = send_all(fd, &length, sizeof length) && send_all(fd, hello.data(), length);
  std::string error = sent ? read_answer(fd, path, welcome) : no_answer(path, errno);
  if (error.empty() && strcmp(purpose, "attach") == 0) {
    welcome->socket = fd;
    return "";
  }
  close(fd);
  return error;
}

}  // namespace mnemosyne
