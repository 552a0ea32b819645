// The CUDA driver's functions that lanes call, found at run time, so that building needs no CUDA.
// Prototypes and structures are those of cuda.h (tests compare them with the real header).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mnemosyne::cuda {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kInvalidResourceHandle = 400;  // CUDA_ERROR_INVALID_HANDLE
constexpr int kInvalidDeviceFunction = 98;   // cudaErrorInvalidDeviceFunction
constexpr int kNotReady = 600;
constexpr int kNotSupported = 801;
constexpr int kUnknown = 999;

using DevicePointer = unsigned long long;
using Stream = void*;
using Event = void*;
using Function = void*;

inline const Stream kLegacyStream = reinterpret_cast<Stream>(1);  // CU_STREAM_LEGACY

// CUlaunchAttribute: an id, padding, and a value of 64 bytes.
struct LaunchAttribute {
  int id;
  char pad[4];
  alignas(8) char value[64];
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUDA_MEMCPY2D
struct Copy2d {
  size_t src_x, src_y;
  int src_type;
  const void* src_host;
  DevicePointer src_device;
  void* src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  int dst_type;
  void* dst_host;
  DevicePointer dst_device;
  void* dst_array;
  size_t dst_pitch;
  size_t width, height;
};
constexpr int kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE

struct Driver {
  int (*cuCtxSetCurrent)(void*);
  int (*cuEventCreate)(Event*, unsigned);
  int (*cuEventDestroy_v2)(Event);
  int (*cuEventElapsedTime)(float*, Event, Event);
  int (*cuEventQuery)(Event);
  int (*cuEventRecordWithFlags)(Event, Stream, unsigned);
  int (*cuGetErrorName)(int, const char**);
  int (*cuGraphDestroy)(void*);
  int (*cuGraphExecDestroy)(void*);
  int (*cuGraphInstantiateWithFlags)(void**, void*, unsigned long long);
  int (*cuGraphLaunch)(void*, Stream);
  int (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, Stream, void**, void**);
  int (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**);
  int (*cuMemHostRegister_v2)(void*, size_t, unsigned);
  int (*cuMemHostUnregister)(void*);
  int (*cuMemcpy2DAsync_v2)(const Copy2d*, Stream);
  int (*cuMemcpyDtoDAsync_v2)(DevicePointer, DevicePointer, size_t, Stream);
  int (*cuMemcpyDtoHAsync_v2)(void*, DevicePointer, size_t, Stream);
  int (*cuMemcpyHtoDAsync_v2)(DevicePointer, const void*, size_t, Stream);
  int (*cuMemsetD2D8Async)(DevicePointer, size_t, unsigned char, size_t, size_t, Stream);
  int (*cuMemsetD32Async)(DevicePointer, unsigned, size_t, Stream);
  int (*cuMemsetD8Async)(DevicePointer, unsigned char, size_t, Stream);
  // Null: an older driver has none.
  int (*cuOccupancyMaxActiveClusters)(int*, Function, const LaunchConfig*);
  int (*cuTensorMapEncodeTiled)(void*, int, uint32_t, DevicePointer, const uint64_t*,
                                const uint64_t*, const uint32_t*, const uint32_t*, int, int, int,
                                int);
  int (*cuTensorMapEncodeIm2col)(void*, int, uint32_t, DevicePointer, const uint64_t*,
                                 const uint64_t*, const int*, const int*, uint32_t, uint32_t,
                                 const uint32_t*, int, int, int, int);
  int (*cuStreamBeginCapture_v2)(Stream, int);
  int (*cuStreamCreateWithPriority)(Stream*, unsigned, int);
  int (*cuStreamDestroy_v2)(Stream);
  int (*cuStreamEndCapture)(Stream, void**);
  int (*cuStreamQuery)(Stream);
  int (*cuStreamSynchronize)(Stream);
  int (*cuStreamWaitEvent)(Stream, Event, unsigned);
  int (*cuStreamWriteValue32_v2)(Stream, DevicePointer, uint32_t, unsigned);
};

// Loaded by the first call; throws std::runtime_error when there is no driver or it is too old.
const Driver& driver();

// The driver's name of an error, for people.
const char* error_name(int code);

// Whether the context is lost for everybody (cuda.h: "the process must be terminated").
bool is_fatal(int code);

}  // namespace mnemosyne::cuda
