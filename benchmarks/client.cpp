// A client that does nothing but call: what a call costs in the stub, on the ring and there and
// back. With libclient.so preloaded: client LIBRARY OFFSET KERNEL SECONDS START; prints one line of
// JSON. Launches are counted for SECONDS from START (of the monotonic clock), so that several
// clients count at the same time.
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

int main(int argc, char** argv) {
  if (argc != 6) return fprintf(stderr, "usage: client LIBRARY OFFSET KERNEL SECONDS START\n"), 2;
  double seconds = atof(argv[4]);
  static Wrapper wrapper{0x466243b1, 1, map_file(argv[1]) + atoll(argv[2]), nullptr};
  static int stub;
  void** module = symbol<void**(void*)>("__cudaRegisterFatBinary")(&wrapper);
  auto add =
      symbol<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*)>(
          "__cudaRegisterFunction");
  add(module, &stub, argv[3], argv[3], -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  auto launch = symbol<int(const void*, dim3, dim3, void**, size_t, void*)>("cudaLaunchKernel");
  auto synchronize = symbol<int()>("cudaDeviceSynchronize");
  auto get_device = symbol<int(int*)>("cudaGetDevice");

  char parameters[16][64] = {};
  void* args[16];
  for (int i = 0; i < 16; ++i) args[i] = parameters[i];
  dim3 one{1, 1, 1};
  check(launch(&stub, one, one, args, 0, nullptr), "launch");
  check(synchronize(), "synchronize");

  constexpr int kLocal = 2000000;
  int device;
  double start = now();
  for (int i = 0; i < kLocal; ++i) get_device(&device);
  double local = (now() - start) / kLocal;

  // Bursts that fit into the ring: the time until the stub returns.
  constexpr int kBurst = 2000, kBursts = 40;
  std::vector<double> bursts;
  for (int b = 0; b < kBursts; ++b) {
    start = now();
    int failed = 0;
    for (int i = 0; i < kBurst; ++i) failed |= launch(&stub, one, one, args, 0, nullptr);
    check(failed, "launch");
    bursts.push_back((now() - start) / kBurst);
    check(synchronize(), "synchronize");
  }

  auto memory_info = symbol<int(size_t*, size_t*)>("cudaMemGetInfo");
  size_t available, total;
  double by_lane = median_of(3000, [&] { synchronize(); });
  double by_loop = median_of(3000, [&] { memory_info(&available, &total); });

  long launched = 0;
  double from = atof(argv[5]);
  while (now() < from) usleep(100);
  start = now();
  while (now() - start < seconds) {
    for (int i = 0; i < 100; ++i) check(launch(&stub, one, one, args, 0, nullptr), "launch");
    launched += 100;
  }
  check(synchronize(), "synchronize");
  double rate = launched / (now() - start);
  printf(
      "{\"local_ns\": %.2f, \"launch_ns\": %.1f, \"lane_us\": %.2f, \"loop_us\": %.2f, "
      "\"launches_per_s\": %.0f}\n",
      local * 1e9, median(bursts) * 1e9, by_lane * 1e6, by_loop * 1e6, rate);
  return 0;
}
