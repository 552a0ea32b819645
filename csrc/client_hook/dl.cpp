// dlopen, by name: a program that opens the driver or a CUDA library itself gets this one.
//
// dlopen("libcuda.so.1") finds this library by its SONAME anyway; other spellings and absolute
// paths would reach the real thing. Everything else is passed on by a tail call, because what
// dlopen does depends on its caller (RUNPATH).
//
// So dlsym on such a handle finds what this library exports: calls that are offered, calls that
// refuse, and those that only the real library can answer, which are passed on (native_function).
// What no list of this project's names is not found, as in a library that lacks it.
#include "dl.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>

#include "session.h"

namespace mnemosyne {
namespace {

struct Library {
  const char* prefix;
  bool load_it_too;  // its dependants bind to it by name
};
constexpr Library kLibraries[] = {
    {"libcuda.so", false},      {"libnvidia-ml.so", false}, {"libcudart.so", true},
    {"libcublas.so", true},     {"libcublasLt.so", true},   {"libcudnn.so", true},
    {"libcufft.so", true},      {"libcusolver.so", true},   {"libcusparse.so", true},
    {"libcusparseLt.so", true}, {"libnccl.so", true},
};

bool is_file_of(const char* library, const char* file) {
  const char* slash = strrchr(file, '/');
  return strncmp(slash ? slash + 1 : file, library, strlen(library)) == 0;
}

const Library* ours(const char* file) {
  if (!file) return nullptr;
  for (const Library& library : kLibraries) {
    if (is_file_of(library.prefix, file)) return &library;
  }
  return nullptr;
}

using Open = void* (*)(const char*, int);

Open next_dlopen() {
  static Open real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  return real;
}

// A handle to this library.
void* open_self(int flags) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&open_self), &info)) return nullptr;
  return next_dlopen()(info.dli_fname, (flags & ~RTLD_NOLOAD) | RTLD_NOW);
}

__attribute__((noinline)) void* open_library(const Library* library, const char* file, int flags) {
  if (library->load_it_too && !next_dlopen()(file, flags)) return nullptr;
  // Without a server there is no NVML, as on a machine without a GPU: programs know how to take
  // that.
  bool missing = strncmp(library->prefix, "libnvidia-ml", 12) == 0 && !described();
  return missing ? next_dlopen()("libnvidia-ml.so.1 (no Mnemosyne server)", flags)
                 : open_self(flags);
}

struct Search {
  const char* library;
  std::string path;
};

// dl_iterate_phdr callback.
int look_at(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (!is_file_of(search->library, info->dlpi_name)) return 0;
  search->path = info->dlpi_name;
  return 1;
}

}  // namespace

void* real_dlopen(const char* file, int flags) { return next_dlopen()(file, flags); }

void* native_function(const char* library, const char* name) {
  Search search{library, {}};
  if (!dl_iterate_phdr(look_at, &search)) return nullptr;
  void* handle = next_dlopen()(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);  // kept, as natively
  return handle ? dlsym(handle, name) : nullptr;
}

}  // namespace mnemosyne

MNEMOSYNE_API void* dlopen(const char* file, int flags) {
  const mnemosyne::Library* library = mnemosyne::ours(file);
  if (library) return mnemosyne::open_library(library, file, flags);
  return mnemosyne::next_dlopen()(file, flags);
}
