// Modules and kernels. Only the kernels of the table do anything; any other just takes its time.
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "fakecuda.h"

namespace fakecuda {
namespace {

struct Function {
  std::string name;
  int attributes[CU_FUNC_ATTRIBUTE_MAX];
};
struct Global {
  CUdeviceptr address;
  size_t size;
};
struct Module {
  const char* image;
  std::map<std::string, Function*> functions;
  std::map<std::string, Global> globals;
};
auto& modules = *new Handles<Module>{"module", {}};
auto& functions = *new Handles<Function>{"function", {}};

constexpr int kMaxThreads = 1024, kOptInShared = 232448, kSmShared = 233472, kReserved = 1024;

Function* new_function(const std::string& name) {
  auto* f = new Function{name, {}};
  f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = kMaxThreads;
  f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
  f->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
  f->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
  f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
  f->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
  functions.all.insert(f);
  return f;
}

// A variable by its symbol; its first content is what the image says.
bool find_variable(const char* image, const char* wanted, Global* global) {
  auto* header = reinterpret_cast<const Elf64_Ehdr*>(image);
  auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    auto* symbols = reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
    const char* names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t n = 0; n < sections[i].sh_size / sizeof *symbols; ++n) {
      const Elf64_Sym& s = symbols[n];
      if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || strcmp(names + s.st_name, wanted)) continue;
      const Elf64_Shdr& in = sections[s.st_shndx];
      const char* content = in.sh_type == SHT_NOBITS ? nullptr : image + in.sh_offset + s.st_value;
      *global = {new_device_memory(content, s.st_size), s.st_size};
      return true;
    }
  }
  return false;
}

// The parameters of a launch, in either form.
class Parameters {
 public:
  Parameters(void** each, void** extra) : each_(each) {
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer_ = static_cast<const char*>(extra[1]);
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size_ = *static_cast<size_t*>(extra[1]);
    }
  }

  template <class T>
  T get(int ordinal, size_t offset) const {
    if (!each_ && (!buffer_ || offset + sizeof(T) > size_)) die("parameter %d is missing", ordinal);
    T value;
    memcpy(&value, each_ ? each_[ordinal] : buffer_ + offset, sizeof value);
    return value;
  }

  // What the kernel may touch: mappings that something in the buffer points to. Of parameters that
  // come one by one nobody here knows the sizes.
  std::vector<Range> pointers() const {
    std::vector<Range> found;
    for (size_t at = 0; buffer_ && at + sizeof(CUdeviceptr) <= size_; at += sizeof(CUdeviceptr)) {
      Range range;
      if (mapped_range(get<CUdeviceptr>(0, at), &range)) found.push_back(range);
    }
    return found;
  }

 private:
  void** each_;
  const char* buffer_ = nullptr;
  size_t size_ = 0;
};

Work sleep_kernel(const Parameters& p) {
  auto microseconds = p.get<int32_t>(0, 0);
  return {{}, [=] { usleep(static_cast<useconds_t>(microseconds)); }};
}

Work fill_kernel(const Parameters& p) {
  auto address = p.get<CUdeviceptr>(0, 0);
  auto value = p.get<uint32_t>(1, 8);
  auto count = p.get<uint64_t>(2, 16);
  size_t size = count * sizeof value;
  auto* words = reinterpret_cast<uint32_t*>(find_shared(address, size, kWrite).bytes);
  return {{{address, size}}, [=] { std::fill_n(words, count, value); }};
}

Work spin_kernel(const Parameters& p) {
  auto address = p.get<CUdeviceptr>(0, 0);
  auto* word = reinterpret_cast<uint32_t*>(find_shared(address, sizeof(uint32_t), kRead).bytes);
  auto spin = [=] {
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE) && !faulted()) usleep(50);
  };
  return {{{address, sizeof *word}}, spin};
}

template <CUresult code>
Work fault_kernel(const Parameters&) {
  return {{}, [] { fault(code); }};
}

Work other_kernel(const Parameters& p) {
  static const auto microseconds = static_cast<useconds_t>(environment("FAKECUDA_LAUNCH_US", 0));
  return {p.pointers(), [] {
            if (microseconds) usleep(microseconds);
          }};
}

