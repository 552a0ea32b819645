#include "dnn.h"

#include <algorithm>
#include <utility>

#include "../../common/cudnn_elements.h"
#include "dnn_parts.h"
#include "spare.h"

namespace mnemosyne::cuda {
namespace {

constexpr int kMostDepth = 16;  // of descriptors inside descriptors
constexpr int kMostConfigs = 256;
constexpr int kNormOnly = 0;  // CUDNN_BATCHNORM_OPS_BN

// cudnnBackendDescriptorType_t
constexpr int kEngine = 2, kEngineConfig = 3, kKnobChoice = 7, kVariantPack = 16;
// cudnnBackendAttributeType_t
constexpr int kHandleType = 0, kInt64 = 3, kVoidPointer = 6, kKnobType = 9, kNumericalNote = 11,
              kDescriptorType = 15, kBehaviorNote = 19, kInt32 = 23;
// cudnnBackendAttributeName_t
constexpr int kHeuristicResults = 202, kConfigEngine = 300, kConfigKnobs = 302,
              kConfigWorkspace = 303, kConfigShared = 304, kPlanWorkspace = 402, kChoiceType = 600,
              kChoiceValue = 601, kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003,
              kTensorId = 906, kTensorByValue = 908, kEngineIndex = 1301,
              kEngineNumericalNotes = 1303, kEngineBehaviorNotes = 1305;

// Attributes that can only be read; a client sends back what a configuration came with.
bool is_read_only(int name) {
  constexpr int kReadOnly[] = {202, 301, 303, 304, 402, 802, 1302, 1303, 1304, 1305};
  return std::find(std::begin(kReadOnly), std::end(kReadOnly), name) != std::end(kReadOnly);
}

std::unique_ptr<DnnLibrary> loaded;

// Never destroyed: sessions end until the very end.
SpareHandles& spare() {
  static auto* handles = new SpareHandles;
  return *handles;
}

// A descriptor to be filled by cudnnBackendGetAttribute.
struct Scratch {
  explicit Scratch(int type) { loaded->cudnnBackendCreateDescriptor(type, &descriptor); }
  ~Scratch() {
    if (descriptor) loaded->cudnnBackendDestroyDescriptor(descriptor);
  }
  Scratch(const Scratch&) = delete;
  void* descriptor = nullptr;
};
using Scratches = std::vector<std::unique_ptr<Scratch>>;

// Up to `most` descriptors. Not every attribute tells how many it has before it is read.
Scratches get_descriptors(void* from, int name, int type, int64_t most) {
  Scratches found;
  std::vector<void*> raw;
  for (int64_t i = 0; i < most; ++i) {
    found.push_back(std::make_unique<Scratch>(type));
    raw.push_back(found.back()->descriptor);
  }
  int64_t count = 0;
  int status =
      loaded->cudnnBackendGetAttribute(from, name, kDescriptorType, most, &count, raw.data());
  found.resize(status ? 0 : std::clamp<int64_t>(count, 0, most));
  return found;
}

int64_t count_descriptors(void* from, int name, int64_t most) {
  int64_t count = 0;
  loaded->cudnnBackendGetAttribute(from, name, kDescriptorType, 0, &count, nullptr);
  return std::clamp<int64_t>(count, 0, most);
}

// The elements' bytes; empty if it has none.
std::string get_bytes(void* from, int name, int type, int64_t most) {
  std::string bytes(most * element_size(type), 0);
  int64_t count = 0;
  if (loaded->cudnnBackendGetAttribute(from, name, type, most, &count, bytes.data())) return {};
  bytes.resize(std::clamp<int64_t>(count, 0, most) * element_size(type));
  return bytes;
}

// Packs [name, type, bytes] of the attributes that a descriptor has.
class AttributeList {
 public:
  void bytes(void* from, int name, int type, int64_t most = 1) {
    std::string value = get_bytes(from, name, type, most);
    if (value.empty()) return;
    start(name, type);
    packed_.bytes(value.data(), value.size());
  }
  void descriptors(int name, const std::vector<std::string>& packed) {
    start(name, kDescriptorType);
    packed_.array(packed.size());
    for (const std::string& one : packed) packed_.append(one.data(), one.size());
  }
  // [descriptor type, attributes]
  std::string descriptor(int type) const {
    Packer p;
    p.array(2);
    p.integer(type);
    p.array(count_);
    p.append(packed_.data(), packed_.size());
    return std::string(p.data(), p.size());
  }

