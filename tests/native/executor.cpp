// CUDA lanes over the fake driver: two sessions, each with two client threads, and one event loop
// that does what the worker's does. What the threads read back is checked.
//
//   executor traffic|close|fault|fences SEED
//
// Prints "ok"; anything else, or a sanitizer's report, is a failure.
#include "../../csrc/lane/cuda/executor.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../csrc/client_hook/session.h"
#include "../../csrc/common/msgpack.h"
#include "../../csrc/generated/library_functions.h"
#include "../../csrc/lane/lane.h"

using namespace mnemosyne;

namespace {

using Random = std::mt19937_64;

constexpr size_t kChunk = 2 << 20, kHost = 1 << 20, kStaging = 512 << 10;
constexpr size_t kWords = cuda::Streams::kMost * sizeof(uint32_t);
constexpr size_t kPage = 4096;
constexpr uint64_t kFill = 1, kIllegal = 2;  // numbers of functions

void expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "failed: %s\n", what);
  _exit(1);
}

void* library() {
  static void* one = dlopen("libcuda.so.1", RTLD_NOW);
  expect(one != nullptr, "the driver");
  return one;
}
// A driver function by the name that its library exports.
#define CUDA(name) (reinterpret_cast<decltype(&name)>(dlsym(library(), NAME_OF(name))))
#define NAME_OF(name) NAME_OF_EXPANDED(name)
#define NAME_OF_EXPANDED(name) #name

uint32_t library_function(const std::string& name) {
  uint32_t number = 0;
  while (cuda::kLibraryFunctions[number].name != name) ++number;
  return number;
}

void ok(CUresult code) { expect(code == CUDA_SUCCESS, cuda::error_name(code)); }

char* new_pages(size_t size) {
  void* p =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  expect(p != MAP_FAILED, "mmap");
  return static_cast<char*>(p);
}

uint64_t new_device_memory() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle memory;
  CUdeviceptr at;
  ok(CUDA(cuMemAddressReserve)(&at, kChunk, 0, 0, 0));
  ok(CUDA(cuMemCreate)(&memory, kChunk, &prop, 0));
  ok(CUDA(cuMemMap)(at, kChunk, 0, memory, 0));
  ok(CUDA(cuMemSetAccess)(at, kChunk, &access, 1));
  return at;
}

// The context, with what all sessions share.
struct Gpu {
  CUcontext context;
  CUmodule module;
  int fault = eventfd(0, EFD_NONBLOCK);
  std::unique_ptr<cuda::Watch> watch;

  Gpu() {
    ok(CUDA(cuInit)(0));
    ok(CUDA(cuDevicePrimaryCtxRetain)(&context, 0));
    ok(CUDA(cuCtxSetCurrent)(context));
    ok(CUDA(cuModuleLoadData)(&module, "\177ELF"));
    watch = std::make_unique<cuda::Watch>(context, fault);
    cuda::load_library("cufft", "libcufft.so.12");
  }
  uint64_t function(const char* name) {
    CUfunction found;
    ok(CUDA(cuModuleGetFunction)(&found, module, name));
    return reinterpret_cast<uint64_t>(found);
  }
  uint64_t stream() {
    CUstream made;
    ok(CUDA(cuStreamCreateWithPriority)(&made, CU_STREAM_NON_BLOCKING, 0));
    return reinterpret_cast<uint64_t>(made);
  }
  uint64_t event() {
    CUevent made;
    ok(CUDA(cuEventCreate)(&made, 0));
    return reinterpret_cast<uint64_t>(made);
  }
};

// A place that sessions have one after the other.
struct Room {
  char* words = new_pages(kWords);
  char* host = new_pages(kHost);
  uint64_t device = new_device_memory();

  Room() {
    ok(CUDA(cuMemHostRegister)(words, kWords, 0));
    ok(CUDA(cuMemHostRegister)(host + kStaging, kHost - kStaging, 0));
  }
  cuda::Place place() const {
    return {device, kChunk, reinterpret_cast<uint64_t>(host), kHost, kStaging};
  }
};

// The latest mapping of a file of this name.
Channel* find_mapping(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  Channel* found = nullptr;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) == std::string::npos) continue;
    found = reinterpret_cast<Channel*>(std::stoull(line, nullptr, 16));
  }
  return found;
}

