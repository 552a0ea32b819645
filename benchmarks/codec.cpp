// What it takes to write the frame of a launch and to read it, without any ring: as the client
// does it, and as the lane does. A line on stdin asks, encode or decode; the answer is one line of
// JSON with the seconds of one frame.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "../csrc/generated/calls.h"

using namespace mnemosyne;

static double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static void write(Packer* frame, uint64_t function) {
  static const char arguments[48] = {};
  frame->array(11);
  frame->unsigned_integer(static_cast<uint64_t>(Number::launch));
  frame->unsigned_integer(function);
  for (int i = 0; i < 6; ++i) frame->unsigned_integer(128 >> i);
  frame->unsigned_integer(0);
  frame->unsigned_integer(0);
  frame->bytes(arguments, sizeof arguments);
}

// Keeps the compiler from leaving out what nobody looks at.
static volatile uint64_t seen;

static double encode(int count) {
  double start = now();
  for (int i = 0; i < count; ++i) {
    Packer frame;
    write(&frame, i);
    seen = frame.size();
  }
  return (now() - start) / count;
}

static double decode(int count) {
  Packer frame;
  write(&frame, 1000);
  double start = now();
  for (int i = 0; i < count; ++i) {
    Unpacker fields(frame.data(), frame.size());
    fields.array();
    auto number = static_cast<Number>(fields.integer());
    calls::launch call;
    if (number == Number::launch) call.read(fields);
    seen = call.function + call.args.size;
  }
  return (now() - start) / count;
}

int main() {
  constexpr int kCount = 1000000;
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    double value = strcmp(line, "encode\n") ? decode(kCount) : encode(kCount);
    printf("{\"value\": %.6g}\n", value);
    fflush(stdout);
  }
  return 0;
}