 private:
  void start(int name, int type) {
    ++count_;
    packed_.array(3);
    packed_.integer(name);
    packed_.integer(type);
  }
  Packer packed_;
  uint32_t count_ = 0;
};

std::string pack_engine(void* config) {
  constexpr int kMostNotes = 16;
  Scratches engines = get_descriptors(config, kConfigEngine, kEngine, 1);
  AttributeList attributes;
  if (!engines.empty()) {
    void* engine = engines[0]->descriptor;
    attributes.bytes(engine, kEngineIndex, kInt64);
    attributes.bytes(engine, kEngineNumericalNotes, kNumericalNote, kMostNotes);
    attributes.bytes(engine, kEngineBehaviorNotes, kBehaviorNote, kMostNotes);
  }
  return attributes.descriptor(kEngine);
}

std::string pack_config(void* config) {
  constexpr int kMostKnobs = 64;
  AttributeList attributes;
  attributes.descriptors(kConfigEngine, {pack_engine(config)});
  std::vector<std::string> choices;
  for (const auto& choice : get_descriptors(config, kConfigKnobs, kKnobChoice, kMostKnobs)) {
    AttributeList knob;
    knob.bytes(choice->descriptor, kChoiceType, kKnobType);
    knob.bytes(choice->descriptor, kChoiceValue, kInt64);
    choices.push_back(knob.descriptor(kKnobChoice));
  }
  attributes.descriptors(kConfigKnobs, choices);
  attributes.bytes(config, kConfigWorkspace, kInt64);
  attributes.bytes(config, kConfigShared, kInt32);
  return attributes.descriptor(kEngineConfig);
}

}  // namespace

void load_dnn(const char* path) {
  if (loaded) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  auto l = std::make_unique<DnnLibrary>();
#define MNEMOSYNE_NEED(name) need(library, #name, &l->name)
  MNEMOSYNE_NEED(cudnnGetLastErrorString);
  MNEMOSYNE_NEED(cudnnCreate);
  MNEMOSYNE_NEED(cudnnSetStream);
  MNEMOSYNE_NEED(cudnnBackendCreateDescriptor);
  MNEMOSYNE_NEED(cudnnBackendDestroyDescriptor);
  MNEMOSYNE_NEED(cudnnBackendExecute);
  MNEMOSYNE_NEED(cudnnBackendFinalize);
  MNEMOSYNE_NEED(cudnnBackendGetAttribute);
  MNEMOSYNE_NEED(cudnnBackendSetAttribute);
  MNEMOSYNE_NEED(cudnnCreateTensorDescriptor);
  MNEMOSYNE_NEED(cudnnDestroyTensorDescriptor);
  MNEMOSYNE_NEED(cudnnSetTensorNdDescriptor);
  MNEMOSYNE_NEED(cudnnDeriveBNTensorDescriptor);
  MNEMOSYNE_NEED(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize);
  MNEMOSYNE_NEED(cudnnGetBatchNormalizationBackwardExWorkspaceSize);
  MNEMOSYNE_NEED(cudnnGetBatchNormalizationTrainingExReserveSpaceSize);
  MNEMOSYNE_NEED(cudnnBatchNormalizationForwardTrainingEx);
  MNEMOSYNE_NEED(cudnnBatchNormalizationForwardInference);
  MNEMOSYNE_NEED(cudnnBatchNormalizationBackwardEx);
#undef MNEMOSYNE_NEED
  load_rnn(library);
  load_ctc(library);
  load_transformer(library);
  load_convolutions(library);
  loaded = std::move(l);
}

const DnnLibrary& dnn_library() { return *loaded; }

std::string dnn_error() {
  char text[300] = {};
  if (loaded) loaded->cudnnGetLastErrorString(text, sizeof text);
  return text;
}

DnnSession::Descriptors::~Descriptors() {
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    loaded->cudnnBackendDestroyDescriptor(*one);
  }
}

