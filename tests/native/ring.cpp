// The ring with both its ends in one process: the client's own sending code (session.cpp) in
// several threads against a Lane. Both ends use one mapping, so that a thread sanitizer sees all of
// it.
//
//   ring traffic|executor|close|hostile|codec SEED
//
// Prints "ok"; anything else, or a sanitizer's report, is a failure.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../csrc/client_hook/session.h"
#include "../../csrc/common/msgpack.h"
#include "../../csrc/lane/lane.h"
#include "../../csrc/lane/null_executor.h"

using namespace mnemosyne;

namespace {

using Random = std::mt19937_64;

void expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "failed: %s\n", what);
  _exit(1);
}

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

// A channel with its lane, and the session that a client of it has.
struct Ends {
  int channel_fd, event, sockets[2];
  std::unique_ptr<Lane> lane;
  Session session;

  explicit Ends(Executor* executor = nullptr) {
    static int number = 0;
    std::string name = "ring-test-" + std::to_string(number++) + "-";
    channel_fd = memfd_create(name.c_str(), 0);
    expect(ftruncate(channel_fd, sizeof(Channel)) == 0, "ftruncate");
    event = eventfd(0, EFD_NONBLOCK);
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    lane = std::make_unique<Lane>(channel_fd, event, executor);
    session.channel = find_mapping(name);
    expect(session.channel != nullptr, "the lane's mapping");
    session.socket = sockets[0];
  }
  ~Ends() {
    lane.reset();
    for (int fd : {channel_fd, event, sockets[0], sockets[1]}) close(fd);
  }
  // Sleeps until the lane has frames; false after some time without any.
  bool wait() {
    pollfd readable{event, POLLIN, 0};
    if (poll(&readable, 1, 20) != 1) return false;
    eventfd_t count;
    eventfd_read(event, &count);
    return true;
  }
};

// [sender, count, filling]: what each frame of the traffic holds.
std::string frame_of(uint64_t sender, uint64_t count, size_t filling) {
  Packer p;
  p.array(3);
  p.unsigned_integer(sender);
  p.unsigned_integer(count);
  memset(p.bytes_room(filling), static_cast<int>(sender + count), filling);
  return {p.data(), p.size()};
}

size_t filling_of(Random* random) {
  static const size_t kSizes[] = {0, 1, 40, 300, 5000, 70000};
  size_t size = kSizes[(*random)() % 6];
  return (*random)() % 500 ? size : kMaxFrame - 32;
}

// Sends until `frames` are sent or the server is gone; returns how many took effect for sure.
uint64_t send_frames(Session* s, uint64_t sender, uint64_t frames, uint64_t seed) {
  Random random(seed + sender);
  for (uint64_t i = 0; i < frames; ++i) {
    std::string frame = frame_of(sender, i, filling_of(&random));
    if (random() % 3) {
      if (!send_frame(s, frame.data(), frame.size(), kNoReply)) return i;
      continue;
    }
    int slot = acquire_reply_slot(s);
    if (slot < 0) return i;
    bool answered = send_frame(s, frame.data(), frame.size(), slot) && wait_reply(s, slot);
    if (answered) {
      ReplySlot& from = s->channel->slots[slot];
      Unpacker u(from.data, from.size);
      expect(u.array() == 2 && u.integer() == static_cast<int64_t>(sender) &&
                 u.integer() == static_cast<int64_t>(i) && u.ok(),
             "the reply is this frame's");
    }
    release_reply_slot(s, slot);
    if (!answered) return i;
  }
  return frames;
}

// Checks and answers the frames that have come, each sender's in order.
uint64_t serve(Ends* ends, std::map<int64_t, int64_t>* next) {
  uint64_t served = 0;
  for (;;) {
    std::vector<TakenFrame> frames = ends->lane->take(64);
    if (frames.empty()) return served;
    for (const TakenFrame& frame : frames) {
      Unpacker u(frame.bytes.data(), frame.bytes.size());
      expect(u.array() == 3, "a frame is whole");
      int64_t sender = u.integer(), count = u.integer();
      size_t size;
      const char* filling = u.bytes(&size);
      expect(u.ok() && u.at_end() && count == (*next)[sender]++, "frames come in order");
      for (size_t i = 0; i < size; ++i) {
        expect(filling[i] == static_cast<char>(sender + count), "a frame's bytes are its own");
      }
      if (frame.reply != kNoReply) {
        Packer reply;
        reply.array(2);
        reply.integer(sender);
        reply.integer(count);
        ends->lane->reply(frame.reply, reply.data(), reply.size());
      } else if (count % 7 == 0) {
        ends->lane->fail(700, "an error that nobody waits for");
      }
      ends->lane->done(1);
      ++served;
    }
  }
}

