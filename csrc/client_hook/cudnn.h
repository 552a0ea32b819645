// cuDNN in the client: backend descriptors are recorded here and sent by content.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../common/msgpack.h"
#include "types.h"

namespace mnemosyne {

// cudnnBackendDescriptorType_t, of what this library looks into.
enum DescriptorType : int {
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristic = 4,
  kExecutionPlan = 5,
  kVariantPack = 16,
  kTensor = 17,
};

// cudnnBackendAttributeType_t.
enum AttributeType : int {
  kHandle = 0,
  kInt64 = 3,
  kVoidPointer = 6,
  kDescriptor = 15,
};

// cudnnBackendAttributeName_t.
enum AttributeName : int {
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kGraphHandle = 800,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorUniqueId = 906,
  kTensorIsByValue = 908,
  kPackUniqueIds = 1000,
  kPackDataPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
};

struct Content;
using ContentPtr = std::shared_ptr<const Content>;

// The value of an attribute: raw elements, or descriptors that are final.
struct Attribute {
  int type;
  std::string bytes;
  std::vector<ContentPtr> descriptors;
};

// A plan that the server has built. Told to be gone when its last descriptor is.
struct ExecutionPlan {
  uint64_t number = 0;
  int64_t workspace = 0;
  std::map<int64_t, size_t> values;  // tensors passed by value: bytes by their unique id

  ~ExecutionPlan();
};

// What a descriptor has been set to; never changes once it is final.
struct Content {
  int type;
  std::map<int, Attribute> attributes;  // by name, so equal contents are equal bytes
  bool final = false;
  std::shared_ptr<ExecutionPlan> plan;

  const Attribute* find(int name) const {
    auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  // The single descriptor that this attribute is, or null.
  const Content* child(int name) const {
    const Attribute* a = find(name);
    return a && a->descriptors.size() == 1 ? a->descriptors[0].get() : nullptr;
  }
  // Element i of an attribute of this type and size, or zero.
  template <typename T>
  T element(int name, size_t i = 0) const {
    const Attribute* a = find(name);
    T value{};
    if (a && a->bytes.size() >= (i + 1) * sizeof value) {
      memcpy(&value, a->bytes.data() + i * sizeof value, sizeof value);
    }
    return value;
  }
};

// What a program's cudnnBackendDescriptor_t holds; null for null.
Content* content_of(void* descriptor);

// [type, [[attribute, attribute type, bytes or descriptors], ...]]
std::string pack(const Content& content);
// The counterpart. False: malformed.
bool unpack(Unpacker* from, Content* content);

// What finalising these descriptors takes. Returns a cudnnStatus_t.
int ask_heuristic(Content* heuristic);
int build_plan(Content* plan);

// A cuDNN call failed: the text is what cudnnGetLastErrorString tells in this thread, and is said
// on stderr unless it repeats the last one. Returns the code.
int cudnn_failed(int code, const std::string& text);
// Keeps what a failed call said, for cudnnGetLastErrorString; says nothing.
void cudnn_note(const std::string& text);

}  // namespace mnemosyne