void DnnSession::clear() {
  plans_.clear();
  for (auto& [content, one] : kept_) one.destroy(one.descriptor);
  kept_.clear();
  numbers_.clear();
  give_back();
}

void DnnSession::remove(uint64_t number) {
  if (numbers_.erase(number) && numbers_.empty()) give_back();
}

void DnnSession::give_back() { spare().give(std::exchange(handle_, nullptr)); }

// The real handle, made on first use and set to the stream.
void* DnnSession::use(uint64_t number, void* stream, int* status) {
  *status = kDnnNotInitialized;
  if (!numbers_.count(number) || !loaded) return nullptr;
  if (!handle_) handle_ = spare().take();
  *status = handle_ ? kDnnSuccess : loaded->cudnnCreate(&handle_);
  if (*status == kDnnSuccess) *status = loaded->cudnnSetStream(handle_, stream);
  return *status ? nullptr : handle_;
}

// Makes the descriptor of a content, [type, attributes], and those inside it. Equal contents become
// one descriptor, as they were for the client.
void* DnnSession::build(Unpacker* from, void* handle, Descriptors* made, int* status) {
  const char* start = from->position();
  Unpacker whole = *from;
  whole.skip();
  std::string content(start, whole.position() - start);
  auto known = made->by_content.find(content);
  if (known != made->by_content.end()) {
    *from = whole;
    return known->second;
  }
  from->array();
  void* descriptor = nullptr;
  int type = static_cast<int>(from->integer());
  if (!from->ok()) *status = kDnnBadParam;
  if (!*status) *status = loaded->cudnnBackendCreateDescriptor(type, &descriptor);
  if (*status) return nullptr;
  made->all.push_back(descriptor);
  for (uint32_t n = from->array(); n && from->ok() && !*status; --n) {
    set(descriptor, from, handle, made, status);
  }
  if (!from->ok() && !*status) *status = kDnnBadParam;
  if (!*status) *status = loaded->cudnnBackendFinalize(descriptor);
  return made->by_content[content] = descriptor;
}

// One attribute: [name, type, value].
void DnnSession::set(void* descriptor, Unpacker* from, void* handle, Descriptors* made,
                     int* status) {
  from->array();
  int name = static_cast<int>(from->integer());
  int type = static_cast<int>(from->integer());
  if (!from->ok()) return;
  if (is_read_only(name)) return from->skip();
  if (type == kDescriptorType) {
    if (made->depth++ > kMostDepth) *status = kDnnBadParam;
    std::vector<void*> inner;
    for (uint32_t n = from->array(); n && from->ok() && !*status; --n) {
      inner.push_back(build(from, handle, made, status));
    }
    --made->depth;
    if (!*status && !inner.empty()) {
      *status =
          loaded->cudnnBackendSetAttribute(descriptor, name, type, inner.size(), inner.data());
    }
    return;
  }
  size_t size;
  const char* bytes = from->bytes(&size);
  if (!bytes || *status) return;
  if (type == kInt64 && name == kTensorId && size == sizeof made->last_id) {
    memcpy(&made->last_id, bytes, size);  // comes before the next one: names are in order
  } else if (name == kTensorByValue && size == 1 && *bytes) {
    made->by_value.insert(made->last_id);
  }
  if (type == kVoidPointer && size) {
    *status = kDnnBadParam;  // an address of the client's
  } else if (type == kHandleType) {
    *status = loaded->cudnnBackendSetAttribute(descriptor, name, type, 1, &handle);
  } else if (size) {
    std::string aligned(bytes, size);  // the frame's bytes are not
    *status = loaded->cudnnBackendSetAttribute(descriptor, name, type, size / element_size(type),
                                               aligned.data());
  }
}

