#include "session.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "connect.h"
#include "errors.h"
#include "hangup.h"
#include "identity.h"
#include "tables.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace mnemosyne {

std::atomic<bool> forked{false};

namespace {

void before_fork();
void after_fork();
void forget_parent();
void begin_exit();

constexpr int kRecheckMilliseconds = 100;  // how long a sleeper trusts that it will be woken
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kShortSpin = std::chrono::microseconds(5);
constexpr int kCpusToSpin = 4;  // on a smaller machine the server needs the CPU

// Never destroyed: other threads may still be in a stub while the process exits.
struct Client {
  std::mutex mutex;
  std::atomic<const Device*> device{nullptr};
  std::atomic<const Device*> described{nullptr};  // also one that the program is not to see
  std::atomic<Session*> session{nullptr};
  std::atomic<bool> absent{false};  // no server, or its device is hidden; asked once
  std::atomic<bool> exiting{false};
  std::string reason;  // of the last failure
};
Client& client() {
  static Client* one = [] {
    pthread_atfork(before_fork, after_fork, forget_parent);
    atexit(begin_exit);
    return new Client;
  }();
  return *one;
}

void before_fork() { tables_mutex().lock(); }
void after_fork() { tables_mutex().unlock(); }

void forget_parent() {
  after_fork();
  Client& c = client();
  if (c.mutex.try_lock()) {
    c.mutex.unlock();
  } else {  // held by a thread that asked the server, which the child does not have
    new (&c.mutex) std::mutex;
    new (&c.reason) std::string;
  }
  Session* s = c.session.load();
  if (!s || forked.exchange(true)) return;  // in a grandchild they may be anything else by now
  munmap(s->channel, sizeof(Channel));
  close(s->socket);
}

void begin_exit() { client().exiting = true; }

const Device* probe(Client* c) {
  Welcome welcome;
  c->reason = say_hello("probe", &welcome);
  if (c->reason.empty()) {
    c->described = new Device(welcome.device);
    c->reason = why_hidden(*c->described);
  }
  if (c->reason.empty()) return c->described;
  c->absent = true;
  say("%s", c->reason.c_str());
  return nullptr;
}

// Maps at exactly this address; null when it is in use.
void* map_at(uint64_t address, uint64_t size, int protection, int flags, int fd) {
  void* wanted = reinterpret_cast<void*>(address);
  void* p = mmap(wanted, size, protection, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);
  if (p == wanted) return p;
  if (p != MAP_FAILED) munmap(p, size);  // a kernel that does not know MAP_FIXED_NOREPLACE
  return nullptr;
}

Channel* map_channel(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0 || status.st_size != sizeof(Channel)) return nullptr;
  void* p = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* channel = static_cast<Channel*>(p);
  if (channel->magic == kChannelMagic && channel->layout == kChannelLayout) return channel;
  munmap(p, sizeof(Channel));
  return nullptr;
}

// The reservation keeps mappings of the program's own out of the device's address range.
Session* open_session(const Welcome& w, std::string* why) {
  Channel* channel = map_channel(w.fds[0]);
  if (!channel) {
    *why =
        "the server's channel is laid out in another way; use the same version of mnemosyne for "
        "the server and its clients";
    return nullptr;
  }
  void* host = map_at(w.host_base, w.host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w.fds[1]);
  void* reserved =
      map_at(w.device_base, w.device_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!host || !reserved) {
    *why = "the session's memory cannot be mapped: its address range is in use in this process";
    munmap(channel, sizeof(Channel));
    if (host) munmap(host, w.host_bytes);
    if (reserved) munmap(reserved, w.device_bytes);
    return nullptr;
  }
  auto* s = new Session;
  s->channel = channel;
  s->socket = w.socket;
  s->host = static_cast<char*>(host);
  s->host_bytes = w.host_bytes;
  s->staging_bytes = w.staging_bytes;
  s->device_base = w.device_base;
  s->device_bytes = w.device_bytes;
  watch_for_hangup(s);
  return s;
}

Session* attach(Client* c) {
  Welcome welcome;
  c->reason = say_hello("attach", &welcome);
  if (!c->reason.empty()) return nullptr;
  Session* s = open_session(welcome, &c->reason);
  if (!s) close(welcome.socket);
  return s;
}

bool server_is_gone(Session* s) {
  if (s->channel->dead.load(std::memory_order_acquire)) return true;
  pollfd hangup{s->socket, POLLRDHUP, 0};
  return poll(&hangup, 1, 0) == 1 && hangup.revents;
}

bool has_room(Session* s, uint64_t needed) {
  return s->head + needed - s->channel->completed.load(std::memory_order_acquire) <= kRingBytes;
}

// Sleeps until `ready` holds; false when the server is gone.
template <typename Ready>
bool wait_progress(Session* s, Ready ready) {
  Channel* c = s->channel;
  while (!ready()) {
    uint32_t seen = c->progress.load(std::memory_order_acquire);
    c->client_waits.store(1, std::memory_order_seq_cst);
    if (ready()) return true;
    if (server_is_gone(s)) return false;
    futex_wait(&c->progress, seen, kRecheckMilliseconds);
  }
  return true;
}

void wake_server(Channel* c) {
  if (c->server_sleeps.load(std::memory_order_seq_cst) == 0) return;
  if (c->server_sleeps.exchange(0) == 1) futex_wake(&c->server_sleeps);
}

}  // namespace

std::mutex& tables_mutex() {
  static std::mutex* one = new std::mutex;
  return *one;
}

const Device* device() {
  Client& c = client();
  if (const Device* d = c.device.load(std::memory_order_acquire)) return d;
  if (c.absent || c.exiting) return nullptr;
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.device && !c.absent) c.device = probe(&c);
  return c.device;
}

