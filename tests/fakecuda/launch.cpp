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
  std::vector<size_t> parameters;  // bytes of each, of PTX
};
struct Global {
  CUdeviceptr address;
  size_t size;
};
struct Module {
  const char* image;  // null: it was PTX, which need not stay
  std::string ptx;
  std::map<std::string, Function*> functions;
  std::map<std::string, Global> globals;
};
auto& modules = *new Handles<Module>{"module", {}};
auto& functions = *new Handles<Function>{"function", {}};

constexpr int kMaxThreads = 1024, kOptInShared = 232448, kSmShared = 233472, kReserved = 1024;

Function* new_function(const std::string& name) {
  auto* f = new Function{name, {}, {}};
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
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const CUlaunchAttribute& one = c.attrs[i];
    log_line("%s: launch attribute %d = %u\n", f->name.c_str(), one.id, one.value.clusterDim.x);
  }
  auto* kernel = kKernels;
  while (!strstr(f->name.c_str(), kernel->part_of_name)) ++kernel;
  enqueue(stream, kernel->work(Parameters(each, extra)));
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const CUlaunchAttribute& one = c.attrs[i];
    bool marks = one.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
                 one.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    if (marks) record(one.value.launchCompletionEvent.event, c.hStream);
  }
  return CUDA_SUCCESS;
}

// The parameters of an entry in PTX, `.param .u64 name, ...`; false: there is no such entry.
bool find_entry(const std::string& ptx, const std::string& name, std::vector<size_t>* parameters) {
  size_t at = ptx.find(".entry " + name + "(");
  if (at == std::string::npos) return false;
  std::string list = ptx.substr(at, ptx.find(')', at) - at);
  for (at = 0; (at = list.find(".param .", at)) != std::string::npos; ++at) {
    size_t digits = list.find_first_of("0123456789", at + 8);
    parameters->push_back(strtoul(list.c_str() + digits, nullptr, 10) / 8);
  }
  return true;
}

// What a compiler would say of bad PTX.
void complain(unsigned count, CUjit_option* options, void** values) {
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
      strcpy(static_cast<char*>(values[i]), "ptxas fatal :\n no version");
    }
  }
}

CUresult load(CUmodule* module, const void* image, unsigned count = 0,
              CUjit_option* options = nullptr, void** values = nullptr) {
  auto* bytes = static_cast<const char*>(image);
  if (memcmp(image, ELFMAG, SELFMAG) == 0) {
    *module = modules.add<CUmodule>(new Module{bytes, "", {}, {}});
    return CUDA_SUCCESS;
  }
  if (!isprint(bytes[0])) return CUDA_ERROR_INVALID_IMAGE;
  if (!strstr(bytes, ".version")) return complain(count, options, values), CUDA_ERROR_INVALID_PTX;
  *module = modules.add<CUmodule>(new Module{nullptr, bytes, {}, {}});
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

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  return call(__func__, kContext,
              [&](Lock&) { return load(module, image, count, options, values); });
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
    Module* m = modules.get(module);
    std::vector<size_t> parameters;
    if (!m->image && !find_entry(m->ptx, name, &parameters)) return CUDA_ERROR_NOT_FOUND;
    Function*& f = m->functions[name];
    if (!f) f = new_function(name);
    f->parameters = parameters;
    *function = reinterpret_cast<CUfunction>(f);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* size, CUmodule module, const char* name) {
  return call(__func__, kContext, [&](Lock&) {
    Module* m = modules.get(module);
    Global global;
    if (!m->globals.count(name)) {
      if (!m->image || !find_variable(m->image, name, &global)) return CUDA_ERROR_NOT_FOUND;
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

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return call(__func__, kContext, [&](Lock&) {
    const std::vector<size_t>& all = functions.get(function)->parameters;
    if (index >= all.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i <= index; ++i) {
      *offset = (*offset + all[i] - 1) / all[i] * all[i];
      if (i < index) *offset += all[i];
    }
    *size = all[index];
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  return call(__func__, kContext, [&](Lock&) {
    log_line("%s: cache %d\n", functions.get(function)->name.c_str(), config);
    return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
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
    log_line("%s: attribute %d = %d\n", f->name.c_str(), attribute, value);
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

// As many clusters as the multiprocessors of an H200 hold, one block each.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                      const CUlaunchConfig* config) {
  return call(__func__, kContext, [&](Lock&) {
    functions.get(function);
    constexpr int kMultiprocessors = 132;
    unsigned size = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& one = config->attrs[i];
      if (one.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) size = one.value.clusterDim.x;
    }
    *clusters = static_cast<int>(kMultiprocessors / size);
    return size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
  });
}

// A map has the address in front, then what else was said of it.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return call(__func__, kContext, [&](Lock&) {
    if (number(map) % 64 || number(address) % 16 || !box[0] || !steps[0]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *map = {};
    cuuint64_t words[] = {number(address),
                          static_cast<cuuint64_t>(type),
                          rank,
                          sizes[0],
                          rank > 1 ? strides[0] : 0,
                          box[0],
                          static_cast<cuuint64_t>(interleave),
                          static_cast<cuuint64_t>(swizzle),
                          static_cast<cuuint64_t>(promotion),
                          static_cast<cuuint64_t>(fill)};
    memcpy(map, words, sizeof words);
    return CUDA_SUCCESS;
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t*,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  return call(__func__, kContext, [&](Lock&) {
    if (number(map) % 64 || number(address) % 16) return CUDA_ERROR_INVALID_VALUE;
    *map = {};
    cuuint64_t words[] = {number(address),
                          static_cast<cuuint64_t>(type),
                          rank,
                          sizes[0],
                          static_cast<cuuint64_t>(lower[0]),
                          static_cast<cuuint64_t>(upper[0]),
                          channels,
                          pixels};
    memcpy(map, words, sizeof words);
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
