// A program that uses the GPU from four threads at once, through a preloaded libclient.so:
//
//   program FATBIN KERNEL ROUNDS
//
// The kernel takes a pointer of 8 bytes and a number of 4. Prints "ok" when every call gave what it
// should; a device that executes nothing is enough.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

struct dim3 {
  unsigned x, y, z;
};
struct Wrapper {
  int magic, version;
  const void* data;
  void* unused;
};
using Handle = void*;
enum { kToDevice = 1, kToHost = 2, kOnDevice = 3 };

template <typename F>
static F* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (!found) fprintf(stderr, "no %s: is libclient.so preloaded?\n", name), _exit(1);
  return reinterpret_cast<F*>(found);
}
#define CUDA(name, ...) static auto* name = symbol<int(__VA_ARGS__)>(#name)

CUDA(cudaMalloc, void**, size_t);
CUDA(cudaFree, void*);
CUDA(cudaMallocHost, void**, size_t);
CUDA(cudaFreeHost, void*);
CUDA(cudaMemcpy, void*, const void*, size_t, int);
CUDA(cudaMemcpyAsync, void*, const void*, size_t, int, Handle);
CUDA(cudaMemcpy2DAsync, void*, size_t, const void*, size_t, size_t, size_t, int, Handle);
CUDA(cudaMemsetAsync, void*, int, size_t, Handle);
CUDA(cudaMemGetInfo, size_t*, size_t*);
CUDA(cudaHostRegister, void*, size_t, unsigned);
CUDA(cudaHostUnregister, void*);
CUDA(cudaPointerGetAttributes, void*, const void*);
CUDA(cudaStreamCreateWithPriority, Handle*, unsigned, int);
CUDA(cudaStreamDestroy, Handle);
CUDA(cudaStreamSynchronize, Handle);
CUDA(cudaStreamQuery, Handle);
CUDA(cudaStreamWaitEvent, Handle, Handle, unsigned);
CUDA(cudaDeviceSynchronize);
CUDA(cudaEventCreateWithFlags, Handle*, unsigned);
CUDA(cudaEventRecord, Handle, Handle);
CUDA(cudaEventSynchronize, Handle);
CUDA(cudaEventElapsedTime, float*, Handle, Handle);
CUDA(cudaEventDestroy, Handle);
CUDA(cudaLaunchHostFunc, Handle, void (*)(void*), void*);
CUDA(cudaLaunchKernel, const void*, dim3, dim3, void**, size_t, Handle);
CUDA(cudaFuncGetAttributes, void*, const void*);
CUDA(cudaFuncSetAttribute, const void*, int, int);
CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int*, const void*, int, size_t);
CUDA(cudaGetDeviceCount, int*);
CUDA(cudaGetLastError);
CUDA(__cudaPushCallConfiguration, dim3, dim3, size_t, Handle);
CUDA(__cudaPopCallConfiguration, dim3*, dim3*, size_t*, void*);
CUDA(__cudaGetKernel, void**, const void*);
CUDA(__cudaLaunchKernel, void*, dim3, dim3, void**, size_t, Handle);
CUDA(cublasCreate_v2, Handle*);
CUDA(cublasDestroy_v2, Handle);
CUDA(cublasSetStream_v2, Handle, Handle);
CUDA(cublasSgemm_v2, Handle, int, int, int, int, int, const float*, const void*, int, const void*,
     int, const float*, void*, int);
CUDA(cudnnCreate, Handle*);
CUDA(cudnnDestroy, Handle);
CUDA(cudnnSetStream, Handle, Handle);
CUDA(cudnnCreateTensorDescriptor, Handle*);
CUDA(cudnnSetTensorNdDescriptor, Handle, int, int, const int*, const int*);
CUDA(cudnnDestroyTensorDescriptor, Handle);
CUDA(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, Handle, int, int, Handle, Handle,
     Handle, Handle, Handle, size_t*);
