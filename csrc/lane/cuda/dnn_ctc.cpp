// CTC losses of cuDNN.
#include "dnn_parts.h"

namespace mnemosyne::cuda {
namespace {

struct CtcFunctions {
  int (*cudnnCreateCTCLossDescriptor)(void**);
  int (*cudnnDestroyCTCLossDescriptor)(void*);
  int (*cudnnSetCTCLossDescriptorEx)(void*, int, int, int);
  int (*cudnnSetCTCLossDescriptor_v9)(void*, int, int, int, int);
  int (*cudnnGetCTCLossWorkspaceSize)(void*, const void*, const void*, const int*, const int*,
                                      const int*, int, void*, size_t*);
  int (*cudnnGetCTCLossWorkspaceSize_v8)(void*, int, void*, const void*, const void*, size_t*);
  int (*cudnnCTCLoss)(void*, const void*, const void*, const int*, const int*, const int*, void*,
                      const void*, void*, int, void*, void*, size_t);
  int (*cudnnCTCLoss_v8)(void*, int, void*, const void*, const void*, const int*, const int*,
                         const int*, void*, const void*, void*, size_t, void*);
};
CtcFunctions ctc;
bool complete = false;

// Whether there is no descriptor: only costs are wanted.
bool is_none(const List& content) {
  Unpacker u = content.values();
  return u.array() == 0;
}

// The labels and lengths of a frame, in memory that is aligned; the library reads as many as the
// lengths and the batch say.
struct HostLabels {
  std::vector<int> labels, label_lengths, input_lengths;

  template <typename Call>
  explicit HostLabels(const Call& c)
      : labels(integers(c.labels)),
        label_lengths(integers(c.labelLengths)),
        input_lengths(integers(c.inputLengths)) {}

  // Whether there are as many as the tensor of probabilities, [type, [steps, batch, letters], ...],
  // makes the library read.
  bool fit(const List& probs) const {
    Unpacker u = probs.values();
    u.array();
    u.integer();
    Numbers sizes;
    if (!sizes.read(&u) || sizes.count != 3) return false;
    auto batch = static_cast<size_t>(sizes.values[1]);
    if (label_lengths.size() != batch || input_lengths.size() != batch) return false;
    size_t needed = 0;
    for (int length : label_lengths) {
      if (length < 0) return false;
      needed += length;
    }
    return needed <= labels.size();
  }

 private:
  static std::vector<int> integers(const Bytes& bytes) {
    std::vector<int> values(bytes.size / sizeof(int));
    if (!values.empty()) memcpy(values.data(), bytes.data, values.size() * sizeof(int));
    return values;
  }
};

}  // namespace

void load_ctc(void* library) {
  complete = true;
#define MNEMOSYNE_FIND(name) complete &= find(library, #name, &ctc.name)
  MNEMOSYNE_FIND(cudnnCreateCTCLossDescriptor);
  MNEMOSYNE_FIND(cudnnDestroyCTCLossDescriptor);
  MNEMOSYNE_FIND(cudnnSetCTCLossDescriptorEx);
  MNEMOSYNE_FIND(cudnnSetCTCLossDescriptor_v9);
  MNEMOSYNE_FIND(cudnnGetCTCLossWorkspaceSize);
  MNEMOSYNE_FIND(cudnnGetCTCLossWorkspaceSize_v8);
  MNEMOSYNE_FIND(cudnnCTCLoss);
  MNEMOSYNE_FIND(cudnnCTCLoss_v8);
#undef MNEMOSYNE_FIND
}

// The descriptor of [type, normalization, gradients, longest].
void* DnnSession::loss(const List& content, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int values[4];
    for (int& value : values) value = static_cast<int>(u.integer());
    if (!u.ok()) return kDnnBadParam;
    auto [type, normalization, gradients, longest] = values;
    return longest < 0 ? ctc.cudnnSetCTCLossDescriptorEx(descriptor, type, normalization, gradients)
                       : ctc.cudnnSetCTCLossDescriptor_v9(descriptor, type, normalization,
                                                          gradients, longest);
  };
  return kept({"loss", ctc.cudnnCreateCTCLossDescriptor, ctc.cudnnDestroyCTCLossDescriptor, set},
              content, status);
}

int DnnSession::room(const calls::cudnn_ctc_room& c, void* stream, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *ctc_loss = loss(c.ctc, &status), *probs = tensor(c.probsDesc, &status),
       *gradients = is_none(c.gradientsDesc) ? nullptr : tensor(c.gradientsDesc, &status);
  size_t size = 0;
  if (!status) {
    status = ctc.cudnnGetCTCLossWorkspaceSize_v8(handle, c.algo, ctc_loss, probs, gradients, &size);
  }
  *bytes = size;
  return status;
}

int DnnSession::room(const calls::cudnn_ctc_host_room& c, void* stream, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *ctc_loss = loss(c.ctc, &status), *probs = tensor(c.probsDesc, &status),
       *gradients = is_none(c.gradientsDesc) ? nullptr : tensor(c.gradientsDesc, &status);
  HostLabels host(c);
  if (!status && !host.fit(c.probsDesc)) status = kDnnBadParam;
  size_t size = 0;
  if (!status) {
    status = ctc.cudnnGetCTCLossWorkspaceSize(handle, probs, gradients, host.labels.data(),
                                              host.label_lengths.data(), host.input_lengths.data(),
                                              c.algo, ctc_loss, &size);
  }
  *bytes = size;
  return status;
}

int DnnSession::run(const calls::cudnn_ctc& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *ctc_loss = loss(c.ctc, &status), *probs = tensor(c.probsDesc, &status),
       *gradients = is_none(c.gradientsDesc) ? nullptr : tensor(c.gradientsDesc, &status);
  if (status) return status;
  auto integers = [](uint64_t address) { return static_cast<const int*>(at(address)); };
  return ctc.cudnnCTCLoss_v8(handle, c.algo, ctc_loss, probs, at(c.probs), integers(c.labels),
                             integers(c.labelLengths), integers(c.inputLengths), at(c.costs),
                             gradients, at(c.gradients), c.workspaceBytes, at(c.workspace));
}

int DnnSession::run(const calls::cudnn_ctc_host& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *ctc_loss = loss(c.ctc, &status), *probs = tensor(c.probsDesc, &status),
       *gradients = is_none(c.gradientsDesc) ? nullptr : tensor(c.gradientsDesc, &status);
  HostLabels host(c);
  if (!status && !host.fit(c.probsDesc)) status = kDnnBadParam;
  if (status) return status;
  return ctc.cudnnCTCLoss(handle, probs, at(c.probs), host.labels.data(), host.label_lengths.data(),
                          host.input_lengths.data(), at(c.costs), gradients, at(c.gradients),
                          c.algo, ctc_loss, at(c.workspace), c.workspaceBytes);
}

}  // namespace mnemosyne::cuda
