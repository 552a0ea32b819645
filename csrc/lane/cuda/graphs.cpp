#include "graphs.h"

#include <cstring>

#include "executor.h"

namespace mnemosyne::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
constexpr int kRelaxed = 2;            // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr uint32_t kGraphWeight = 16;  // operations: what is in flight must not take too long

// A stream that captures. All of it is gone at the end of its scope, for replay() may throw.
struct Capture {
  Capture() {
    if (driver().cuStreamCreateWithPriority(&stream, kNonBlocking, 0)) stream = nullptr;
    captures = stream && !driver().cuStreamBeginCapture_v2(stream, kRelaxed);
  }
  ~Capture() {
    if (captures) end();
    if (graph) driver().cuGraphDestroy(graph);
    if (stream) driver().cuStreamDestroy_v2(stream);
  }
  Capture(const Capture&) = delete;

  int end() {
    captures = false;
    return driver().cuStreamEndCapture(stream, &graph);
  }

  Stream stream = nullptr;
  bool captures = false;
  void* graph = nullptr;  // what was captured
};

}  // namespace

Graph::~Graph() {
  if (executable) driver().cuGraphExecDestroy(executable);
}

bool Graph::each(const std::function<bool(const char*, size_t)>& run) const {
  for (const std::string& piece : pieces) {
    for (size_t at = 0; at < piece.size();) {
      uint32_t size;
      memcpy(&size, piece.data() + at, sizeof size);
      at += sizeof size + size;
      if (!run(piece.data() + at - size, size)) return false;
    }
  }
  return true;
}

void CudaExecutor::add_graph(uint64_t number, std::string piece) {
  std::unique_ptr<Graph>& graph = graphs_[number];
  if (!graph) graph = std::make_unique<Graph>();
  graph->pieces.push_back(std::move(piece));
}

void CudaExecutor::execute(const calls::graph_launch& c, Answer* a) {
  auto found = graphs_.find(c.graph);
  SessionStream* s = stream(c.stream, c.kName, a);
  if (found == graphs_.end()) return a->fail(kInvalidValue, kInvalidValue, "no such graph");
  if (!s) return;
  Graph& graph = *found->second;
  if (!graph.tried) capture(&graph);
  if (!graph.executable) return replay(graph, s, a);
  put(c.stream, c.kName, a,
      [&](Stream to) { return driver().cuGraphLaunch(graph.executable, to); });
  if (!a->status) Streams::count(s, kGraphWeight - 1);
}

// Runs the graph's frames in one stream, whatever they name.
void CudaExecutor::replay(const Graph& graph, SessionStream* s, Answer* outer) {
  streams_.redirect(s);
  try {
    graph.each([&](const char* frame, size_t size) {
      Answer inner(channel_, kNoReply);
      run_captured(frame, size, &inner);
      if (inner.status) outer->fail(inner.late_error, inner.late_error, inner.text);
      return !inner.status;
    });
  } catch (...) {
    streams_.redirect(nullptr);
    throw;
  }
  streams_.redirect(nullptr);
}

void CudaExecutor::run_captured(const char* frame, size_t size, Answer* a) {
  Unpacker fields(frame, size);
  fields.array();
  auto number = static_cast<Number>(fields.integer());
  if (number != Number::blas_configure) return run(number, fields, a);
  uint64_t values[7];
  for (uint64_t& value : values) value = fields.integer();
  auto [handle, stream, math, pointer, workspace, bytes, multiprocessors] = values;
  configure_blas(handle, stream, static_cast<int>(math), static_cast<int>(pointer), workspace,
                 bytes, static_cast<int>(multiprocessors));
}

// Fills graph->executable, unless something in the graph cannot be captured.
void CudaExecutor::capture(Graph* graph) {
  graph->tried = true;
  Capture capture;
  if (!capture.captures) return;
  std::atomic<uint32_t> word{0};
  SessionStream capturing(capture.stream, false, &word, 0);
  capturing.captures = true;
  Answer answer(channel_, kNoReply);
  replay(*graph, &capturing, &answer);
  if (!capture.end() && !answer.status && capture.graph) {
    driver().cuGraphInstantiateWithFlags(&graph->executable, capture.graph, 0);
  }
}

}  // namespace mnemosyne::cuda
