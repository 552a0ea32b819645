// cuDNN handles, and what a cuDNN call that failed has to say.
#include "cudnn.h"

#include "frame.h"

namespace mnemosyne {
namespace {

thread_local char last_text[512];

}  // namespace

int cudnn_failed(int code, const std::string& text) {
  if (strncmp(last_text, text.c_str(), sizeof last_text - 1) == 0) return code;
  cudnn_note(text);
  say("%s", last_text);
  return code;
}

void cudnn_note(const std::string& text) {
  snprintf(last_text, sizeof last_text, "%s", text.c_str());
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  HandleState* state = cudnn_handles().find(handle);
  if (!state || !find_stream(stream)) return kCudnnBadParam;
  state->stream = stream;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  HandleState* state = cudnn_handles().find(handle);
  if (!state || !stream) return kCudnnBadParam;
  *stream = state->stream;
  return kCudnnSuccess;
}

MNEMOSYNE_API void cudnnGetLastErrorString(char* message, size_t room) {
  if (message && room) snprintf(message, room, "%s", last_text);
}
