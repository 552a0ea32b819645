// cuDNN's recurrent layers, and the dropout between them. Their descriptors are made for each call,
// as PyTorch does: every batch has lengths of its own, so there is no end of contents to keep.
#include <algorithm>

#include "../symbols.h"
#include "dnn.h"

namespace mnemosyne::cuda {
namespace {

constexpr int kTraining = 1;  // CUDNN_FWD_MODE_TRAINING
constexpr uint32_t kMostDimensions = 8;

struct RnnLibrary {
  int (*cudnnCreateDropoutDescriptor)(void**);
  int (*cudnnDestroyDropoutDescriptor)(void*);
  int (*cudnnDropoutGetStatesSize)(void*, size_t*);
  int (*cudnnSetDropoutDescriptor)(void*, void*, float, void*, size_t, unsigned long long);
  int (*cudnnRestoreDropoutDescriptor)(void*, void*, float, void*, size_t, unsigned long long);
  int (*cudnnCreateRNNDescriptor)(void**);
  int (*cudnnDestroyRNNDescriptor)(void*);
  int (*cudnnSetRNNDescriptor_v8)(void*, int, int, int, int, int, int, int, int, int32_t, int32_t,
                                  int32_t, int32_t, void*, uint32_t);
  int (*cudnnCreateRNNDataDescriptor)(void**);
  int (*cudnnDestroyRNNDataDescriptor)(void*);
  int (*cudnnSetRNNDataDescriptor)(void*, int, int, int, int, int, const int*, void*);
  int (*cudnnCreateTensorDescriptor)(void**);
  int (*cudnnDestroyTensorDescriptor)(void*);
  int (*cudnnGetTensorNdDescriptor)(void*, int, int*, int*, int*, int*);
  int (*cudnnGetRNNWeightSpaceSize)(void*, void*, size_t*);
  int (*cudnnGetRNNWeightParams)(void*, void*, int32_t, size_t, const void*, int32_t, void*, void**,
                                 void*, void**);
  int (*cudnnGetRNNTempSpaceSizes)(void*, void*, int, void*, size_t*, size_t*);
  int (*cudnnRNNForward)(void*, void*, int, const int32_t*, void*, const void*, void*, void*, void*,
                         const void*, void*, void*, const void*, void*, size_t, const void*, size_t,
                         void*, size_t, void*);
  int (*cudnnRNNBackwardData_v8)(void*, void*, const int32_t*, void*, const void*, const void*,
                                 void*, void*, void*, const void*, const void*, void*, void*,
                                 const void*, const void*, void*, size_t, const void*, size_t,
                                 void*, size_t, void*);
  int (*cudnnRNNBackwardWeights_v8)(void*, void*, int, const int32_t*, void*, const void*, void*,
                                    const void*, void*, const void*, size_t, void*, size_t, void*,
                                    size_t, void*);
};

std::unique_ptr<RnnLibrary> loaded;

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

// Descriptors of one call. After the first failure there are no more, and `status` says why.
class RnnDescriptors {
 public:
  RnnDescriptors(void* handle, int status) : status(status), handle_(handle) {}
  ~RnnDescriptors() {
    for (auto one = made_.rbegin(); one != made_.rend(); ++one) one->second(one->first);
  }
  RnnDescriptors(const RnnDescriptors&) = delete;

  // The states are made elsewhere.
  void* dropout(double share, uint64_t states, uint64_t bytes, uint64_t seed);
  void* network(const List& content, void* dropout);
  void* data(const List& content);
  void* tensor() {
    return make(loaded->cudnnCreateTensorDescriptor, loaded->cudnnDestroyTensorDescriptor);
  }
  // The network of a message.
  template <typename Call>
  void* network(const Call& c) {
    return status ? nullptr : network(c.rnn, dropout(c.dropout, c.states, c.statesBytes, c.seed));
  }

  int status;

 private:
  void* make(int (*create)(void**), int (*destroy)(void*)) {
    void* descriptor = nullptr;
    if (!status) status = create(&descriptor);
    if (status) return nullptr;
    made_.push_back({descriptor, destroy});
    return descriptor;
  }