int DnnSession::heuristic(uint64_t number, void* stream, const List& descriptor, size_t room,
                          std::string* configs) {
  int status = kDnnSuccess;
  void* handle = use(number, stream, &status);
  if (!handle) return status;
  Descriptors made;
  Unpacker from = descriptor.values();
  void* heuristic = build(&from, handle, &made, &status);
  if (status) return status;
  std::vector<std::string> packed;
  size_t size = 0;
  int64_t count = count_descriptors(heuristic, kHeuristicResults, kMostConfigs);
  for (const auto& config : get_descriptors(heuristic, kHeuristicResults, kEngineConfig, count)) {
    std::string one = pack_config(config->descriptor);
    if (size + one.size() > room) break;  // the best come first
    size += one.size();
    packed.push_back(one);
  }
  Packer p;
  p.array(packed.size());
  for (const std::string& one : packed) p.append(one.data(), one.size());
  configs->assign(p.data(), p.size());
  return kDnnSuccess;
}

int DnnSession::build_plan(uint64_t number, void* stream, uint64_t plan_number,
                           const List& descriptor, uint64_t* workspace) {
  int status = kDnnSuccess;
  void* handle = use(number, stream, &status);
  if (!handle) return status;
  auto plan = std::make_unique<Plan>();
  Unpacker from = descriptor.values();
  plan->plan = build(&from, handle, &plan->descriptors, &status);
  if (status) return status;
  std::string bytes = get_bytes(plan->plan, kPlanWorkspace, kInt64, 1);
  *workspace = 0;
  if (bytes.size() == sizeof *workspace) memcpy(workspace, bytes.data(), sizeof *workspace);
  plans_[plan_number] = std::move(plan);
  return kDnnSuccess;
}

int DnnSession::run(const calls::cudnn_execute& c, void* stream) {
  int status = kDnnSuccess;
  auto plan = plans_.find(c.plan);
  if (plan == plans_.end()) return kDnnBadParam;
  void* handle = use(c.handle, stream, &status);
  if (!handle) return status;
  std::vector<int64_t> ids;
  std::vector<Scalar> places;
  Unpacker u = c.data.values();
  for (uint32_t n = u.array(); n && u.ok(); --n) {
    u.array();
    ids.push_back(u.integer());
    get(u, &places.emplace_back());
  }
  if (!u.ok()) return kDnnBadParam;
  const std::set<int64_t>& by_value = plan->second->descriptors.by_value;
  std::vector<const void*> pointers;
  for (size_t i = 0; i < ids.size(); ++i) {
    pointers.push_back(places[i].pointer(by_value.count(ids[i]) == 0));
  }
  void* workspace = at(c.workspace);
  Scratch pack(kVariantPack);
  auto set = loaded->cudnnBackendSetAttribute;
  status = set(pack.descriptor, kPackIds, kInt64, ids.size(), ids.data());
  if (!status) {
    status = set(pack.descriptor, kPackPointers, kVoidPointer, pointers.size(), pointers.data());
  }
  if (!status) status = set(pack.descriptor, kPackWorkspace, kVoidPointer, 1, &workspace);
  if (!status) status = loaded->cudnnBackendFinalize(pack.descriptor);
  return status ? status : loaded->cudnnBackendExecute(handle, plan->second->plan, pack.descriptor);
}

void* DnnSession::kept(const Making& making, const List& content, int* status) {
  if (*status) return nullptr;
  std::string key = making.kind + std::string(content.data, content.size);
  auto found = kept_.find(key);
  if (found != kept_.end()) return found->second.descriptor;
  void* descriptor = nullptr;
  Unpacker u = content.values();
  if (u.array() == 0) *status = kDnnBadParam;  // the program gave none
  if (!*status) *status = making.create(&descriptor);
  if (!*status) *status = making.set(descriptor, u);
  if (*status && descriptor) making.destroy(descriptor);
  if (*status) return nullptr;
  kept_[key] = {descriptor, making.destroy};
  return descriptor;
}

