// dlopen, by name: a program that opens the driver or a CUDA library itself gets this one.
//
// dlopen("libcuda.so.1") finds this library by its SONAME anyway; other spellings and absolute
// paths would reach the real thing. Everything else is passed on by a tail call, because what
// dlopen does depends on its caller (RUNPATH).
#include <dlfcn.h>

#include <cstring>

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

const Library* ours(const char* file) {
  if (!file) return nullptr;
  const char* slash = strrchr(file, '/');
  const char* base = slash ? slash + 1 : file;
  for (const Library& library : kLibraries) {
    if (strncmp(base, library.prefix, strlen(library.prefix)) == 0) return &library;
  }
  return nullptr;
}

using Open = void* (*)(const char*, int);

Open real_dlopen() {
  static Open real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  return real;
}

// A handle to this library.
void* open_self(int flags) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&open_self), &info)) return nullptr;
  return real_dlopen()(info.dli_fname, (flags & ~RTLD_NOLOAD) | RTLD_NOW);
}

__attribute__((noinline)) void* open_library(const Library* library, const char* file, int flags) {
  if (library->load_it_too && !real_dlopen()(file, flags)) return nullptr;
  // Without a server there is no NVML, as on a machine without a GPU: programs know how to take
  // that.
  bool missing = strncmp(library->prefix, "libnvidia-ml", 12) == 0 && !device();
  return missing ? real_dlopen()("libnvidia-ml.so.1 (no Mnemosyne server)", flags)
                 : open_self(flags);
}

}  // namespace
}  // namespace mnemosyne

MNEMOSYNE_API void* dlopen(const char* file, int flags) {
  const mnemosyne::Library* library = mnemosyne::ours(file);
  if (library) return mnemosyne::open_library(library, file, flags);
  return mnemosyne::real_dlopen()(file, flags);
}