// A session as the worker has it, and as its client does.
struct Served {
  Gpu* gpu;
  int channel_fd, event, sockets[2];
  std::unique_ptr<cuda::CudaExecutor> executor;
  std::unique_ptr<Lane> lane;
  Session session;
  std::map<uint64_t, uint64_t> events;  // by number
  std::thread deferred;
  std::atomic<bool> deferred_done{false};
  int deferred_slot = kNoReply;

  Served(Gpu* g, const Room& room, int number) : gpu(g) {
    std::string name = "executor-test-" + std::to_string(number) + "-";
    channel_fd = memfd_create(name.c_str(), 0);
    expect(ftruncate(channel_fd, sizeof(Channel)) == 0, "ftruncate");
    event = eventfd(0, EFD_NONBLOCK);
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    executor =
        std::make_unique<cuda::CudaExecutor>(gpu->watch.get(), number, gpu->context, room.place(),
                                             reinterpret_cast<uint64_t>(room.words));
    executor->add_stream(0, gpu->stream(), true);
    executor->add_function(kFill, gpu->function("fake_fill"), 24);
    executor->add_function(kIllegal, gpu->function("fake_illegal"), 0);
    lane = std::make_unique<Lane>(channel_fd, event, executor.get());
    session.channel = find_mapping(name);
    session.socket = sockets[0];
    session.host = room.host;
    session.device_base = room.device;
  }
  // As the worker ends a session: the lane, its deferred work, the work on the GPU.
  ~Served() {
    lane->close("closed by the test");
    if (deferred.joinable()) deferred.join();
    if (executor->synchronize() == 0) executor->end();
    lane.reset();
    for (int fd : {channel_fd, event, sockets[0], sockets[1]}) close(fd);
  }

  // A turn of the event loop.
  void serve() {
    eventfd_t count;
    eventfd_read(event, &count);
    if (deferred_done.exchange(false)) {
      deferred.join();
      finish(deferred_slot);
    }
    while (!deferred.joinable()) {
      std::vector<TakenFrame> frames = lane->take(1);
      if (frames.empty()) return;
      execute(frames[0]);
    }
  }

  void execute(const TakenFrame& frame) {
    Unpacker u(frame.bytes.data(), frame.bytes.size());
    u.array();
    auto message = static_cast<Number>(u.integer());
    if (message == Number::cufft_call) return call_library(&u, frame.reply);
    auto number = static_cast<uint64_t>(u.integer());
    if (message == Number::cudaStreamCreateWithPriority) {
      expect(executor->add_stream(number, gpu->stream(), !u.integer()), "a stream more");
    } else if (message == Number::cudaStreamDestroy) {
      expect(executor->remove_stream(number), "a stream less");
    } else if (message == Number::cudaEventCreateWithFlags) {
      events[number] = gpu->event();
      executor->add_event(number, events[number]);
    } else if (message == Number::cudaEventDestroy) {
      expect(executor->remove_event(number), "an event less");
      ok(CUDA(cuEventDestroy)(reinterpret_cast<CUevent>(events[number])));
    } else {
      expect(message == Number::free, "a message that the loop knows");
      if (!executor->idle()) return defer(frame.reply, [this] { executor->synchronize(); });
    }
    finish(frame.reply);
  }

  // [name, stream, arguments]
  void call_library(Unpacker* u, int slot) {
    size_t size;
    const char* name = u->bytes(&size);
    uint32_t function = library_function({name, size});
    u->integer();
    const char* arguments = u->position();
    u->skip();
    std::string list(arguments, u->position());
    defer(slot, [this, function, list] {
      ok(CUDA(cuCtxSetCurrent)(gpu->context));
      auto [code, status, results] =
          executor->call_library(function, 0, {list.data(), list.size()});
      expect(code == 0 && status == 0, "the library's call");
    });
  }

  // What waits for the GPU is done in a thread of its own.
  template <typename Work>
  void defer(int slot, Work work) {
    deferred_slot = slot;
    deferred = std::thread([this, work] {
      work();
      deferred_done = true;
      eventfd_write(event, 1);
    });
  }

  void finish(int slot) {
    if (slot != kNoReply) lane->reply(slot, "\x91\x00", 2);
    lane->done(1);
  }
};