// The descriptor of [type, sizes, strides].
void* DnnSession::tensor(const List& content, int* status) {
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int type = static_cast<int>(u.integer());
    Numbers sizes, strides;
    if (!sizes.read(&u) || !strides.read(&u) || sizes.count != strides.count) return kDnnBadParam;
    return loaded->cudnnSetTensorNdDescriptor(descriptor, type, sizes.count, sizes.values,
                                              strides.values);
  };
  return kept(
      {"tensor", loaded->cudnnCreateTensorDescriptor, loaded->cudnnDestroyTensorDescriptor, set},
      content, status);
}

int DnnSession::run(const calls::cudnn_batch_norm_training& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *x = tensor(c.xDesc, &status), *y = tensor(c.yDesc, &status),
       *param = tensor(c.paramDesc, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc);
  return loaded->cudnnBatchNormalizationForwardTrainingEx(
      handle, c.mode, kNormOnly, alpha.pointer(), beta.pointer(), x, at(c.x), nullptr, nullptr, y,
      at(c.y), param, at(c.scale), at(c.bias), c.factor, at(c.runningMean), at(c.runningVariance),
      c.epsilon, at(c.savedMean), at(c.savedInverse), nullptr, at(c.workspace), c.workspaceBytes,
      at(c.reserve), c.reserveBytes);
}

int DnnSession::run(const calls::cudnn_batch_norm_inference& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *x = tensor(c.xDesc, &status), *y = tensor(c.yDesc, &status),
       *param = tensor(c.paramDesc, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc);
  return loaded->cudnnBatchNormalizationForwardInference(
      handle, c.mode, alpha.pointer(), beta.pointer(), x, at(c.x), y, at(c.y), param, at(c.scale),
      at(c.bias), at(c.mean), at(c.variance), c.epsilon);
}

int DnnSession::run(const calls::cudnn_batch_norm_backward& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *x = tensor(c.xDesc, &status), *dy = tensor(c.dyDesc, &status),
       *dx = tensor(c.dxDesc, &status), *param = tensor(c.paramDesc, &status);
  if (status) return status;
  Factor alpha_data(c.alphaData, c.xDesc), beta_data(c.betaData, c.xDesc),
      alpha_param(c.alphaParam, c.xDesc), beta_param(c.betaParam, c.xDesc);
  return loaded->cudnnBatchNormalizationBackwardEx(
      handle, c.mode, kNormOnly, alpha_data.pointer(), beta_data.pointer(), alpha_param.pointer(),
      beta_param.pointer(), x, at(c.x), nullptr, nullptr, dy, at(c.dy), nullptr, nullptr, dx,
      at(c.dx), param, at(c.scale), nullptr, at(c.dscale), at(c.dbias), c.epsilon, at(c.savedMean),
      at(c.savedInverse), nullptr, at(c.workspace), c.workspaceBytes, at(c.reserve),
      c.reserveBytes);
}

int DnnSession::room(const calls::cudnn_batch_norm_room& c, void* stream, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* x = tensor(c.xDesc, &status);
  void* param = nullptr;
  if (!status) status = loaded->cudnnCreateTensorDescriptor(&param);
  if (!status) status = loaded->cudnnDeriveBNTensorDescriptor(param, x, c.mode);
  size_t size = 0;
  if (!status && c.room == 0) {
    status = loaded->cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, c.mode, kNormOnly, x, nullptr, x, param, nullptr, &size);
  } else if (!status && c.room == 1) {
    status = loaded->cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        handle, c.mode, kNormOnly, x, nullptr, x, nullptr, x, param, nullptr, &size);
  } else if (!status) {
    status = loaded->cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, c.mode, kNormOnly,
                                                                          nullptr, x, &size);
  }
  if (param) loaded->cudnnDestroyTensorDescriptor(param);
  *bytes = size;
  return status;
}

}  // namespace mnemosyne::cuda
