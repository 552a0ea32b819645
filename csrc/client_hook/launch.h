// Launches of kernels, by the runtime's calls and the driver's.
#pragma once

#include "frame.h"
#include "kernels.h"
#include "structs.h"

namespace mnemosyne {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

// A launch's arguments in either of the driver's forms: the address of each, or a list that names
// a buffer which holds them all.
struct Arguments {
  void** each;
  void** extra;
};

struct LaunchAttributes {
  const cudaLaunchAttribute* first = nullptr;
  unsigned count = 0;
};

struct Launch {
  Configuration size;
  Arguments args;
  LaunchAttributes attributes = {};
};

// What CUDA finds wrong at the call; a cudaError_t that is not reported yet.
int check_launch(KernelInfo* info, const Launch& l);
int send_launch(KernelInfo* info, const Launch& l);
// The attribute of a cooperative launch.
cudaLaunchAttribute cooperative();
// How a launch's size and attributes are put into a frame.
void put_size(Frame* frame, const Configuration& c);
void put_attributes(Frame* frame, const LaunchAttributes& attributes);

}  // namespace mnemosyne
