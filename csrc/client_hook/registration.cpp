// What the code that nvcc emits calls when a library is loaded. Runs in every process, GPU user or
// not, so it only stores pointers.
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "errors.h"
#include "kernels.h"
#include "tables.h"

namespace mnemosyne {
namespace {

// fatbinary_section.h: what a program hands over.
struct FatbinWrapper {
  int magic;
  int version;
  const unsigned char* data;
  void* filename_or_fatbins;
};
// The header of the data it points to.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_size;
  uint64_t fat_size;
};
constexpr uint32_t kFatbinMagic = 0xba55ed50;

struct Registered {
  Module* module;
  const void* host;
  const char* name;
};

struct Registry {
  std::deque<Module> modules;
  std::vector<Registered> functions;
  size_t indexed = 0;  // functions that `kernels` knows already
  std::unordered_map<const void*, Kernel*> kernels;
  std::unordered_map<const void*, Kernel*> handles;  // a Kernel may stand for itself

  void index_new() {
    for (; indexed < functions.size(); ++indexed) {
      const Registered& f = functions[indexed];
      if (!f.host) continue;  // unloaded before anything was launched
      kernels[f.host] = new Kernel{f.module, f.name};
    }
  }
};
Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}

struct Search {
  Module* module;
  bool found;
};

// dl_iterate_phdr callback: is the fatbin inside one of this object's segments?
int look_into(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  auto wanted = reinterpret_cast<uint64_t>(search->module->fatbin);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    uint64_t start = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || wanted < start || wanted - start >= segment.p_filesz) continue;
    const char* name = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
    char resolved[PATH_MAX];
    search->module->path = realpath(name, resolved) ? resolved : name;
    search->module->offset = segment.p_offset + (wanted - start);
    search->found = true;
    return 1;
  }
  return 0;
}

}  // namespace

uint64_t fnv1a(const unsigned char* p, size_t n) {
  uint64_t hash = 0xcbf29ce484222325;
  while (n--) hash = (hash ^ *p++) * 0x100000001b3;
  return hash;
}

bool locate(Module* module) {
  if (module->size) return true;
  FatbinHeader header;
  memcpy(&header, module->fatbin, sizeof header);
  if (header.magic != kFatbinMagic) return false;
  Search search{module, false};
  dl_iterate_phdr(look_into, &search);
  uint64_t size = header.header_size + header.fat_size;
  module->hash = fnv1a(module->fatbin, size);
  module->size = size;
  return true;
}

Kernel* find_kernel(const void* function) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(tables_mutex());
  r.index_new();
  auto found = r.kernels.find(function);
  if (found != r.kernels.end()) {
    r.handles[found->second] = found->second;
    return found->second;
  }
  auto handle = r.handles.find(function);
  return handle == r.handles.end() ? nullptr : handle->second;
}

void add_kernel(Kernel* kernel) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  registry().handles[kernel] = kernel;
}

void remove_kernel(Kernel* kernel) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  registry().handles.erase(kernel);
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API void** __cudaRegisterFatBinary(void* wrapper) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(tables_mutex());
  r.modules.emplace_back(static_cast<FatbinWrapper*>(wrapper)->data);
  return reinterpret_cast<void**>(&r.modules.back());
}

MNEMOSYNE_API void __cudaRegisterFatBinaryEnd(void**) {}

// The library is being unloaded: its stubs must not be found any more.
MNEMOSYNE_API void __cudaUnregisterFatBinary(void** handle) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto* module = reinterpret_cast<Module*>(handle);
  for (size_t i = module->first; i < module->last; ++i) {
    Registered& f = r.functions[i];
    if (f.module != module) continue;  // another library was loaded at the same time
    r.kernels.erase(f.host);
    f.host = nullptr;
  }
}

MNEMOSYNE_API void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name,
                                          int, void*, void*, dim3*, dim3*, int*) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto* module = reinterpret_cast<Module*>(handle);
  if (module->last == 0) module->first = r.functions.size();
  r.functions.push_back({module, host, name});
  module->last = r.functions.size();
}

// A module's variables live with the module, on the server.
MNEMOSYNE_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
MNEMOSYNE_API void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int,
                                            int) {}
MNEMOSYNE_API char __cudaInitModule(void**) { return 1; }
