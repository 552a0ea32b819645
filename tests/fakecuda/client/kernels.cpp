// A library with kernels, as nvcc would make it. kernels.py writes the fatbin, and kernels.inc with
// KERNEL(name) for each. It is for processes with libclient.so, which has the functions below.
#include <cstddef>

struct dim3 {
  unsigned x, y, z;
};
struct FatbinWrapper {
  int magic, version;
  const char* data;
  void* unused;
};

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** module);
void __cudaRegisterFunction(void** module, const char* stub, char* device_function,
                            const char* name, int thread_limit, void*, void*, dim3*, dim3*, int*);
int cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared,
                     void* stream);

extern const char fatbin[];
// Addresses that stand for the kernels.
#define KERNEL(name) char name;
#include "kernels.inc"
#undef KERNEL

int launch(const void* stub, void** arguments, void* stream) {
  return cudaLaunchKernel(stub, {1, 1, 1}, {1, 1, 1}, arguments, 0, stream);
}
}

asm(".pushsection .nv_fatbin,\"a\"\n.balign 16\n.hidden fatbin\nfatbin:\n.incbin \"" FATBIN
    "\"\n.popsection");

static FatbinWrapper wrapper{0x466243b1, 1, fatbin, nullptr};

__attribute__((constructor)) static void register_kernels() {
  void** module = __cudaRegisterFatBinary(&wrapper);
#define KERNEL(name)                                                                          \
  __cudaRegisterFunction(module, &name, &name, #name, -1, nullptr, nullptr, nullptr, nullptr, \
                         nullptr);
#include "kernels.inc"
#undef KERNEL
  __cudaRegisterFatBinaryEnd(module);
}