// One thread of a client, with a stream, an event and some memory of its own.
class Client {
 public:
  Client(Session* s, uint64_t number, uint64_t seed)
      : s_(s), random_(seed), number_(number), event_(100 + number) {
    memory_ = s->device_base + number * 4096;
  }

  // Returns early when the server is gone.
  void run(int rounds) {
    create_stream();
    post(Number::cudaEventCreateWithFlags, {event_, 0});
    set(0);
    for (int i = 1; i <= rounds && alive_; ++i) step(i);
    if (alive_) check();
    post(Number::cudaStreamDestroy, {stream_});
    post(Number::cudaEventDestroy, {event_});
  }

  // Work on the GPU that is waited for each time; the event loop is needed until it is ready.
  void run_idle(std::atomic<int>* ready) {
    create_stream();
    call(Number::cudaStreamSynchronize, {stream_});
    ++*ready;
    for (uint32_t i = 1; alive_; ++i) {
      set(i);
      switch (random_() % 3) {
        case 0:
          check();
          break;
        case 1:
          call(Number::cudaDeviceSynchronize, {});
          break;
        default:
          call(Number::cudaStreamSynchronize, {stream_});
      }
    }
  }

  // Ends the context for all.
  void fault() { launch(kIllegal, {}); }

 private:
  void step(int i) {
    uint32_t value = static_cast<uint32_t>(i);
    switch (random_() % 13) {
      case 0:
        return check();
      case 1:
        post(Number::event_record, {event_, stream_, 0});
        return call(Number::cudaEventSynchronize, {event_});
      case 2:
        return call(Number::cudaStreamSynchronize, {stream_});
      case 3:
        return call(Number::cudaDeviceSynchronize, {});
      case 4:
        call(Number::stream_query, {stream_}, true);
        return call(Number::event_query, {event_}, true);
      case 5:
        return replace_stream();
      case 6:
        return call(Number::free, {memory_});
      case 7:
        memset(s_->host + kStaging + number_ * 64, i, 16);
        expected_ = 0x01010101u * (value & 255);
        post(Number::copy_from_host, {memory_, kStaging + number_ * 64, 16, stream_});
        return call(Number::cudaStreamSynchronize, {stream_});  // before the host writes again
      case 8:
        expected_ = 0x01010101u * (value & 255);
        return post(Number::cudaMemsetAsync, {memory_, value & 255, 16, stream_});
      case 9:
        return copy_by_library();
      default:
        return set(value);
    }
  }

  // There and back, with a plan of its own.
  void copy_by_library() {
    static std::atomic<uint64_t> last{0};
    uint64_t plan = ++last;
    change_plan("cufftCreate", plan);
    run_plan(plan, memory_, memory_ + 16);
    post(Number::cudaMemsetAsync, {memory_, 0, 16, stream_});
    run_plan(plan, memory_ + 16, memory_);
    change_plan("cufftDestroy", plan);
  }

  void change_plan(const char* function, uint64_t plan) {
    Packer p;
    p.array(4);
    p.integer(static_cast<int>(Number::cufft_call));
    p.text(function);
    p.unsigned_integer(0);
    p.array(1);
    p.unsigned_integer(plan);
    send(p, kNoReply);
  }

  void run_plan(uint64_t plan, uint64_t from, uint64_t to) {
    Packer p;
    p.array(5);
    p.integer(static_cast<int>(Number::cufft_run));
    for (uint64_t v : {uint64_t{library_function("cufftXtExec")}, stream_, uint64_t{0}}) {
      p.unsigned_integer(v);
    }
    p.array(4);
    for (uint64_t v : {plan, from, to, uint64_t{1}}) p.unsigned_integer(v);
    send(p, kNoReply);
  }

  void set(uint32_t value) {
    char arguments[24];
    uint64_t words = 4;
    memcpy(arguments, &memory_, 8);
    memcpy(arguments + 8, &value, 4);
    memcpy(arguments + 16, &words, 8);
    expected_ = value;
    launch(kFill, {arguments, sizeof arguments});
  }

  void launch(uint64_t function, const std::string& arguments) {
    Packer p;
    p.array(11);
    p.integer(static_cast<int>(Number::launch));
    p.unsigned_integer(function);
    for (int size = 0; size < 6; ++size) p.unsigned_integer(1);
    p.unsigned_integer(0);  // shared memory
    p.unsigned_integer(stream_);
    p.bytes(arguments.data(), arguments.size());
    send(p, kNoReply);
  }