CUDA(cudnnBackendCreateDescriptor, int, Handle*);
CUDA(cudnnBackendSetAttribute, Handle, int, int, int64_t, const void*);
CUDA(cudnnBackendFinalize, Handle);
CUDA(cudnnBackendDestroyDescriptor, Handle);

#define CHECK(call) expect((call), 0, #call)
static void expect(int code, int wanted, const char* what) {
  if (code == wanted) return;
  auto* describe = symbol<const char*(int)>("cudaGetErrorString");
  fprintf(stderr, "%s: %d (%s), expected %d\n", what, code, describe(code), wanted);
  _exit(1);
}

static int stub;  // what stands for the kernel in the program

static void register_kernel(const char* path, const char* name) {
  int fd = open(path, O_RDONLY);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) perror(path), _exit(1);
  void* data = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  static Wrapper wrapper{0x466243b1, 1, data, nullptr};
  void** module = symbol<void**(void*)>("__cudaRegisterFatBinary")(&wrapper);
  symbol<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*)>(
      "__cudaRegisterFunction")(module, &stub, nullptr, name, -1, nullptr, nullptr, nullptr,
                                nullptr, nullptr);
  symbol<void(void**)>("__cudaRegisterFatBinaryEnd")(module);
}

static void launch(void* pointer, Handle stream) {
  int number = 7;
  void* args[] = {&pointer, &number};
  dim3 grid{4, 1, 1}, block{128, 1, 1};
  CHECK(cudaLaunchKernel(&stub, grid, block, args, 0, stream));
  size_t shared = 64;
  Handle same;
  void* kernel;
  CHECK(__cudaPushCallConfiguration(grid, block, shared, stream));
  CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &same));
  CHECK(__cudaGetKernel(&kernel, &stub));
  CHECK(__cudaLaunchKernel(kernel, grid, block, args, shared, same));
  expect(cudaLaunchKernel(&stub, {0, 1, 1}, block, args, 0, stream), 9, "an empty grid");
  expect(cudaGetLastError(), 9, "the error of an empty grid");
}

static void ask_kernel() {
  char attributes[256];
  int blocks;
  CHECK(cudaFuncGetAttributes(attributes, &stub));
  CHECK(cudaFuncSetAttribute(&stub, 8, 60000));  // MaxDynamicSharedMemorySize
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub, 128, 0));
}

// Copies through every way there is: inline, staged, pinned, fetched, in rows.
static void copy(void* device, Handle stream, std::vector<char>* pageable) {
  void* pinned;
  CHECK(cudaMallocHost(&pinned, 100000));
  memset(pinned, 1, 100000);
  for (size_t size : {size_t{0}, size_t{1}, size_t{5000}, pageable->size()}) {
    CHECK(cudaMemcpyAsync(device, pageable->data(), size, kToDevice, stream));
    CHECK(cudaMemcpy(pageable->data(), device, size, kToHost));
  }
  CHECK(cudaMemcpyAsync(device, pinned, 100000, kToDevice, stream));
  CHECK(cudaMemcpyAsync(pinned, device, 100000, kToHost, stream));
  CHECK(cudaMemcpyAsync(device, static_cast<char*>(device) + 4096, 4096, kOnDevice, stream));
  CHECK(cudaMemcpy2DAsync(device, 512, pageable->data(), 100, 100, 8, kToDevice, stream));
  CHECK(cudaMemsetAsync(device, 0, 4096, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFreeHost(pinned));
}

static void multiply(void* device, Handle stream) {
  Handle blas;
  float one = 1;
  CHECK(cublasCreate_v2(&blas));
  CHECK(cublasSetStream_v2(blas, stream));
  for (int n : {2, 3}) {
    CHECK(cublasSgemm_v2(blas, 0, 0, n, n, n, &one, device, n, device, n, &one, device, n));
  }
  CHECK(cublasDestroy_v2(blas));
}

static void describe_tensors(Handle stream, int round) {
  Handle cudnn, norm, tensor;
  CHECK(cudnnCreate(&cudnn));
  CHECK(cudnnSetStream(cudnn, stream));
  int sizes[] = {2 + round % 3, 3, 4, 4}, strides[] = {48, 16, 4, 1};
  CHECK(cudnnCreateTensorDescriptor(&norm));
  CHECK(cudnnSetTensorNdDescriptor(norm, 0, 4, sizes, strides));
  size_t room;
  CHECK(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnn, 1, 0, norm, nullptr, norm,
                                                                 norm, nullptr, &room));
  constexpr int kTensor = 17, kId = 906, kSizes = 902, kInt64 = 3;
  int64_t id = round, wide[] = {2, 3, 4, 4};
  CHECK(cudnnBackendCreateDescriptor(kTensor, &tensor));
  CHECK(cudnnBackendSetAttribute(tensor, kId, kInt64, 1, &id));
  CHECK(cudnnBackendSetAttribute(tensor, kSizes, kInt64, 4, wide));
  CHECK(cudnnBackendFinalize(tensor));
  CHECK(cudnnBackendDestroyDescriptor(tensor));
  CHECK(cudnnDestroyTensorDescriptor(norm));
  CHECK(cudnnDestroy(cudnn));
}

