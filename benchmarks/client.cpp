// A client that does nothing but call: what a call costs in the stub, on the ring and there and
// back. With libclient.so preloaded: client LIBRARY OFFSET KERNEL. Each line on stdin asks for one
// figure, and the answer is one line of JSON: local, launch, copy, lane, loop, or rate START
// SECONDS, which counts launches from START (of the monotonic clock), so that several clients count
// at the same time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct dim3 {
  unsigned x, y, z;
};
struct Wrapper {
  int magic, version;
  const void* data;
  void* unused;
};

template <typename F>
static F* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (!found) {
    fprintf(stderr, "no %s: is libclient.so preloaded?\n", name);
    exit(1);
  }
  return reinterpret_cast<F*>(found);
}

static void check(int code, const char* what) {
  if (code == 0) return;
  auto describe = symbol<const char*(int)>("cudaGetErrorString");
  fprintf(stderr, "%s: %s\n", what, describe(code));
  exit(1);
}

static double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static const char* map_file(const char* path) {
  int fd = open(path, O_RDONLY);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) {
    perror(path);
    exit(1);
  }
  void* p = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  return static_cast<const char*>(p);
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds that one of so many calls takes.
template <typename F>
static double median_of(int count, F call) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    double start = now();
    call();
    times.push_back(now() - start);
  }
  return median(times);
}

// How the calls that are timed are named in the runtime.
struct Calls {
  int (*launch)(const void*, dim3, dim3, void**, size_t, void*);
  int (*copy)(void*, const void*, size_t, int, void*);
  int (*synchronize)();
  int (*get_device)(int*);
  int (*memory_info)(size_t*, size_t*);
};

constexpr dim3 kOne{1, 1, 1};
static Calls calls;
static int stub;  // whose address stands for the kernel
static char parameters[16][64];
static void* args[16];
static void* device_memory;

static int launch() { return calls.launch(&stub, kOne, kOne, args, 0, nullptr); }

static void set_up(const char* library, const char* offset, const char* kernel) {
  static Wrapper wrapper{0x466243b1, 1, map_file(library) + atoll(offset), nullptr};
  void** module = symbol<void**(void*)>("__cudaRegisterFatBinary")(&wrapper);
  auto add =
      symbol<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*)>(
          "__cudaRegisterFunction");
  add(module, &stub, const_cast<char*>(kernel), kernel, -1, nullptr, nullptr, nullptr, nullptr,
      nullptr);
  calls.launch = symbol<int(const void*, dim3, dim3, void**, size_t, void*)>("cudaLaunchKernel");
  calls.copy = symbol<int(void*, const void*, size_t, int, void*)>("cudaMemcpyAsync");
  calls.synchronize = symbol<int()>("cudaDeviceSynchronize");
  calls.get_device = symbol<int(int*)>("cudaGetDevice");
  calls.memory_info = symbol<int(size_t*, size_t*)>("cudaMemGetInfo");
  for (int i = 0; i < 16; ++i) args[i] = parameters[i];
  check(symbol<int(void**, size_t)>("cudaMalloc")(&device_memory, 1 << 20), "cudaMalloc");
  check(launch(), "launch");
  check(calls.synchronize(), "synchronize");
}

static double local() {
  constexpr int kCount = 1000000;
  int device;
  double start = now();
  for (int i = 0; i < kCount; ++i) calls.get_device(&device);
  return (now() - start) / kCount;
}

// Bursts that fit into the ring: the time until the stub returns.
template <typename F>
static double burst(int size, F call) {
  constexpr int kBursts = 20;
  std::vector<double> bursts;
  for (int b = 0; b < kBursts; ++b) {
    double start = now();
    int failed = 0;
    for (int i = 0; i < size; ++i) failed |= call();
    bursts.push_back((now() - start) / size);
    check(failed, "a call of a burst");
    check(calls.synchronize(), "synchronize");
  }
  return median(bursts);
}

static int small_copy() {
  constexpr int kHostToDevice = 1;
  static char content[4096];
  return calls.copy(device_memory, content, sizeof content, kHostToDevice, nullptr);
}

static int ask_memory() {
  size_t available, total;
  return calls.memory_info(&available, &total);
}

// Launches per second.
static double rate(double from, double seconds) {
  long launched = 0;
  while (now() < from) usleep(100);
  double start = now();
  while (now() - start < seconds) {
    for (int i = 0; i < 100; ++i) check(launch(), "launch");
    launched += 100;
  }
  check(calls.synchronize(), "synchronize");
  return launched / (now() - start);
}

static bool answer(const char* line) {
  double from, seconds, value;
  if (sscanf(line, "rate %lf %lf", &from, &seconds) == 2) {
    value = rate(from, seconds);
  } else if (!strcmp(line, "local\n")) {
    value = local();
  } else if (!strcmp(line, "launch\n")) {
    value = burst(2000, launch);
  } else if (!strcmp(line, "copy\n")) {
    value = burst(100, small_copy);
  } else if (!strcmp(line, "lane\n")) {
    value = median_of(2000, calls.synchronize);
  } else if (!strcmp(line, "loop\n")) {
    value = median_of(1000, ask_memory);
  } else {
    return fprintf(stderr, "no figure is called %s", line), false;
  }
  printf("{\"value\": %.6g}\n", value);
  fflush(stdout);
  return true;
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: client LIBRARY OFFSET KERNEL\n"), 2;
  set_up(argv[1], argv[2], argv[3]);
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    if (!answer(line)) return 1;
  }
  return 0;
}
