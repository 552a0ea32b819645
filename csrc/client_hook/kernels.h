// Kernels: what a program registered, and what the server said of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "types.h"

namespace mnemosyne {

class Reply;

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

// cudaFuncAttribute, of what a program may set; CUfunction_attribute numbers alike.
enum FunctionAttribute {
  kMaxDynamicSharedAttribute = 8,
  kCarveoutAttribute = 9,
  kNonPortableClusterAttribute = 14,
  kClusterPolicyAttribute = 15,
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
    kClusterMustBeSet,
    kClusterWidth,
    kClusterHeight,
    kClusterDepth,
    kNonPortableCluster,
    kClusterPolicy,
    kCount
  };
  // One thread may set what another is launching with.
  std::atomic<int64_t> attributes[kCount];
  std::atomic<int64_t> carveout{-1};
  // What the server was told last, by attribute, one more than the value; zero: nothing. Programs
  // set the same before each launch.
  std::atomic<int64_t> told[kClusterPolicyAttribute + 2] = {};
};

struct Kernel {
  Module* module;  // null: of a module in memory, and resolved
  const char* name;
  std::atomic<KernelInfo*> info{nullptr};
};

// The kernel of a host stub or of a cudaKernel_t; null if the program registered none there.
Kernel* find_kernel(const void* function);
// Asks the server on first use. Null: *code says why.
KernelInfo* resolve(Kernel* kernel, int* code);
// Reads a reply that describes a kernel; null: it is malformed.
KernelInfo* read_info(Reply* reply);
// Sends the bytes of a module, for which the server will look by their hash.
int upload_module(const void* data, uint64_t size, uint64_t hash);
uint64_t fnv1a(const unsigned char* p, size_t n);
// From now on find_kernel() finds this one by its address, or does not any more.
void add_kernel(Kernel* kernel);
void remove_kernel(Kernel* kernel);
// A cudaError_t.
int set_function_attribute(KernelInfo* info, int attribute, int value);
int set_cache_config(KernelInfo* info, int config);
int ask_occupancy(KernelInfo* info, int block, size_t shared, unsigned flags, int* blocks);
// Fills in path, offset, size and hash; false when the fatbin lies in no file.
bool locate(Module* module);

}  // namespace mnemosyne
