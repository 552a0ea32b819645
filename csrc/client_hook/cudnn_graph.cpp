// cuDNN graphs: engines are proposed and plans are built by the server, once for a content. A plan
// then runs by its number.
#include <unordered_map>

#include "cudnn.h"
#include "frame.h"
#include "tables.h"

namespace mnemosyne {
namespace {

cudnnHandle_t handle_of(const Content* content, int name) {
  return content ? content->element<cudnnHandle_t>(name) : nullptr;
}

// The graph that the server does not send back is put where a program may look for it.
ContentPtr with_graph(const Content& config, const ContentPtr& graph) {
  auto whole = std::make_shared<Content>(config);
  const Content* engine = config.child(kConfigEngine);
  if (!engine) return whole;
  auto with = std::make_shared<Content>(*engine);
  with->attributes[kEngineGraph] = Attribute{kDescriptor, {}, {graph}};
  whole->attributes[kConfigEngine].descriptors = {with};
  return whole;
}

// Bytes of an element, by cudnnDataType_t; 0: not a type of single values.
size_t value_size(int type) {
  constexpr uint8_t kSizes[] = {4, 8, 2, 1, 4, 0, 1, 0, 0, 2, 8, 1};
  return static_cast<size_t>(type) < sizeof kSizes ? kSizes[type] : 0;
}

size_t value_size(const Content& tensor) {
  size_t size = value_size(tensor.element<int>(kTensorDataType));
  const Attribute* dimensions = tensor.find(kTensorDimensions);
  for (size_t i = 0; dimensions && i < dimensions->bytes.size() / 8; ++i) {
    size *= tensor.element<int64_t>(kTensorDimensions, i);
  }
  return size;
}

void find_values(const Content& content, std::map<int64_t, size_t>* values) {
  if (content.type == kTensor && content.element<bool>(kTensorIsByValue)) {
    (*values)[content.element<int64_t>(kTensorUniqueId)] = value_size(content);
  }
  for (const auto& [name, attribute] : content.attributes) {
    for (const ContentPtr& one : attribute.descriptors) find_values(*one, values);
  }
}

// Plans by content, as long as the program holds them.
std::unordered_map<std::string, std::weak_ptr<ExecutionPlan>>& plans() {
  static auto* table = new std::unordered_map<std::string, std::weak_ptr<ExecutionPlan>>;
  return *table;
}

std::shared_ptr<ExecutionPlan> find_plan(const std::string& content) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = plans().find(content);
  return found == plans().end() ? nullptr : found->second.lock();
}

int ask_plan(cudnnHandle_t handle, const std::string& content, ExecutionPlan* plan) {
  static std::atomic<uint64_t> next{1};
  uint64_t number = next++;
  Frame frame(Number::cudnn_plan, 4, Codes::kCudnn);
  frame.leave_errors();
  frame.cudnn(handle);
  frame.unsigned_integer(number);
  frame.packed(content);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  plan->number = number;
  plan->workspace = reply.values().integer();
  return kCudnnSuccess;
}

void put_data(Frame* frame, const ExecutionPlan& plan, int64_t id, const void* data) {
  frame->array(2);
  frame->integer(id);
  auto value = plan.values.find(id);
  if (value == plan.values.end()) return frame->pointer(data);
  if (!data || !value->second) frame->refuse(kInvalidValue);
  frame->bytes(data, data ? value->second : 0);
}

}  // namespace

int ask_heuristic(Content* heuristic) {
  const Content* graph = heuristic->child(kHeuristicGraph);
  if (!graph) return kCudnnBadParam;
  Frame frame(Number::cudnn_heuristic, 3, Codes::kCudnn);
  frame.cudnn(handle_of(graph, kGraphHandle));
  frame.packed(pack(*heuristic));
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  Attribute results{kDescriptor, {}, {}};
  Unpacker& values = reply.values();
  for (uint32_t n = values.array(); n && values.ok(); --n) {
    Content config;
    if (!unpack(&values, &config)) return kCudnnInternalError;
    results.descriptors.push_back(
        with_graph(config, heuristic->find(kHeuristicGraph)->descriptors[0]));
  }
  heuristic->attributes[kHeuristicResults] = results;
  return kCudnnSuccess;
}

int build_plan(Content* plan) {
  const Content* config = plan->child(kPlanConfig);
  const Content* engine = config ? config->child(kConfigEngine) : nullptr;
  const Content* graph = engine ? engine->child(kEngineGraph) : nullptr;
  if (!graph) return kCudnnBadParam;
  std::string content = pack(*plan);
  plan->plan = find_plan(content);
  if (!plan->plan) {
    auto built = std::make_shared<ExecutionPlan>();
    cudnnHandle_t handle = handle_of(plan, kPlanHandle);
    if (!handle) handle = handle_of(graph, kGraphHandle);
    if (int code = ask_plan(handle, content, built.get())) return code;
    find_values(*graph, &built->values);
    plan->plan = built;
    std::lock_guard<std::mutex> lock(tables_mutex());
    plans()[content] = built;
  }
  auto workspace = reinterpret_cast<const char*>(&plan->plan->workspace);
  plan->attributes[kPlanWorkspaceSize] = Attribute{kInt64, std::string(workspace, 8), {}};
  return kCudnnSuccess;
}

ExecutionPlan::~ExecutionPlan() {
  if (!number || !attached()) return;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    for (auto at = plans().begin(); at != plans().end();) {
      at = at->second.expired() ? plans().erase(at) : std::next(at);
    }
  }
  Frame frame(Number::cudnn_plan_destroy, 1, Codes::kCudnn);
  frame.unsigned_integer(number);
  frame.post();
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, void* plan, void* pack) {
  const Content* what = content_of(plan);
  const Content* with = content_of(pack);
  if (!what || !with || !what->plan || !with->final) return kCudnnBadParam;
  const Attribute* ids = with->find(kPackUniqueIds);
  size_t count = ids ? ids->bytes.size() / 8 : 0;
  Frame frame(Number::cudnn_execute, 5, Codes::kCudnn);
  frame.cudnn(handle);
  frame.unsigned_integer(what->plan->number);
  frame.array(count);
  for (size_t i = 0; i < count; ++i) {
    put_data(&frame, *what->plan, with->element<int64_t>(kPackUniqueIds, i),
             with->element<const void*>(kPackDataPointers, i));
  }
  frame.pointer(with->element<const void*>(kPackWorkspace));
  return frame.once();
}