static void work(int rounds, Handle shared_stream) {
  std::vector<char> pageable(300000), large(9 << 20);  // more pieces than there are at once
  size_t free_bytes, total;
  for (int round = 0; round < rounds; ++round) {
    void* device;
    Handle stream, events[2];
    CHECK(cudaMalloc(&device, 10 << 20));
    CHECK(cudaStreamCreateWithPriority(&stream, 1, 0));
    for (Handle& event : events) CHECK(cudaEventCreateWithFlags(&event, 0));
    CHECK(cudaEventRecord(events[0], stream));
    launch(device, stream);
    launch(device, shared_stream);
    ask_kernel();
    copy(device, stream, round % 8 ? &pageable : &large);
    multiply(device, stream);
    describe_tensors(stream, round);
    CHECK(cudaEventRecord(events[1], stream));
    CHECK(cudaStreamWaitEvent(shared_stream, events[1], 0));
    CHECK(cudaEventSynchronize(events[1]));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    bool called = false;
    CHECK(cudaLaunchHostFunc(stream, [](void* p) { *static_cast<bool*>(p) = true; }, &called));
    CHECK(cudaStreamSynchronize(stream));
    expect(called, true, "the host function has run");
    int answer = cudaStreamQuery(shared_stream);
    if (answer != 600) CHECK(answer);  // other threads may use it: not ready
    CHECK(cudaHostRegister(pageable.data(), pageable.size(), 0));
    char attributes[32];
    CHECK(cudaPointerGetAttributes(attributes, pageable.data()));
    CHECK(cudaHostUnregister(pageable.data()));
    for (Handle event : events) CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    expect(cudaStreamSynchronize(stream), 400, "a stream that is gone");
    expect(cudaGetLastError(), 400, "the error of a stream that is gone");
    CHECK(cudaFree(device));
  }
}

static void fork_once() {
  pid_t child = fork();
  if (child == 0) {
    void* p;
    _exit(cudaMalloc(&p, 1) == 3 ? 0 : 1);  // cudaErrorInitializationError
  }
  int status;
  waitpid(child, &status, 0);
  expect(status, 0, "a forked child");
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: program FATBIN KERNEL ROUNDS\n"), 2;
  register_kernel(argv[1], argv[2]);
  int rounds = atoi(argv[3]), count = 0;
  CHECK(cudaGetDeviceCount(&count));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, rounds, nullptr);
  for (std::thread& one : threads) one.join();
  CHECK(cudaDeviceSynchronize());
  fork_once();
  expect(dlopen("libcuda.so.1", RTLD_NOW) != nullptr, true, "dlopen of the driver");
  puts("ok");
  return 0;
}
