// CUDA graphs: stream capture, and graphs made of the frames that it kept.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "capture.h"
#include "frame.h"
#include "tables.h"

namespace mnemosyne {

// A resource of the program that graphs keep alive.
struct UserObject {
  void* pointer;
  void (*destroy)(void*);
  std::atomic<int64_t> references;
};

static void release(UserObject* object, int64_t count) {
  if (object->references.fetch_sub(count) > count) return;
  object->destroy(object->pointer);
  delete object;
}

struct Graph {
  std::string frames;  // each behind its size, a uint32_t
  size_t operations = 0;
  BlasUse blas;
  std::vector<HandleState*> recorded;  // events, by each launch
  std::unordered_map<UserObject*, int64_t> kept;
  std::atomic<bool> launched{false};
  ~Graph() {
    for (auto& [object, count] : kept) release(object, count);
  }
};

namespace {

// What a graph keeps may be in use until its last launch is done. A session that has been lost has
// no launches; while the process exits, nothing is ended any more.
void end_graph(Graph* graph) {
  if (graph->kept.empty() || !graph->launched) return delete graph;
  std::thread([graph] {
    Frame frame(Number::cudaDeviceSynchronize, 0);
    frame.leave_errors();  // they are the program's
    Reply reply;
    frame.call(&reply);
    if (attached()) delete graph;
  }).detach();
}

enum CaptureStatus { kNone, kActive, kInvalidated };

// Graphs and executable graphs by their handles, which are the server's numbers of the latter.
struct Graphs {
  std::unordered_map<void*, std::shared_ptr<Graph>> all;
  uintptr_t next = 0x50000000;

  void* add(std::shared_ptr<Graph> graph) {
    std::lock_guard<std::mutex> lock(tables_mutex());
    void* handle = reinterpret_cast<void*>(next += 16);
    all[handle] = std::move(graph);
    return handle;
  }
  std::shared_ptr<Graph> find(void* handle) {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = all.find(handle);
    return found == all.end() ? nullptr : found->second;
  }
  // The graph that had this handle, so that it ends outside the lock.
  std::shared_ptr<Graph> remove(void* handle) {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = all.find(handle);
    if (found == all.end()) return nullptr;
    std::shared_ptr<Graph> graph = std::move(found->second);
    all.erase(found);
    return graph;
  }
};
Graphs& graphs() {
  static Graphs* one = new Graphs;
  return *one;
}
Graphs& executables() {
  static Graphs* one = new Graphs;
  return *one;
}

std::unordered_map<uint64_t, Capture*>& captures() {
  static auto* all = new std::unordered_map<uint64_t, Capture*>;
  return *all;
}

int begin_capture(cudaStream_t stream) {
  if (int code = check_process()) return code;
  HandleState* state = find_stream(stream);
  if (!state) return kInvalidResourceHandle;
  if (is_own_stream(stream)) return kStreamCaptureUnsupported;
  if (state->capture) return kIllegalState;
  static uint64_t last = 0;
  auto* capture = new Capture;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    capture->id = ++last;
    captures()[capture->id] = capture;
  }
  capture->origin = state;
  capture->graph = std::shared_ptr<Graph>(new Graph, end_graph);
  capture->blas = &capture->graph->blas;
  capture->handle = graphs().add(capture->graph);
  capture->join(state);
  return kSuccess;
}

// No stream captures into it any more.
void take_apart(Capture* capture) {
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    captures().erase(capture->id);
  }
  for (HandleState* joined : capture->streams) joined->capture = nullptr;
}

int end_capture(cudaStream_t stream, void** out) {
  HandleState* state = find_stream(stream);
  if (!state || !out) return state ? kInvalidValue : kInvalidResourceHandle;
  *out = nullptr;
  std::unique_ptr<Capture> capture(state->capture.load());
  if (!capture) return kIllegalState;
  if (capture->origin != state) return capture.release(), kStreamCaptureUnmatched;
  take_apart(capture.get());
  if (capture->broken) return graphs().remove(capture->handle), kStreamCaptureInvalidated;
  *out = capture->handle;
  return kSuccess;
}

// Sends the frames in pieces of whole frames.
int send_frames(void* number, const std::string& frames) {
  size_t start = 0;
  do {
    size_t end = start;
    while (end < frames.size() && end - start < kPieceBytes) {
      uint32_t size;
      memcpy(&size, frames.data() + end, sizeof size);
      end += sizeof size + size;
    }
    Frame frame(Number::graph_frames, 2);
    frame.leave_errors();
    frame.unsigned_integer(reinterpret_cast<uint64_t>(number));
    frame.bytes(frames.data() + start, end - start);
    Reply reply;
    if (int code = frame.call(&reply)) return code;
    start = end;
  } while (start < frames.size());
  return kSuccess;
}

int instantiate(void** out, void* handle) {
  if (!out) return kInvalidValue;
  std::shared_ptr<Graph> graph = graphs().find(handle);
  if (!graph) return kInvalidValue;
  *out = executables().add(graph);
  int code = send_frames(*out, graph->frames);
  if (code) executables().remove(*out);
  return code;
}