  void create_stream() {
    static std::atomic<uint64_t> last{1000};
    stream_ = ++last;
    post(Number::cudaStreamCreateWithPriority, {stream_, random_() % 2, 0});
  }

  // The next stream goes on after the last one's work, which may be going on.
  void replace_stream() {
    uint64_t before = stream_;
    post(Number::event_record, {event_, before, 0});
    create_stream();
    post(Number::cudaStreamWaitEvent, {stream_, event_, 0});
    post(Number::cudaStreamDestroy, {before});
  }

  void check() {
    int slot = acquire_reply_slot(s_);
    if (slot < 0) return;
    if (post(Number::copy_fetch, {memory_, 16, stream_}, slot), !alive_) return;
    if (wait_reply(s_, slot)) {
      ReplySlot& from = s_->channel->slots[slot];
      Unpacker u(from.data, from.size);
      size_t size;
      expect(u.array() == 2 && u.integer() == 0, "the fetch succeeds");
      const char* data = u.bytes(&size);
      expect(data && size == 16, "the bytes");
      for (int i = 0; i < 4; ++i) expect(!memcmp(data + 4 * i, &expected_, 4), "the value");
    } else {
      alive_ = false;
    }
    release_reply_slot(s_, slot);
  }

  void call(Number message, std::vector<uint64_t> values, bool may_fail = false) {
    int slot = alive_ ? acquire_reply_slot(s_) : -1;
    if (slot < 0) return;
    post(message, values, slot);
    if (alive_ && wait_reply(s_, slot)) {
      Unpacker u(s_->channel->slots[slot].data, s_->channel->slots[slot].size);
      u.array();
      int64_t status = u.integer();
      expect(status == 0 || (may_fail && status == cuda::kNotReady), "the call succeeds");
    } else {
      alive_ = false;
    }
    release_reply_slot(s_, slot);
  }

  void post(Number message, std::vector<uint64_t> values, int slot = kNoReply) {
    Packer p;
    p.array(static_cast<uint32_t>(values.size() + 1));
    p.integer(static_cast<int>(message));
    for (uint64_t v : values) p.unsigned_integer(v);
    send(p, slot);
  }

  void send(const Packer& p, int slot) {
    if (alive_) alive_ = send_frame(s_, p.data(), p.size(), slot) != 0;
  }

  Session* s_;
  Random random_;
  uint64_t number_, event_, memory_, stream_ = 0;
  uint32_t expected_ = 0;
  bool alive_ = true;
};

using Sessions = std::vector<std::unique_ptr<Served>>;

// Serves until `over`.
template <typename Over>
void loop(const Sessions& sessions, Over over) {
  while (!over()) {
    std::vector<pollfd> events;
    for (auto& one : sessions) events.push_back({one->event, POLLIN, 0});
    poll(events.data(), events.size(), 2);
    for (size_t i = 0; i < sessions.size(); ++i) {
      if (events[i].revents) sessions[i]->serve();
    }
  }
}

template <typename Work>
std::vector<std::thread> threads(const Sessions& sessions, std::atomic<int>* running, Work work) {
  std::vector<std::thread> all;
  for (auto& one : sessions) {
    for (uint64_t t = 0; t < 2; ++t) {
      ++*running;
      all.emplace_back([=, session = &one->session] {
        work(session, t);
        --*running;
      });
    }
  }
  return all;
}

void traffic(uint64_t seed) {
  Gpu gpu;
  std::vector<Room> rooms(2);
  Sessions sessions;
  for (int i = 0; i < 2; ++i) sessions.push_back(std::make_unique<Served>(&gpu, rooms[i], i));
  std::atomic<int> running{0};
  auto clients = threads(sessions, &running,
                         [seed](Session* s, uint64_t t) { Client(s, t, seed + t).run(1500); });
  loop(sessions, [&running] { return running == 0; });
  for (std::thread& one : clients) one.join();
  for (auto& one : sessions) expect(one->session.channel->error == 0, "no late error");
  auto settled = [&sessions] {
    for (auto& one : sessions) {
      if (one->session.channel->unsettled) return false;
    }
    return true;
  };
  loop(sessions, settled);
}

