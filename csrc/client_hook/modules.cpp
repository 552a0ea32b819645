// Modules that a program has in memory: what NVRTC and Triton compiled for it. The server loads
// their bytes for this client alone.
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include "driver_codes.h"
#include "frame.h"
#include "kernels.h"
#include "tables.h"

namespace mnemosyne {
namespace {

struct OwnModule {
  int64_t number;
  std::vector<Kernel*> kernels;  // that the program has asked for
};

std::unordered_set<void*>& modules() {
  static auto* table = new std::unordered_set<void*>;
  return *table;
}

OwnModule* find_module(void* handle) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  return modules().count(handle) ? static_cast<OwnModule*>(handle) : nullptr;
}

// What is in memory at an address that comes without a size.
struct Image {
  const unsigned char* data = nullptr;
  uint64_t size = 0;
};

uint64_t elf_size(const unsigned char* data) {
  Elf64_Ehdr header;
  memcpy(&header, data, sizeof header);
  uint64_t size = std::max(header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize,
                           header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize);
  for (unsigned i = 0; i < header.e_shnum && header.e_shentsize == sizeof(Elf64_Shdr); ++i) {
    Elf64_Shdr section;
    memcpy(&section, data + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) size = std::max(size, section.sh_offset + section.sh_size);
  }
  return size;
}

// fatbinary_section.h: a wrapper that points to a fatbin, and the header of one.
struct FatbinWrapper {
  uint32_t magic, version;
  const unsigned char* data;
};
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t fat_size;
};
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatbinMagic = 0xba55ed50;

uint64_t fatbin_size(const unsigned char* data) {
  FatbinHeader header;
  memcpy(&header, data, sizeof header);
  return header.header_size + header.fat_size;
}

// Without a size: neither a cubin nor a fatbin nor text, which PTX is.
Image measure(const void* image) {
  auto data = static_cast<const unsigned char*>(image);
  uint32_t magic;
  memcpy(&magic, data, sizeof magic);
  if (magic == kWrapperMagic) {
    FatbinWrapper wrapper;
    memcpy(&wrapper, data, sizeof wrapper);
    return {wrapper.data, fatbin_size(wrapper.data)};
  }
  if (magic == kFatbinMagic) return {data, fatbin_size(data)};
  if (memcmp(data, ELFMAG, SELFMAG) == 0) return {data, elf_size(data)};
  if (!isprint(data[0]) && !isspace(data[0])) return {};
  return {data, strlen(reinterpret_cast<const char*>(data))};
}

int load(void** handle, const void* image) {
  static std::atomic<int64_t> last{0};
  static std::mutex* one_at_a_time = new std::mutex;  // the pieces of an upload are in order
  if (!handle || !image) return kInvalidValue;
  if (!session()) return why_not();
  Image found = measure(image);
  if (!found.size) return kInvalidImage;
  uint64_t hash = fnv1a(found.data, found.size);
  auto* module = new OwnModule{++last, {}};
  Reply reply;
  std::unique_lock<std::mutex> uploading(*one_at_a_time);
  int code = upload_module(found.data, found.size, hash);
  if (!code) {
    Frame frame(Number::module_load, 2, Codes::kDriver);
    frame.leave_errors();
    frame.integer(module->number);
    frame.bytes(&hash, sizeof hash);
    code = frame.call(&reply);
  }
  uploading.unlock();
  if (code) return delete module, code;
  std::lock_guard<std::mutex> lock(tables_mutex());
  modules().insert(*handle = module);
  return kSuccess;
}

Kernel* known_kernel(const OwnModule& module, const char* name) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  for (Kernel* kernel : module.kernels) {
    if (strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

int get_kernel(void** kernel, void* handle, const char* name) {
  if (!kernel || !name) return kInvalidValue;
  OwnModule* module = find_module(handle);
  if (!module) return kInvalidResourceHandle;
  if ((*kernel = known_kernel(*module, name))) return kSuccess;
  Frame frame(Number::module_function, 2, Codes::kDriver);
  frame.leave_errors();
  frame.integer(module->number);
  frame.text(name);
  Reply reply;
  if (int code = frame.call(&reply)) return code == kInvalidDeviceFunction ? kSymbolNotFound : code;
  KernelInfo* info = read_info(&reply);
  if (!info) return kUnknown;
  auto* made = new Kernel{nullptr, strdup(name)};
  made->info = info;
  add_kernel(made);
  std::lock_guard<std::mutex> lock(tables_mutex());
  module->kernels.push_back(made);
  *kernel = made;
  return kSuccess;
}

// Kernels are never freed: another thread may be in a call with one.
int unload(void* handle) {
  OwnModule* module = find_module(handle);
  if (!module) return kInvalidResourceHandle;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    modules().erase(handle);
  }
  for (Kernel* kernel : module->kernels) remove_kernel(kernel);
  Frame frame(Number::module_unload, 1, Codes::kDriver);
  frame.integer(module->number);
  delete module;
  return frame.post();
}

std::string read_file(const char* path) {
  std::string content;
  FILE* file = fopen(path, "rbe");
  char piece[1 << 16];
  for (size_t n; file && (n = fread(piece, 1, sizeof piece, file));) content.append(piece, n);
  if (file) fclose(file);
  return content;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API int cuModuleLoadData(void** module, const void* image) {
  return driver_code(load(module, image));
}

// Options say how to compile PTX; none of them is passed on. What the compiler says is printed.
MNEMOSYNE_API int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options,
                                     void** values) {
  constexpr int kInfoLog = 3, kErrorLog = 5;  // CU_JIT_INFO_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER
  for (unsigned i = 0; i < count; ++i) {
    bool is_log = options[i] == kInfoLog || options[i] == kErrorLog;
    if (is_log && values[i]) *static_cast<char*>(values[i]) = 0;
  }
  return driver_code(load(module, image));
}

MNEMOSYNE_API int cuModuleLoad(void** module, const char* path) {
  if (!path) return kInvalidValue;
  std::string content = read_file(path);
  return content.empty() ? int{kFileNotFound} : driver_code(load(module, content.c_str()));
}

MNEMOSYNE_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  return driver_code(get_kernel(function, module, name));
}

MNEMOSYNE_API int cuModuleUnload(void* module) { return driver_code(unload(module)); }

MNEMOSYNE_API cudaError_t cudaLibraryLoadData(void** library, const void* code, void*, void**,
                                              unsigned, void*, void**, unsigned) {
  return report(load(library, code));
}

MNEMOSYNE_API cudaError_t cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
  return report(get_kernel(kernel, library, name));
}

MNEMOSYNE_API cudaError_t cudaLibraryUnload(void* library) { return report(unload(library)); }
