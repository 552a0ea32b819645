// The Python module mnemosyne._native (see mnemosyne/_native.pyi for what each name promises).
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cuda/executor.h"
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

bool is_settled(int fd, bool whole_frames) {
  Channel* channel = map_channel(fd);
  bool all_taken = whole_frames || channel->head.load() == channel->completed.load();
  bool settled = all_taken && !channel->unsettled.load();
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

int synchronize(cuda::CudaExecutor& executor) {
  nb::gil_scoped_release release;
  return executor.synchronize();
}

void make_executor(cuda::CudaExecutor* self, cuda::Watch* watch, int number, uint64_t context,
                   const std::array<uint64_t, 5>& place, uint64_t words) {
  cuda::Place at{place[0], place[1], place[2], place[3], place[4]};
  new (self) cuda::CudaExecutor(watch, number, reinterpret_cast<void*>(context), at, words);
}

List list_of(nb::bytes packed) { return {static_cast<const char*>(packed.data()), packed.size()}; }

std::pair<int, nb::bytes> dnn_heuristic(cuda::CudaExecutor& e, uint64_t handle, uint64_t stream,
                                        nb::bytes descriptor) {
  std::string configs;
  int status;
  List content = list_of(descriptor);
  {
    nb::gil_scoped_release release;
    constexpr size_t kRoom = kReplyBytes - 64;
    status = e.dnn().heuristic(handle, e.stream_handle(stream), content, kRoom, &configs);
  }
  return {status, nb::bytes(configs.data(), configs.size())};
}

std::pair<int, uint64_t> dnn_plan(cuda::CudaExecutor& e, uint64_t handle, uint64_t stream,
                                  uint64_t plan, nb::bytes descriptor) {
  uint64_t workspace = 0;
  List content = list_of(descriptor);
  nb::gil_scoped_release release;
  int status = e.dnn().build_plan(handle, e.stream_handle(stream), plan, content, &workspace);
  return {status, workspace};
}

std::pair<int, uint64_t> dnn_dropout_states(cuda::CudaExecutor& e, uint64_t handle,
                                            uint64_t stream) {
  uint64_t bytes = 0;
  nb::gil_scoped_release release;
  int status = e.dnn().dropout_states(handle, e.stream_handle(stream), &bytes);
  return {status, bytes};
}

std::pair<int, uint64_t> dnn_weight_space(cuda::CudaExecutor& e, uint64_t handle, uint64_t stream,
                                          nb::bytes rnn) {
  uint64_t bytes = 0;
  List content = list_of(rnn);
  nb::gil_scoped_release release;
  int status = e.dnn().weight_space(handle, e.stream_handle(stream), content, &bytes);
  return {status, bytes};
}

std::pair<int, nb::bytes> dnn_weight_params(cuda::CudaExecutor& e, uint64_t handle, uint64_t stream,
                                            nb::bytes rnn, int pseudo_layer, uint64_t bytes,
                                            uint64_t space) {
  std::string params;
  int status;
  List content = list_of(rnn);
  {
    nb::gil_scoped_release release;
    status = e.dnn().weight_params(handle, e.stream_handle(stream), content, pseudo_layer, bytes,
                                   space, &params);
  }
  return {status, nb::bytes(params.data(), params.size())};
}

std::tuple<int, int, nb::bytes> call_library(cuda::CudaExecutor& e, uint32_t function,
                                             uint64_t stream, nb::bytes arguments) {
  int code, status;
  std::string results;
  List content = list_of(arguments);
  {
    nb::gil_scoped_release release;
    std::tie(code, status, results) = e.call_library(function, stream, content);
  }
  return {code, status, nb::bytes(results.data(), results.size())};
}

void add_cuda(nb::module_& m) {
  using cuda::CudaExecutor, cuda::Watch;
  m.attr("STREAMS") = cuda::Streams::kMost;
  m.def("is_fatal", &cuda::is_fatal);
  m.def("load_libraries", &cuda::load_libraries);
  m.def("load_dnn", &cuda::load_dnn);
  m.def("load_library", &cuda::load_library, nb::call_guard<nb::gil_scoped_release>());
  m.def("dnn_error", [] {
    std::string text = cuda::dnn_error();
    return nb::bytes(text.data(), text.size());
  });
  nb::class_<Watch>(m, "Watch")
      .def("__init__",
           [](Watch* self, uint64_t context, int notify_fd) {
             new (self) Watch(reinterpret_cast<void*>(context), notify_fd);
           })
      .def("report", &Watch::report)
      .def_prop_ro("fault", &Watch::fault)
      .def("suspects", &Watch::suspects);
  nb::class_<CudaExecutor, Executor>(m, "CudaExecutor")
      .def("__init__", &make_executor, nb::keep_alive<1, 2>())
      .def("add_stream", &CudaExecutor::add_stream)
      .def("remove_stream", &CudaExecutor::remove_stream)
      .def("add_event", &CudaExecutor::add_event)
      .def("remove_event", &CudaExecutor::remove_event)
      .def("add_function", &CudaExecutor::add_function)
      .def("add_graph",
           [](CudaExecutor& e, uint64_t number, nb::bytes piece) {
             e.add_graph(number, {static_cast<const char*>(piece.data()), piece.size()});
           })
      .def("remove_graph", &CudaExecutor::remove_graph)
      .def("remove_function", &CudaExecutor::remove_function)
      .def("add_blas", &CudaExecutor::add_blas)
      .def("remove_blas", &CudaExecutor::remove_blas)
      .def("configure_blas", &CudaExecutor::configure_blas)
      .def("add_dnn", [](CudaExecutor& e, uint64_t number) { e.dnn().add(number); })
      .def("remove_dnn", [](CudaExecutor& e, uint64_t number) { e.dnn().remove(number); })
      .def("dnn_heuristic", &dnn_heuristic)
      .def("dnn_plan", &dnn_plan)
      .def("destroy_dnn_plan",
           [](CudaExecutor& e, uint64_t plan) { return e.dnn().destroy_plan(plan); })
      .def("dnn_dropout_states", &dnn_dropout_states)
      .def("dnn_weight_space", &dnn_weight_space)
      .def("dnn_weight_params", &dnn_weight_params)
      .def("call_library", &call_library)
      .def("idle", &CudaExecutor::idle)
      .def("synchronize", &synchronize)
      .def("end", &CudaExecutor::end, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("REPLY_BYTES") = kReplyBytes;
  m.def("create_channel", &create_channel);
  m.def("create_memory", &create_memory);
  m.def("mark_dead", &mark_channel_dead, nb::arg("channel_fd"), nb::arg("reason"),
        nb::arg("code") = 0);
  m.def("is_settled", &is_settled, nb::arg("channel_fd"), nb::arg("whole_frames") = false);
  m.def("map_fixed", &map_fixed);
  m.def("reserve", &reserve);
  m.def("unmap_to_reserved", &unmap_to_reserved);
  m.def("release_memory", &release_memory);
  m.def("fnv1a", &fnv1a);
  nb::class_<Executor>(m, "Executor");
  nb::class_<NullExecutor, Executor>(m, "NullExecutor").def(nb::init<>());
  add_cuda(m);
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