  void* handle_;
  std::vector<std::pair<void*, int (*)(void*)>> made_;
};

void* RnnDescriptors::dropout(double share, uint64_t states, uint64_t bytes, uint64_t seed) {
  void* descriptor =
      make(loaded->cudnnCreateDropoutDescriptor, loaded->cudnnDestroyDropoutDescriptor);
  auto set = states ? loaded->cudnnRestoreDropoutDescriptor : loaded->cudnnSetDropoutDescriptor;
  if (descriptor) {
    status = set(descriptor, handle_, static_cast<float>(share), at(states), bytes, seed);
  }
  return descriptor;
}

void* RnnDescriptors::network(const List& content, void* dropout) {
  constexpr uint32_t kNumbers = 13;
  int v[kNumbers] = {};
  Unpacker u = content.values();
  if (u.array() != kNumbers && !status) status = kDnnBadParam;
  for (int& number : v) number = static_cast<int>(u.integer());
  if (!u.ok() && !status) status = kDnnBadParam;
  void* rnn = make(loaded->cudnnCreateRNNDescriptor, loaded->cudnnDestroyRNNDescriptor);
  if (!rnn) return nullptr;
  status =
      loaded->cudnnSetRNNDescriptor_v8(rnn, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8],
                                       v[9], v[10], v[11], dropout, static_cast<uint32_t>(v[12]));
  return rnn;
}

// cuDNN reads as many lengths as there are sequences, and one element to fill padding with.
void* RnnDescriptors::data(const List& content) {
  int v[5] = {};
  char fill[16] = {};
  size_t size = 0, fill_size = 0;
  Unpacker u = content.values();
  if (u.array() != 7 && !status) status = kDnnBadParam;
  for (int& number : v) number = static_cast<int>(u.integer());
  const char* bytes = u.bytes(&size);
  const char* fill_bytes = u.bytes(&fill_size);
  int longest = v[2], batch = v[3];
  bool whole = u.ok() && batch > 0 && size == batch * sizeof(int) && fill_size <= sizeof fill;
  std::vector<int> lengths(whole ? batch : 0);
  if (whole) memcpy(lengths.data(), bytes, size);  // the frame's bytes are not aligned
  if (fill_size && whole) memcpy(fill, fill_bytes, fill_size);
  auto fits = [longest](int n) { return 0 <= n && n <= longest; };
  if (!status && (!whole || !std::all_of(lengths.begin(), lengths.end(), fits))) {
    status = kDnnBadParam;
  }
  void* data = make(loaded->cudnnCreateRNNDataDescriptor, loaded->cudnnDestroyRNNDataDescriptor);
  if (!data) return nullptr;
  status = loaded->cudnnSetRNNDataDescriptor(data, v[0], v[1], longest, batch, v[4], lengths.data(),
                                             fill_size ? fill : nullptr);
  return data;
}

// Of one layer, by cudnnRNNMode_t: both matrices of each gate, and the projection of an LSTM.
int linear_layers(const List& rnn) {
  constexpr int kLayers[] = {2, 2, 9, 6};
  Unpacker u = rnn.values();
  u.array();
  u.integer();
  int64_t mode = u.integer();
  return mode < 0 || mode > 3 ? 0 : kLayers[mode];
}

// [byte offset, [type, sizes, strides]]; an empty array where there is nothing.
int pack_param(void* descriptor, void* address, uint64_t space, Packer* p) {
  if (!address) return p->array(0), kDnnSuccess;
  int type = 0, count = 0, values[2][kMostDimensions] = {};
  int status = loaded->cudnnGetTensorNdDescriptor(descriptor, kMostDimensions, &type, &count,
                                                  values[0], values[1]);
  if (status) return status;
  p->array(2);
  p->unsigned_integer(reinterpret_cast<uint64_t>(address) - space);
  p->array(3);
  p->integer(type);
  for (auto& row : values) {
    count = std::clamp<int>(count, 0, kMostDimensions);
    p->array(count);
    for (int i = 0; i < count; ++i) p->integer(row[i]);
  }
  return kDnnSuccess;
}

}  // namespace

void load_rnn(void* library) {
  auto l = std::make_unique<RnnLibrary>();
#define MNEMOSYNE_NEED(name) need(library, #name, &l->name)
  MNEMOSYNE_NEED(cudnnCreateDropoutDescriptor);
  MNEMOSYNE_NEED(cudnnDestroyDropoutDescriptor);
  MNEMOSYNE_NEED(cudnnDropoutGetStatesSize);
  MNEMOSYNE_NEED(cudnnSetDropoutDescriptor);
  MNEMOSYNE_NEED(cudnnRestoreDropoutDescriptor);
  MNEMOSYNE_NEED(cudnnCreateRNNDescriptor);
  MNEMOSYNE_NEED(cudnnDestroyRNNDescriptor);
  MNEMOSYNE_NEED(cudnnSetRNNDescriptor_v8);
  MNEMOSYNE_NEED(cudnnCreateRNNDataDescriptor);
  MNEMOSYNE_NEED(cudnnDestroyRNNDataDescriptor);
  MNEMOSYNE_NEED(cudnnSetRNNDataDescriptor);
  MNEMOSYNE_NEED(cudnnCreateTensorDescriptor);
  MNEMOSYNE_NEED(cudnnDestroyTensorDescriptor);
  MNEMOSYNE_NEED(cudnnGetTensorNdDescriptor);
  MNEMOSYNE_NEED(cudnnGetRNNWeightSpaceSize);
  MNEMOSYNE_NEED(cudnnGetRNNWeightParams);
  MNEMOSYNE_NEED(cudnnGetRNNTempSpaceSizes);
  MNEMOSYNE_NEED(cudnnRNNForward);
  MNEMOSYNE_NEED(cudnnRNNBackwardData_v8);
  MNEMOSYNE_NEED(cudnnRNNBackwardWeights_v8);
#undef MNEMOSYNE_NEED
  loaded = std::move(l);
}