const struct {
  const char* part_of_name;
  Work (*work)(const Parameters&);
} kKernels[] = {
    {"fake_sleep", sleep_kernel},  // (int32 microseconds)
    {"fake_fill", fill_kernel},    // (pointer, uint32 value, uint64 count of words)
    {"fake_spin", spin_kernel},    // (pointer to a word): until it is not 0
    {"fake_illegal", fault_kernel<CUDA_ERROR_ILLEGAL_ADDRESS>},
    {"fake_assert", fault_kernel<CUDA_ERROR_ASSERT>},
    {"", other_kernel},
};

CUresult launch(const CUlaunchConfig& c, CUfunction function, void** each, void** extra) {
  Function* f = functions.get(function);
  Stream* stream = find_stream(c.hStream);
  uint64_t threads = uint64_t{c.blockDimX} * c.blockDimY * c.blockDimZ;
  bool empty = !threads || !c.gridDimX || !c.gridDimY || !c.gridDimZ;
  bool wide = c.gridDimX > INT32_MAX || c.gridDimY > 65535 || c.gridDimZ > 65535;
  auto most = static_cast<unsigned>(f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
  if (empty || wide || threads > kMaxThreads || c.blockDimZ > 64 || c.sharedMemBytes > most ||
      (each && extra)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* kernel = kKernels;
  while (!strstr(f->name.c_str(), kernel->part_of_name)) ++kernel;
  enqueue(stream, kernel->work(Parameters(each, extra)));
  return CUDA_SUCCESS;
}

CUresult load(CUmodule* module, const void* image) {
  if (memcmp(image, ELFMAG, SELFMAG)) return CUDA_ERROR_INVALID_IMAGE;
  *module = modules.add<CUmodule>(new Module{static_cast<const char*>(image), {}, {}});
  return CUDA_SUCCESS;
}

int blocks_per_multiprocessor(int threads, size_t shared) {
  if (threads > kMaxThreads) return 0;
  int by_threads = 2048 / ((threads + 31) / 32 * 32);
  int by_shared = static_cast<int>(kSmShared / (shared + kReserved));
  return std::min({32, by_threads, by_shared});
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return call(__func__, kContext, [&](Lock&) { return load(module, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return call(__func__, kContext, [&](Lock&) { return load(module, image); });
}

CUresult cuModuleUnload(CUmodule module) {
  return call(__func__, kContext, [&](Lock&) {
    Module* m = modules.get(module);
    for (auto& one : m->functions) functions.all.erase(one.second);
    modules.all.erase(m);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call(__func__, kContext, [&](Lock&) {
    Function*& f = modules.get(module)->functions[name];
    if (!f) f = new_function(name);
    *function = reinterpret_cast<CUfunction>(f);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* size, CUmodule module, const char* name) {
  return call(__func__, kContext, [&](Lock&) {
    Module* m = modules.get(module);
    Global global;
    if (!m->globals.count(name)) {
      if (!find_variable(m->image, name, &global)) return CUDA_ERROR_NOT_FOUND;
      m->globals[name] = global;
    }
    if (address) *address = m->globals[name].address;
    if (size) *size = m->globals[name].size;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return call(__func__, kContext, [&](Lock&) {
    Function* f = functions.get(function);
    if (attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = f->attributes[attribute];
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return call(__func__, kContext, [&](Lock&) {
    Function* f = functions.get(function);
    if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        attribute >= CU_FUNC_ATTRIBUTE_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    bool shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    if (shared && (value < 0 || value > kOptInShared)) return CUDA_ERROR_INVALID_VALUE;
    f->attributes[attribute] = value;
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned) {
  return call(__func__, kContext, [&](Lock&) {
    functions.get(function);
    if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_per_multiprocessor(threads, shared);
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** each,
                          void** extra) {
  return call(__func__, kContext, [&](Lock&) { return launch(*config, function, each, extra); });
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** each, void** extra) {
  return call(__func__, kContext, [&](Lock&) {
    CUlaunchConfig c{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, nullptr, 0};
    return launch(c, function, each, extra);
  });
}
