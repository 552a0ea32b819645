// Kernels: what a program registered, and what the server said of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "types.h"

namespace mnemosyne {

struct Module {
  explicit Module(const unsigned char* data) : fatbin(data) {}

  const unsigned char* fatbin;  // in the mapped library
  size_t first = 0, last = 0;   // its functions, in the order of registration
  // Found on first use: the file the fatbin lies in.
  std::string path;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t hash = 0;
};

struct Parameter {
  uint32_t offset, size;
};

// The server's answer, kept for the life of the process.
struct KernelInfo {
  uint64_t function;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes;
  // In the order of the `kernel` reply; see FunctionInfo in the server.
  enum {
    kShared,
    kConst,
    kLocal,
    kMaxThreads,
    kRegisters,
    kPtx,
    kBinary,
    kMaxDynamicShared,
    kCount
  };
  // One thread may set what another is launching with.
  std::atomic<int64_t> attributes[kCount];
  std::atomic<int64_t> carveout{-1};
};

struct Kernel {
  Module* module;
  const char* name;
  std::atomic<KernelInfo*> info{nullptr};
};

// The kernel of a host stub or of a cudaKernel_t; null if the program registered none there.
Kernel* find_kernel(const void* function);
// Asks the server on first use. Null: *code says why.
KernelInfo* resolve(Kernel* kernel, int* code);
// Fills in path, offset, size and hash; false when the fatbin lies in no file.
bool locate(Module* module);

}  // namespace mnemosyne