int DnnSession::dropout_states(uint64_t number, void* stream, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(number, stream, &status);
  size_t size = 0;
  if (!status) status = loaded->cudnnDropoutGetStatesSize(handle, &size);
  *bytes = size;
  return status;
}

int DnnSession::weight_space(uint64_t number, void* stream, const List& rnn, uint64_t* bytes) {
  int status = kDnnSuccess;
  void* handle = use(number, stream, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void* network = made.network(rnn, made.dropout(0, 0, 0, 0));
  size_t size = 0;
  if (!made.status) made.status = loaded->cudnnGetRNNWeightSpaceSize(handle, network, &size);
  *bytes = size;
  return made.status;
}

int DnnSession::weight_params(uint64_t number, void* stream, const List& rnn, int pseudo_layer,
                              uint64_t weight_bytes, uint64_t weight_space, std::string* params) {
  constexpr int kProjection = 8;
  int status = kDnnSuccess;
  void* handle = use(number, stream, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void* network = made.network(rnn, made.dropout(0, 0, 0, 0));
  void *matrix_desc = made.tensor(), *bias_desc = made.tensor();
  Packer p;
  int count = linear_layers(rnn);
  p.array(count);
  for (int i = 0; i < count && !made.status; ++i) {
    void *matrix = nullptr, *bias = nullptr;
    int code = loaded->cudnnGetRNNWeightParams(handle, network, pseudo_layer, weight_bytes,
                                               at(weight_space), i, matrix_desc, &matrix, bias_desc,
                                               &bias);
    if (code && i < kProjection) made.status = code;
    if (code) matrix = bias = nullptr;
    p.array(2);
    if (!made.status) made.status = pack_param(matrix_desc, matrix, weight_space, &p);
    if (!made.status) made.status = pack_param(bias_desc, bias, weight_space, &p);
  }
  params->assign(p.data(), p.size());
  return made.status;
}

int DnnSession::temp_space(const calls::cudnn_rnn_temp_space& c, void* stream, uint64_t* work,
                           uint64_t* reserve) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void *network = made.network(c), *data = made.data(c.xData);
  size_t work_size = 0, reserve_size = 0;
  if (!made.status) {
    made.status =
        loaded->cudnnGetRNNTempSpaceSizes(handle, network, c.fwdMode, data, &work_size,
                                          c.fwdMode == kTraining ? &reserve_size : nullptr);
  }
  *work = work_size;
  *reserve = reserve_size;
  return made.status;
}

int DnnSession::run(const calls::cudnn_dropout_init& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* descriptor = nullptr;
  if (!status) status = loaded->cudnnCreateDropoutDescriptor(&descriptor);
  if (status) return status;
  status = loaded->cudnnSetDropoutDescriptor(descriptor, handle, static_cast<float>(c.dropout),
                                             at(c.states), c.statesBytes, c.seed);
  loaded->cudnnDestroyDropoutDescriptor(descriptor);
  return status;
}

// No descriptor at all where there is no such state.
void* DnnSession::optional_tensor(const List& content, int* status) {
  return content.size == 1 ? nullptr : tensor(content, status);
}

int DnnSession::run(const calls::cudnn_rnn_forward& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* h = optional_tensor(c.hDesc, &status);
  void* cell = optional_tensor(c.cDesc, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void *network = made.network(c), *x = made.data(c.xData), *y = made.data(c.yData);
  if (made.status) return made.status;
  return loaded->cudnnRNNForward(handle, network, c.fwdMode, nullptr, x, at(c.x), y, at(c.y), h,
                                 at(c.hx), at(c.hy), cell, at(c.cx), at(c.cy), c.weightBytes,
                                 at(c.weightSpace), c.workBytes, at(c.workSpace), c.reserveBytes,
                                 at(c.reserveSpace));
}

int DnnSession::run(const calls::cudnn_rnn_backward_data& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* h = optional_tensor(c.hDesc, &status);
  void* cell = optional_tensor(c.cDesc, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void *network = made.network(c), *x = made.data(c.xData), *y = made.data(c.yData);
  if (made.status) return made.status;
  return loaded->cudnnRNNBackwardData_v8(
      handle, network, nullptr, y, at(c.y), at(c.dy), x, at(c.dx), h, at(c.hx), at(c.dhy),
      at(c.dhx), cell, at(c.cx), at(c.dcy), at(c.dcx), c.weightBytes, at(c.weightSpace),
      c.workBytes, at(c.workSpace), c.reserveBytes, at(c.reserveSpace));
}

int DnnSession::run(const calls::cudnn_rnn_backward_weights& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* h = optional_tensor(c.hDesc, &status);
  if (status) return status;
  RnnDescriptors made(handle, status);
  void *network = made.network(c), *x = made.data(c.xData), *y = made.data(c.yData);
  if (made.status) return made.status;
  return loaded->cudnnRNNBackwardWeights_v8(
      handle, network, c.addGrad, nullptr, x, at(c.x), h, at(c.hx), y, at(c.y), c.weightBytes,
      at(c.weightSpace), c.workBytes, at(c.workSpace), c.reserveBytes, at(c.reserveSpace));
}

}  // namespace mnemosyne::cuda