// Sessions end while their clients work and wait; the next ones have their places.
void close_in_traffic(uint64_t seed) {
  Gpu gpu;
  Random random(seed);
  std::vector<Room> rooms(2);
  for (int round = 0; round < 20; ++round) {
    Sessions sessions;
    for (int i = 0; i < 2; ++i) {
      sessions.push_back(std::make_unique<Served>(&gpu, rooms[i], 2 * round + i));
    }
    std::atomic<int> running{0};
    auto clients = threads(sessions, &running, [=](Session* s, uint64_t t) {
      Client(s, t, seed + 10 * round + t).run(1 << 30);
    });
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 40);
    loop(sessions, [end] { return std::chrono::steady_clock::now() > end; });
    for (auto& one : sessions) one->lane->close("closed by the test");
    for (std::thread& one : clients) one.join();
  }
}

bool is_waited_for(const Channel* c) {
  for (const ReplySlot& slot : c->slots) {
    if (slot.state == kReplyPolled) return true;
  }
  return false;
}

// A session that may go on in another worker owes nobody an answer that the GPU was to write.
void fault(uint64_t seed) {
  Gpu gpu;
  Random random(seed);
  std::vector<Room> rooms(2);
  Sessions sessions;
  for (int i = 0; i < 2; ++i) sessions.push_back(std::make_unique<Served>(&gpu, rooms[i], i));
  std::atomic<int> running{0}, ready{0};
  auto clients = threads(sessions, &running, [seed, &ready](Session* s, uint64_t t) {
    Client(s, t, seed + t).run_idle(&ready);
  });
  loop(sessions, [&ready] { return ready == 4; });
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
  Client(&sessions[1]->session, 9, seed).fault();
  pollfd lost{gpu.fault, POLLIN, 0};
  expect(poll(&lost, 1, 20000) == 1, "the fault is noticed");
  expect(gpu.watch->fault() == CUDA_ERROR_ILLEGAL_ADDRESS, "the fault's code");
  std::vector<int> suspects = gpu.watch->suspects();
  expect(!suspects.empty() && suspects.back() == 1, "the session that did it is a suspect");
  const Channel* other = sessions[0]->session.channel;
  bool goes_on = suspects.size() == 1 && !other->unsettled;
  expect(!goes_on || !is_waited_for(other), "nobody waits for a GPU that is lost");
  for (auto& one : sessions) one->lane->close("closed by the test");
  for (std::thread& one : clients) one.join();
}

}  // namespace

// A fence costs the GPU time: pauses bring none while it has not come to the last one.
void fences(uint64_t) {
  Gpu gpu;
  auto* words = reinterpret_cast<std::atomic<uint32_t>*>(new_pages(kWords + kPage));
  ok(CUDA(cuMemHostRegister)(words, kWords + kPage, CU_MEMHOSTREGISTER_PORTABLE));
  std::atomic<uint32_t>* gate = words + cuda::Streams::kMost;
  auto handle = reinterpret_cast<CUstream>(gpu.stream());
  cuda::Streams streams(words);
  streams.add(0, handle, true);
  cuda::SessionStream* s = streams.find(0);
  auto operation = [s](int fenced, const char* what) {
    cuda::Streams::count(s);
    return [=](int code) { expect(code == 0 && s->fenced == uint32_t(fenced), what); };
  };
  auto gate_address = reinterpret_cast<CUdeviceptr>(gate);
  ok(CUDA(cuStreamWaitValue32)(handle, gate_address, 1, CU_STREAM_WAIT_VALUE_EQ));
  operation(1, "a pause brings the first fence")(streams.fence_reached());
  operation(1, "a pause brings none to a busy GPU")(streams.fence_reached());
  operation(3, "a rest brings one")(streams.fence_all());
  gate->store(1);
  ok(CUDA(cuStreamSynchronize)(handle));
  expect(streams.idle(), "all is done");
  operation(4, "a pause brings one to a GPU that has come so far")(streams.fence_reached());
  ok(static_cast<CUresult>(streams.synchronize()));
  streams.destroy_all();
}

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(uint64_t)> tests = {
      {"traffic", traffic}, {"close", close_in_traffic}, {"fault", fault}, {"fences", fences}};
  auto test = argc == 3 ? tests.find(argv[1]) : tests.end();
  if (test == tests.end()) return fprintf(stderr, "usage: executor TEST SEED\n"), 2;
  test->second(strtoull(argv[2], nullptr, 10));
  puts("ok");
  return 0;
}
