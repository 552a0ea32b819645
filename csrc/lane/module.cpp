// The Python module mnemosyne._native (see mnemosyne/_native.pyi for what each name promises).
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lane.h"
#include "null_executor.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace nb = nanobind;

namespace mnemosyne {
namespace {

[[noreturn]] void raise_os_error(const char* what) {
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, what);
  throw nb::python_error();
}

int create_memory(const char* name, uint64_t size) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) raise_os_error("memfd_create");
  if (ftruncate(fd, size) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    int saved = errno;
    ::close(fd);
    errno = saved;
    raise_os_error("memfd seals");
  }
  return fd;
}

int create_channel() {
  int fd = create_memory("mnemosyne-channel", sizeof(Channel));
  Channel* channel = map_channel(fd);
  channel->magic = kChannelMagic;
  channel->layout = kChannelLayout;
  munmap(channel, sizeof(Channel));
  return fd;
}

void mark_channel_dead(int fd, const char* reason, int code) {
  Channel* channel = map_channel(fd);
  mark_dead(channel, code, reason);
  munmap(channel, sizeof(Channel));
}

bool is_settled(int fd) {
  Channel* channel = map_channel(fd);
  bool settled = channel->head.load() == channel->completed.load() && !channel->unsettled.load();
  munmap(channel, sizeof(Channel));
  return settled;
}

void map_at(uint64_t address, uint64_t size, int protection, int flags, int fd, uint64_t offset) {
  void* wanted = reinterpret_cast<void*>(address);
  void* p = mmap(wanted, size, protection, flags, fd, offset);
  if (p == MAP_FAILED) raise_os_error("mmap");
  if (p != wanted) {  // a kernel that does not know MAP_FIXED_NOREPLACE
    munmap(p, size);
    errno = EEXIST;
    raise_os_error("mmap");
  }
}

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void reserve(uint64_t address, uint64_t size) {
  map_at(address, size, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
}

void map_fixed(int fd, uint64_t address, uint64_t size, uint64_t offset) {
  map_at(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, offset);
}

void unmap_to_reserved(uint64_t address, uint64_t size) {
  map_at(address, size, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
}

void release_memory(int fd, uint64_t offset, uint64_t size) {
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) {
    raise_os_error("fallocate");
  }
}

uint64_t fnv1a(nb::bytes data) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* p = static_cast<const unsigned char*>(data.data());
  for (size_t i = 0; i < data.size(); ++i) hash = (hash ^ p[i]) * 0x100000001b3;
  return hash;
}

nb::list take(Lane& lane, size_t limit) {
  nb::list frames;
  for (const TakenFrame& frame : lane.take(limit)) {
    frames.append(nb::make_tuple(frame.reply, nb::bytes(frame.bytes.data(), frame.bytes.size())));
  }
  return frames;
}

void close_lane(Lane& lane, const char* reason) {
  nb::gil_scoped_release release;
  lane.close(reason);
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("REPLY_BYTES") = kReplyBytes;
  m.def("create_channel", &create_channel);
  m.def("create_memory", &create_memory);
  m.def("mark_dead", &mark_channel_dead, nb::arg("channel_fd"), nb::arg("reason"),
        nb::arg("code") = 0);
  m.def("is_settled", &is_settled);
  m.def("map_fixed", &map_fixed);
  m.def("reserve", &reserve);
  m.def("unmap_to_reserved", &unmap_to_reserved);
  m.def("release_memory", &release_memory);
  m.def("fnv1a", &fnv1a);
  nb::class_<Executor>(m, "Executor");
  nb::class_<NullExecutor, Executor>(m, "NullExecutor").def(nb::init<>());
  nb::class_<Lane>(m, "Lane")
      .def(nb::init<int, int, Executor*>(), nb::arg("channel_fd"), nb::arg("notify_fd"),
           nb::arg("executor").none() = nb::none(), nb::keep_alive<1, 4>())
      .def("take", &take)
      .def("done", &Lane::done)
      .def("reply",
           [](Lane& lane, int slot, nb::bytes data) {
             lane.reply(slot, static_cast<const char*>(data.data()), data.size());
           })
      .def("fail", &Lane::fail)
      .def("close", &close_lane);
}

}  // namespace mnemosyne
