#include "driver.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "../symbols.h"

namespace mnemosyne::cuda {
namespace {

Driver load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  Driver d;
#define MNEMOSYNE_NEED(name) need(library, #name, &d.name)
  MNEMOSYNE_NEED(cuCtxSetCurrent);
  MNEMOSYNE_NEED(cuEventCreate);
  MNEMOSYNE_NEED(cuEventDestroy_v2);
  // CUDA 12.8 gave it another name, with the same parameters.
  if (!find(library, "cuEventElapsedTime_v2", &d.cuEventElapsedTime)) {
    MNEMOSYNE_NEED(cuEventElapsedTime);
  }
  MNEMOSYNE_NEED(cuEventQuery);
  MNEMOSYNE_NEED(cuEventRecordWithFlags);
  MNEMOSYNE_NEED(cuGetErrorName);
  MNEMOSYNE_NEED(cuGraphDestroy);
  MNEMOSYNE_NEED(cuGraphExecDestroy);
  MNEMOSYNE_NEED(cuGraphInstantiateWithFlags);
  MNEMOSYNE_NEED(cuGraphLaunch);
  MNEMOSYNE_NEED(cuLaunchKernel);
  MNEMOSYNE_NEED(cuLaunchKernelEx);
  MNEMOSYNE_NEED(cuMemHostRegister_v2);
  MNEMOSYNE_NEED(cuMemHostUnregister);
  MNEMOSYNE_NEED(cuMemcpy2DAsync_v2);
  MNEMOSYNE_NEED(cuMemcpyDtoDAsync_v2);
  MNEMOSYNE_NEED(cuMemcpyDtoHAsync_v2);
  MNEMOSYNE_NEED(cuMemcpyHtoDAsync_v2);
  MNEMOSYNE_NEED(cuMemsetD2D8Async);
  MNEMOSYNE_NEED(cuMemsetD32Async);
  MNEMOSYNE_NEED(cuMemsetD8Async);
  MNEMOSYNE_NEED(cuStreamBeginCapture_v2);
  MNEMOSYNE_NEED(cuStreamCreateWithPriority);
  MNEMOSYNE_NEED(cuStreamDestroy_v2);
  MNEMOSYNE_NEED(cuStreamEndCapture);
  MNEMOSYNE_NEED(cuStreamQuery);
  MNEMOSYNE_NEED(cuStreamSynchronize);
  MNEMOSYNE_NEED(cuStreamWaitEvent);
  MNEMOSYNE_NEED(cuStreamWriteValue32_v2);
#undef MNEMOSYNE_NEED
  find(library, "cuOccupancyMaxActiveClusters", &d.cuOccupancyMaxActiveClusters);
  find(library, "cuTensorMapEncodeTiled", &d.cuTensorMapEncodeTiled);
  find(library, "cuTensorMapEncodeIm2col", &d.cuTensorMapEncodeIm2col);
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver one = load();
  return one;
}

const char* error_name(int code) {
  const char* name = nullptr;
  driver().cuGetErrorName(code, &name);
  return name ? name : "an unknown error";
}

bool is_fatal(int code) {
  switch (code) {
    case 214:  // CUDA_ERROR_ECC_UNCORRECTABLE
    case 220:  // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case 226:  // CUDA_ERROR_CONTAINED
    case 700:  // CUDA_ERROR_ILLEGAL_ADDRESS
    case 702:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

}  // namespace mnemosyne::cuda
