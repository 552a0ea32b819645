// What NVML measures of the GPU as a whole, whoever uses it: asked of the machine's own NVML.
#include <dlfcn.h>

#include "dl.h"
#include "errors.h"
#include "identity.h"

using namespace mnemosyne;

namespace {

enum NvmlReturn { kOk = 0, kInvalidArgument = 2, kUnsupported = 3 };  // nvml.h: nvmlReturn_t

// The machine's NVML and its handle of the server's GPU; null without either.
struct Sensors {
  void* library = nullptr;
  void* gpu = nullptr;

  Sensors() {
    // Deep binding: its calls of its own functions must not find those of this library.
    library = real_dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    auto init = find<int (*)()>("nvmlInit_v2");
    auto by_uuid = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    if (!described() || !init || !by_uuid || init() != kOk) return;
    if (by_uuid(uuid_text(*described()).c_str(), &gpu) != kOk) gpu = nullptr;
  }

  template <typename Function>
  Function find(const char* name) const {
    return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  }
};

const Sensors& sensors() {
  static const auto* one = new Sensors;
  return *one;
}

template <typename... Arguments>
int measure(bool* said, const char* name, Arguments... arguments) {
  auto ask = sensors().find<int (*)(void*, Arguments...)>(name);
  if (ask && sensors().gpu) return ask(sensors().gpu, arguments...);
  say_once(said, "%s is not supported: this machine's NVML does not know the server's device",
           name);
  return kUnsupported;
}

}  // namespace

// `rates`: per cent of time that the GPU was at work and its memory was used.
MNEMOSYNE_API int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  static bool said;
  return rates ? measure(&said, "nvmlDeviceGetUtilizationRates", rates) : int{kInvalidArgument};
}

MNEMOSYNE_API int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  static bool said;
  if (!celsius) return kInvalidArgument;
  return measure(&said, "nvmlDeviceGetTemperature", sensor, celsius);
}

MNEMOSYNE_API int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  static bool said;
  if (!milliwatts) return kInvalidArgument;
  return measure(&said, "nvmlDeviceGetPowerUsage", milliwatts);
}

MNEMOSYNE_API int nvmlDeviceGetClockInfo(void*, int clock, unsigned* megahertz) {
  static bool said;
  if (!megahertz) return kInvalidArgument;
  return measure(&said, "nvmlDeviceGetClockInfo", clock, megahertz);
}