const Device* described() {
  device();
  return client().described;
}

Session* session() {
  Client& c = client();
  if (Session* s = c.session.load(std::memory_order_acquire)) {
    return forked.load(std::memory_order_relaxed) || c.exiting.load(std::memory_order_relaxed)
               ? nullptr
               : s;
  }
  if (c.exiting || !device()) return nullptr;
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.session) c.session = attach(&c);
  return c.session;
}

Session* attached() {
  Client& c = client();
  return forked || c.exiting ? nullptr : c.session.load(std::memory_order_acquire);
}

cudaError_t why_not() {
  Client& c = client();
  if (c.exiting) return report(kCudartUnloading);
  if (forked) {
    return report(kInitializationError,
                  "this process was forked after its parent used the GPU; start it with the "
                  "'spawn' or 'forkserver' method instead");
  }
  if (Session* s = c.session) {
    char text[kTextBytes];
    memcpy(text, s->channel->dead_text, sizeof text);
    text[sizeof text - 1] = 0;
    int code = s->channel->dead_code.load(std::memory_order_relaxed);
    return report(code ? code : kDevicesUnavailable, "mnemosyne: %s",
                  *text ? text : "the server is gone; start it again, then this program");
  }
  std::lock_guard<std::mutex> lock(c.mutex);
  return report(c.absent ? kNoDevice : kDevicesUnavailable, "mnemosyne: %s", c.reason.c_str());
}

uint64_t send_frame(Session* s, const char* data, size_t size, int reply_slot) {
  uint64_t length = sizeof(Record) + padded(size);
  std::lock_guard<std::mutex> lock(s->write);
  Channel* c = s->channel;
  if (c->dead.load(std::memory_order_relaxed)) return 0;
  uint64_t to_end = kRingBytes - s->head % kRingBytes;
  uint64_t needed = length <= to_end ? length : to_end + length;
  if (!has_room(s, needed) && !wait_progress(s, [&] { return has_room(s, needed); })) return 0;
  if (length > to_end) {
    Record skip{kSkip, kNoReply};
    memcpy(c->ring + s->head % kRingBytes, &skip, sizeof skip);
    s->head += to_end;
  }
  char* at = c->ring + s->head % kRingBytes;
  Record record{static_cast<uint32_t>(size), reply_slot};
  memcpy(at, &record, sizeof record);
  memcpy(at + sizeof record, data, size);
  s->head += length;
  c->head.store(s->head, std::memory_order_seq_cst);
  wake_server(c);
  return s->head;
}

int acquire_reply_slot(Session* s) {
  for (;;) {
    for (int i = 0; i < kReplySlots; ++i) {
      uint32_t free = kReplyFree;
      if (s->channel->slots[i].state.compare_exchange_strong(free, kReplyWaited)) return i;
    }
    usleep(100);  // more threads wait for replies than there are slots
    if (server_is_gone(s)) return -1;
  }
}

void release_reply_slot(Session* s, int slot) {
  s->channel->slots[slot].state.store(kReplyFree, std::memory_order_release);
}

namespace {

// Short sleeps between looks at a word that nobody wakes us for: a small part of the wait so far,
// so that they do not show in it. The kernel would make each of them 50 us longer.
class Poll {
 public:
  ~Poll() {
    if (slack_ > 0) prctl(PR_SET_TIMERSLACK, slack_);
  }
  void pause() {
    if (slack_ == 0) {
      slack_ = prctl(PR_GET_TIMERSLACK);
      prctl(PR_SET_TIMERSLACK, 1);
    }
    using std::chrono::microseconds;
    auto nap = (std::chrono::steady_clock::now() - start_) / 5000;
    std::this_thread::sleep_for(
        std::clamp<std::chrono::nanoseconds>(nap, microseconds(20), microseconds(500)));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int slack_ = 0;  // of this thread's timers in nanoseconds, before; 0: unchanged
};

bool spin_for_reply(const std::atomic<uint32_t>& state) {
  static const bool many_cpus = sysconf(_SC_NPROCESSORS_ONLN) >= kCpusToSpin;
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + (many_cpus ? kSpin : kShortSpin);
  do {
    for (int i = 0; i < 64; ++i) {
      if (state.load(std::memory_order_acquire) == kReplyReady) return true;
      __builtin_ia32_pause();
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace

bool wait_reply(Session* s, int slot) {
  std::atomic<uint32_t>& state = s->channel->slots[slot].state;
  if (spin_for_reply(state)) return true;
  Poll poll;
  for (;;) {
    uint32_t seen = state.load(std::memory_order_acquire);
    if (seen == kReplyReady) {
      wake_server(s->channel);  // now, rather than for the calls that will follow
      return true;
    }
    if (server_is_gone(s)) return false;
    if (seen == kReplyPolled) {
      poll.pause();
    } else if (seen == kReplySleeping || state.compare_exchange_strong(seen, kReplySleeping)) {
      futex_wait(&state, kReplySleeping, kRecheckMilliseconds);
    }
  }
}

bool retire_slot(Session* s, int slot) {
  bool answered = wait_reply(s, slot);
  release_reply_slot(s, slot);
  return answered;
}

int take_late_error() {
  Session* s = attached();
  if (!s || s->channel->error.load(std::memory_order_relaxed) == 0) return kSuccess;
  std::lock_guard<std::mutex> lock(s->errors);
  if (s->channel->error.load(std::memory_order_acquire) == 0) return kSuccess;
  char text[kTextBytes];
  memcpy(text, s->channel->error_text, sizeof text);
  text[sizeof text - 1] = 0;
  return report(s->channel->error.exchange(0, std::memory_order_acq_rel), "mnemosyne: %s", text);
}

}  // namespace mnemosyne
