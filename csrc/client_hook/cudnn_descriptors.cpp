// cuDNN's backend descriptors: recorded attribute by attribute, as bytes whose meaning only the
// server needs to know.
#include <algorithm>

#include "../common/cudnn_elements.h"
#include "cudnn.h"
#include "types.h"

namespace mnemosyne {
namespace {

// What a program holds. Contents are shared: setting a descriptor as an attribute keeps it as it
// is, whatever becomes of the program's handle.
struct Handle {
  std::shared_ptr<Content> content;
};

// Attributes that may have no element: a descriptor that was never given one has none.
bool is_list(int name) {
  constexpr int kLists[] = {301, 302, 1302, 1303, 1304, 1305};  // infos, choices, notes
  return std::find(std::begin(kLists), std::end(kLists), name) != std::end(kLists);
}

int set_descriptors(Attribute* attribute, const void* elements, int64_t count) {
  auto handles = static_cast<Handle* const*>(elements);
  for (int64_t i = 0; i < count; ++i) {
    if (!handles[i]) return kCudnnBadParam;
    if (!handles[i]->content->final) return kCudnnNotFinalized;
    attribute->descriptors.push_back(handles[i]->content);
  }
  return kCudnnSuccess;
}

// Contents are never changed, so the program may have its constness off.
void get_descriptors(const Attribute& attribute, int64_t count, void* elements) {
  auto handles = static_cast<Handle* const*>(elements);
  for (int64_t i = 0; i < count; ++i) {
    if (handles[i])
      handles[i]->content = std::const_pointer_cast<Content>(attribute.descriptors[i]);
  }
}

void pack(Packer* p, const Content& content) {
  p->array(2);
  p->integer(content.type);
  p->array(content.attributes.size());
  for (const auto& [name, attribute] : content.attributes) {
    p->array(3);
    p->integer(name);
    p->integer(attribute.type);
    if (attribute.type == kDescriptor) {
      p->array(attribute.descriptors.size());
      for (const ContentPtr& one : attribute.descriptors) pack(p, *one);
    } else {
      // An address of the client means nothing to the server, which puts its own handle there.
      bool address = attribute.type == kHandle || attribute.type == kVoidPointer;
      p->bytes(attribute.bytes.data(), address ? 0 : attribute.bytes.size());
    }
  }
}

bool unpack(Unpacker* from, Attribute* attribute) {
  if (attribute->type != kDescriptor) {
    size_t size;
    const char* bytes = from->bytes(&size);
    if (bytes) attribute->bytes.assign(bytes, size);
    return bytes;
  }
  for (uint32_t n = from->array(); n && from->ok(); --n) {
    auto one = std::make_shared<Content>();
    if (!mnemosyne::unpack(from, one.get())) return false;
    attribute->descriptors.push_back(one);
  }
  return from->ok();
}

}  // namespace

Content* content_of(void* descriptor) {
  return descriptor ? static_cast<Handle*>(descriptor)->content.get() : nullptr;
}

std::string pack(const Content& content) {
  Packer p;
  pack(&p, content);
  return std::string(p.data(), p.size());
}

bool unpack(Unpacker* from, Content* content) {
  from->array();
  content->type = static_cast<int>(from->integer());
  content->final = true;
  for (uint32_t n = from->array(); n && from->ok(); --n) {
    from->array();
    int name = static_cast<int>(from->integer());
    Attribute& attribute = content->attributes[name];
    attribute.type = static_cast<int>(from->integer());
    if (!unpack(from, &attribute)) return false;
  }
  return from->ok();
}

}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnBackendCreateDescriptor(int type, void** descriptor) {
  if (!descriptor) return kCudnnBadParam;
  auto content = std::make_shared<Content>();
  content->type = type;
  *descriptor = new Handle{content};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Handle*>(descriptor);
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnBackendSetAttribute(void* descriptor, int name, int type,
                                                     int64_t count, const void* elements) {
  Content* content = content_of(descriptor);
  if (!content || content->final || count < 0 || (count && !elements)) return kCudnnBadParam;
  Attribute attribute{type, {}, {}};
  if (type == kDescriptor) {
    if (int code = set_descriptors(&attribute, elements, count)) return code;
  } else if (count) {
    attribute.bytes.assign(static_cast<const char*>(elements), count * element_size(type));
  }
  content->attributes[name] = attribute;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnBackendGetAttribute(void* descriptor, int name, int type,
                                                     int64_t requested, int64_t* count,
                                                     void* elements) {
  const Content* content = content_of(descriptor);
  if (!content) return kCudnnBadParam;
  if (!content->final) return kCudnnNotFinalized;
  if (count) *count = 0;
  const Attribute* attribute = content->find(name);
  if (!attribute && is_list(name)) return kCudnnSuccess;
  if (!attribute) {
    return cudnn_failed(kCudnnNotSupported, "cudnnBackendGetAttribute: attribute " +
                                                std::to_string(name) + " of a descriptor of type " +
                                                std::to_string(content->type) +
                                                " is not supported");
  }
  if (attribute->type != type) return kCudnnWrongType;
  bool nested = type == kDescriptor;
  size_t size = element_size(type);
  int64_t all = nested ? attribute->descriptors.size() : attribute->bytes.size() / size;
  if (count) *count = all;
  int64_t copied = elements ? std::min(requested, all) : 0;
  if (copied <= 0) return kCudnnSuccess;
  if (nested) {
    get_descriptors(*attribute, copied, elements);
  } else {
    memcpy(elements, attribute->bytes.data(), copied * size);
  }
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnBackendFinalize(void* descriptor) {
  Content* content = content_of(descriptor);
  if (!content || content->final) return kCudnnBadParam;
  int code = kCudnnSuccess;
  if (content->type == kHeuristic) code = ask_heuristic(content);
  if (content->type == kExecutionPlan) code = build_plan(content);
  content->final = code == kCudnnSuccess;
  return code;
}