int launch(void* executable, cudaStream_t stream) {
  std::shared_ptr<Graph> graph = executables().find(executable);
  HandleState* state = find_stream(stream);
  if (!graph || !state) return graph ? kInvalidResourceHandle : kInvalidValue;
  if (Capture* capture = state->capture) return capture->fail(kNotSupported);
  Frame frame(Number::graph_launch, 2);
  frame.unsigned_integer(reinterpret_cast<uint64_t>(executable));
  frame.stream(stream);
  graph->launched = true;
  int code = frame.post();
  std::lock_guard<std::mutex> lock(tables_mutex());
  for (auto& [handle, settings] : graph->blas) handle->blas_sent = BlasSettings::unknown();
  for (HandleState* event : graph->recorded) event->used_by(frame.position());
  return code;
}

int destroy_executable(void* executable) {
  if (!executables().remove(executable)) return kInvalidValue;
  Frame frame(Number::graph_destroy, 1);
  frame.unsigned_integer(reinterpret_cast<uint64_t>(executable));
  return frame.post();
}

}  // namespace

void Capture::add(const char* frame, size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto length = static_cast<uint32_t>(size);
  graph->frames.append(reinterpret_cast<const char*>(&length), sizeof length);
  graph->frames.append(frame, size);
  ++graph->operations;
}

void Capture::join(HandleState* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  stream->capture = this;
  streams.push_back(stream);
}

void Capture::leave(HandleState* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  stream->capture = nullptr;
  streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
}

int Capture::fail(int code) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!broken) broken = code;
  return code;
}

Capture* find_capture(uint64_t id) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = captures().find(id);
  return found == captures().end() ? nullptr : found->second;
}

void leave_capture(HandleState* stream) {
  Capture* capture = stream->capture;
  if (!capture) return;
  if (capture->origin != stream) return capture->leave(stream);
  take_apart(capture);
  graphs().remove(capture->handle);
  delete capture;
}

bool is_captured(HandleState* event) {
  uint64_t id = event->captured.load(std::memory_order_relaxed);
  return id && find_capture(id);
}

void use_in_graph(HandleState* event, HandleState* stream, bool records) {
  Capture* capture = stream->capture;
  event->in_graph = true;
  std::lock_guard<std::mutex> lock(tables_mutex());
  if (capture && records) capture->graph->recorded.push_back(event);
}

bool record_captured(HandleState* event, HandleState* stream) {
  Capture* capture = stream->capture.load(std::memory_order_relaxed);
  event->captured.store(capture ? capture->id : 0, std::memory_order_relaxed);
  return capture;
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int) {
  return report(begin_capture(stream));
}

MNEMOSYNE_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, void** graph) {
  return report(end_capture(stream, graph));
}

MNEMOSYNE_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int* status,
                                                   unsigned long long* id, void** graph,
                                                   const void** dependencies, const void** edges,
                                                   size_t* count) {
  HandleState* state = find_stream(stream);
  if (!status || !state) return report(status ? kInvalidResourceHandle : kInvalidValue);
  if (int code = check_process()) return code;
  Capture* capture = state->capture;
  *status = !capture ? kNone : capture->broken ? kInvalidated : kActive;
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->handle : nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

MNEMOSYNE_API cudaError_t cudaThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode) return report(kInvalidValue);
  static thread_local int current = 0;  // cudaStreamCaptureModeGlobal
  int before = current;
  current = *mode;
  *mode = before;
  return kSuccess;
}

// How many operations there are; they have no handles.
MNEMOSYNE_API cudaError_t cudaGraphGetNodes(void* handle, void** nodes, size_t* count) {
  std::shared_ptr<Graph> graph = graphs().find(handle);
  if (!graph || !count) return report(kInvalidValue);
  if (nodes) return report(kNotSupported, "mnemosyne: a graph's nodes cannot be looked at");
  *count = graph->operations;
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaGraphInstantiateWithFlags(void** executable, void* graph,
                                                        unsigned long long) {
  return report(instantiate(executable, graph));
}

MNEMOSYNE_API cudaError_t cudaGraphLaunch(void* executable, cudaStream_t stream) {
  return report(launch(executable, stream));
}

MNEMOSYNE_API cudaError_t cudaGraphDestroy(void* graph) {
  return graphs().remove(graph) ? kSuccess : report(kInvalidValue);
}

MNEMOSYNE_API cudaError_t cudaGraphExecDestroy(void* executable) {
  return report(destroy_executable(executable));
}

using Destructor = void (*)(void*);

MNEMOSYNE_API cudaError_t cudaUserObjectCreate(void** object, void* pointer, Destructor destroy,
                                               unsigned references, unsigned) {
  if (!object || !destroy || !references) return report(kInvalidValue);
  *object = new UserObject{pointer, destroy, {references}};
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaUserObjectRelease(void* object, unsigned count) {
  if (!object || !count) return report(kInvalidValue);
  release(static_cast<UserObject*>(object), count);
  return kSuccess;
}

MNEMOSYNE_API cudaError_t cudaGraphRetainUserObject(void* handle, void* object, unsigned count,
                                                    unsigned flags) {
  constexpr unsigned kMove = 1;  // cudaGraphUserObjectMove: the caller's references
  std::shared_ptr<Graph> graph = graphs().find(handle);
  auto* kept = static_cast<UserObject*>(object);
  if (!graph || !kept || !count) return report(kInvalidValue);
  if (!(flags & kMove)) kept->references += count;
  std::lock_guard<std::mutex> lock(tables_mutex());
  graph->kept[kept] += count;
  return kSuccess;
}
