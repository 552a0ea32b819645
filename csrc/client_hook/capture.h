// A stream's work on its way into a CUDA graph: frames that are kept instead of sent.
//
// How this works: while a stream captures, a frame that would go into it joins the capture, in the
// order in which the program calls. A stream that waits for an event of the capture joins it. The
// graph is that one sequence of frames: it keeps every dependency, and no more than one stream's
// worth of concurrency.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../common/channel.h"
#include "handles.h"

namespace mnemosyne {

// Settings of cuBLAS handles as the graph's frames leave them.
using BlasUse = std::unordered_map<HandleState*, BlasSettings>;

// A graph's frames travel in pieces of whole ones, until a piece has this size: one more still has
// to fit into the frame that carries it.
constexpr size_t kPieceBytes = 128 << 10;
constexpr size_t kMostKept = kMaxFrame - kPieceBytes - 64;

struct Graph;

struct Capture {
  uint64_t id;
  HandleState* origin;
  std::vector<HandleState*> streams;  // that capture, with the origin
  std::shared_ptr<Graph> graph;
  void* handle;    // of the graph
  BlasUse* blas;   // the graph's
  int broken = 0;  // what the first call that cannot be captured returned

  void add(const char* frame, size_t size);
  void join(HandleState* stream);
  void leave(HandleState* stream);
  // Makes the graph invalid; returns the code for the caller.
  int fail(int code);

 private:
  std::mutex mutex_;
};

// The capture of this number, if it goes on.
Capture* find_capture(uint64_t id);
// The stream is destroyed: with its origin a capture ends, and there will be no graph.
void leave_capture(HandleState* stream);
// Whether the event was recorded in a capture that goes on.
bool is_captured(HandleState* event);
// Records an event of a capturing stream; false when the stream does not capture.
bool record_captured(HandleState* event, HandleState* stream);
// A frame that the stream's capture has kept uses the event at each launch of the graph; `records`:
// it records it.
void use_in_graph(HandleState* event, HandleState* stream, bool records);

}  // namespace mnemosyne
