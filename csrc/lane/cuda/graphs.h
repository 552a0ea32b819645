// CUDA graphs of one session: frames that a client captured, and the driver's graph made of them.
//
// How this works: at its first launch a graph's frames run once into a capturing stream, by the
// same code that runs them out of the ring; what the driver captured is launched from then on.
// Where the driver cannot capture them, the frames run again at each launch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace mnemosyne::cuda {

struct Graph {
  ~Graph();
  Graph() = default;
  Graph(const Graph&) = delete;

  // Passes every frame to `run` until it returns false; whether none did.
  bool each(const std::function<bool(const char* frame, size_t size)>& run) const;

  std::vector<std::string> pieces;  // of whole frames, each behind its size; they stay in place
  void* executable = nullptr;       // the driver's
  bool tried = false;               // to make it
};

}  // namespace mnemosyne::cuda