// More bytes than the ring holds several times over, from several threads.
void traffic(uint64_t seed) {
  constexpr uint64_t kThreads = 4, kFrames = 600;
  Ends ends;
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < kThreads; ++t) {
    senders.emplace_back([&ends, t, seed] {
      expect(send_frames(&ends.session, t, kFrames, seed) == kFrames, "every frame is sent");
    });
  }
  std::map<int64_t, int64_t> next;
  for (uint64_t served = 0; served < kThreads * kFrames;) {
    if (ends.wait()) served += serve(&ends, &next);
  }
  for (std::thread& one : senders) one.join();
  expect(ends.session.head > 4 * kRingBytes, "the ring wrapped around");
  expect(is_completed(&ends.session, ends.session.head), "all has taken effect");
}

// A frame that an executor runs: [copy_fetch, pointer, count, stream].
std::string fetch_of(uint64_t bytes) {
  Packer p;
  p.array(4);
  p.integer(static_cast<int>(Number::copy_fetch));
  for (uint64_t value : {uint64_t{1} << 45, bytes, uint64_t{0}}) p.unsigned_integer(value);
  return {p.data(), p.size()};
}

// Frames for the lane's executor and for the event loop in turn, each answered by who runs it.
void send_both(Session* s, uint64_t sender, uint64_t frames, uint64_t seed) {
  Random random(seed + sender);
  for (uint64_t i = 0; i < frames; ++i) {
    for (uint64_t n = random() % 4; n; --n) {
      std::string posted = fetch_of(random() % 4096);
      expect(send_frame(s, posted.data(), posted.size(), kNoReply), "a frame for the lane");
    }
    uint64_t wanted = random() % 4096;
    std::string fetch = fetch_of(wanted);
    int slot = acquire_reply_slot(s);
    expect(send_frame(s, fetch.data(), fetch.size(), slot) && wait_reply(s, slot), "an answer");
    Unpacker u(s->channel->slots[slot].data, s->channel->slots[slot].size);
    size_t size;
    expect(u.array() == 2 && u.integer() == 0 && u.bytes(&size) && size == wanted, "the bytes");
    release_reply_slot(s, slot);
    std::string other = frame_of(sender, i, random() % 300);
    expect(send_frame(s, other.data(), other.size(), kNoReply), "a frame for the loop");
  }
}

void executor(uint64_t seed) {
  constexpr uint64_t kThreads = 4, kFrames = 500;
  NullExecutor one;
  Ends ends(&one);
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < kThreads; ++t) {
    senders.emplace_back(send_both, &ends.session, t, kFrames, seed);
  }
  std::map<int64_t, int64_t> next;
  for (uint64_t served = 0; served < kThreads * kFrames;) {
    if (ends.wait()) served += serve(&ends, &next);
  }
  for (std::thread& thread : senders) thread.join();
  while (!is_completed(&ends.session, ends.session.head)) std::this_thread::yield();
}

// The lane is closed while threads send, wait for room and wait for replies: all come back.
void close_in_traffic(uint64_t seed) {
  Random random(seed);
  for (int round = 0; round < 15; ++round) {
    Ends ends;
    std::vector<std::thread> senders;
    for (uint64_t t = 0; t < 4; ++t) {
      senders.emplace_back([&ends, t, seed, round] {
        expect(send_frames(&ends.session, t, UINT64_MAX, seed + round) != UINT64_MAX, "it ends");
      });
    }
    std::map<int64_t, int64_t> next;
    uint64_t enough = random() % 200;
    for (uint64_t served = 0; served < enough;) {
      if (ends.wait()) served += serve(&ends, &next);
    }
    ends.lane->close("closed by the test");
    for (std::thread& one : senders) one.join();
    expect(strcmp(ends.session.channel->dead_text, "closed by the test") == 0, "the reason");
    expect(send_frame(&ends.session, "x", 1, kNoReply) == 0, "nothing is sent any more");
  }
}

// One of these, or any number.
uint64_t one_of(Random* random, std::initializer_list<uint64_t> numbers) {
  uint64_t at = (*random)() % (numbers.size() + 1);
  return at == numbers.size() ? (*random)() : *(numbers.begin() + at);
}

// A record as a hostile client may write it: its size, and the reply slot in the upper half.
uint64_t hostile_record(Random* random, uint64_t to_end) {
  uint64_t small = (*random)() % 64;
  bool sound = (*random)() % 4;
  uint64_t size = sound ? small
                        : one_of(random, {kSkip, kSkip - 1, kMaxFrame, kMaxFrame + 1, kRingBytes,
                                          to_end - 8, to_end, to_end + 8, 1u << 31});
  uint64_t reply = sound ? UINT32_MAX : one_of(random, {0, 63, 64, UINT32_MAX - 1, 1u << 31});
  return reply << 32 | (size & UINT32_MAX);
}

constexpr uint64_t kSynchronize = 0x1c91;  // [cudaDeviceSynchronize], which an executor runs

// What a client writes that is hostile in its records, in the head's position, or anywhere. It
// stays near the lane, so that the lane looks at much of it.
void scribble(Channel* c, std::atomic<bool>* stop, uint64_t seed) {
  Random random(seed);
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(c);
  auto* ring = reinterpret_cast<std::atomic<uint64_t>*>(c->ring);
  for (uint64_t head = 0; !*stop;) {
    uint64_t offset = head % kRingBytes, to_end = kRingBytes - offset;
    ring[offset / 8].store(hostile_record(&random, to_end));
    if (to_end > 8) ring[offset / 8 + 1].store(random() % 4 ? kSynchronize : random());
    head += 8 * (random() % 8 ? random() % 9 : one_of(&random, {to_end / 8}) % (kMaxFrame / 4));
    c->head.store(head);
    if (seed % 3 == 1 && random() % 64 == 0) {
      c->head.store(one_of(&random, {0, head - 8, head + 4, head + kRingBytes + 8}));
    } else if (seed % 3 == 2) {
      size_t header = offsetof(Channel, slots) / 8;
      words[random() % (random() % 2 ? header : sizeof(Channel) / 8)].store(random());
    }
    if (c->server_sleeps.exchange(0)) futex_wake(&c->server_sleeps);
    while (seed % 3 != 2 && !*stop && head - c->completed > 4096) std::this_thread::yield();
  }
}

// Anything written anywhere in the channel while the lane works in it: the lane ends by
// std::invalid_argument alone, and can always be closed.
void hostile(uint64_t seed) {
  int ended = 0;
  NullExecutor one;
  for (uint64_t round = 0; round < 150; ++round) {
    Ends ends(round % 2 ? &one : nullptr);
    std::atomic<bool> stop{false};
    std::thread client(scribble, ends.session.channel, &stop, seed * 1000 + round);
    try {
      for (int turn = 0; turn < 50 && ends.wait(); ++turn) {
        std::vector<TakenFrame> frames = ends.lane->take(64);
        for (const TakenFrame& frame : frames) {
          expect(frame.bytes.size() <= kMaxFrame, "a frame's size");
          expect(frame.reply >= kNoReply && frame.reply < kReplySlots, "a frame's reply slot");
          if (frame.reply != kNoReply) ends.lane->reply(frame.reply, "\x91\x00", 2);
          ends.lane->fail(1, "late");
          ends.lane->done(1);
        }
      }
    } catch (const std::invalid_argument&) {
      ++ended;
    }
    ends.lane->close("closed by the test");
    stop = true;
    client.join();
  }
  expect(ended > 50, "most rounds broke the ring's rules");
}

// Values of every kind and length come back from where Packer put them.
void codec(uint64_t seed) {
  Random random(seed);
  for (int round = 0; round < 10000; ++round) {
    Packer p;
    std::vector<std::function<bool(Unpacker*)>> checks;
    auto check = [&checks](std::function<bool(Unpacker*)> one) { checks.push_back(one); };
    for (uint64_t n = random() % 12; n; --n) {
      uint64_t v = random() >> random() % 64;
      auto i = static_cast<int64_t>(random()) >> random() % 64;
      std::string blob(random() % 8 ? random() % 300 : random() % 70000, static_cast<char>(v));
      std::string text(random() % 300, 'x');
      switch (random() % 6) {
        case 0:
          p.unsigned_integer(v);
          check([v](Unpacker* u) { return static_cast<uint64_t>(u->integer()) == v; });
          break;
        case 1:
          p.integer(i);
          check([i](Unpacker* u) { return u->integer() == i; });
          break;
        case 2:
          p.real(static_cast<double>(i));
          check([i](Unpacker* u) { return u->real() == static_cast<double>(i); });
          break;
        case 3:
          p.array(static_cast<uint32_t>(v));
          check([v](Unpacker* u) { return u->array() == static_cast<uint32_t>(v); });
          break;
        default:
          bool is_text = random() % 2;
          std::string wanted = is_text ? text : blob;
          is_text ? p.text(wanted.c_str()) : p.bytes(wanted.data(), wanted.size());
          check([wanted](Unpacker* u) {
            size_t size;
            const char* got = u->bytes(&size);
            return got && std::string(got, size) == wanted;
          });
      }
    }
    std::vector<char> exact(p.data(), p.data() + p.size());
    Unpacker u(exact.data(), exact.size());
    for (auto& same : checks) expect(same(&u), "a value comes back");
    expect(u.ok() && u.at_end(), "nothing is left");
    if (exact.empty()) continue;
    std::vector<char> cut(exact.begin(), exact.begin() + random() % exact.size());
    Unpacker short_one(cut.data(), cut.size());
    for (auto& same : checks) same(&short_one);
    expect(!short_one.ok(), "a truncation fails");
  }
  Packer nothing;
  nothing.bytes(nullptr, 0);
  nothing.append(nullptr, 0);
  Unpacker empty(nullptr, 0);
  empty.array();
  expect(nothing.size() == 2 && !empty.ok(), "empty values");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(uint64_t)> tests = {{"traffic", traffic},
                                                           {"executor", executor},
                                                           {"close", close_in_traffic},
                                                           {"hostile", hostile},
                                                           {"codec", codec}};
  auto test = argc == 3 ? tests.find(argv[1]) : tests.end();
  if (test == tests.end()) return fprintf(stderr, "usage: ring TEST SEED\n"), 2;
  test->second(strtoull(argv[2], nullptr, 10));
  puts("ok");
  return 0;
}
