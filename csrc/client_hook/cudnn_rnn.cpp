// cuDNN's recurrent layers: their descriptors are recorded here and sent by content. Where weights
// lie is asked for once for a layer and kept, for PyTorch asks a thousand times an iteration.
#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "cudnn_dropout.h"
#include "cudnn_tensor.h"
#include "tables.h"

namespace mnemosyne {
namespace {

constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBfloat16 = 9;  // cudnnDataType_t

struct DataDesc {
  std::string content, without_lengths;  // packed
};

// Where a matrix or bias lies in the weight space.
struct Param {
  bool exists = false;
  uint64_t offset = 0;
  TensorDesc tensor;
};

// Matrix and bias of each linear layer, as the server answered for a weight space of this size.
struct Layer {
  size_t weight_bytes = 0;
  std::vector<std::array<Param, 2>> params;
};

// What is known of all networks of one content.
struct Weights {
  size_t bytes = 0;  // 0: not asked for yet
  std::unordered_map<int, Layer> layers;
};

struct RnnDesc {
  std::string content;  // packed
  DropoutDesc dropout;
  Weights* weights = nullptr;
};

// Weights are never forgotten: programs have few networks.
Weights* weights_of(const std::string& content) {
  static auto* table = new std::unordered_map<std::string, Weights>;
  std::lock_guard<std::mutex> lock(tables_mutex());
  return &(*table)[content];
}

std::string pack(std::initializer_list<int64_t> values) {
  Packer p;
  p.array(values.size());
  for (int64_t v : values) p.integer(v);
  return std::string(p.data(), p.size());
}

const RnnDesc* network(const void* descriptor) {
  auto rnn = static_cast<const RnnDesc*>(descriptor);
  return rnn && rnn->weights ? rnn : nullptr;  // null: it was never set
}

const DataDesc* data_of(const void* descriptor) {
  auto data = static_cast<const DataDesc*>(descriptor);
  return data && !data->content.empty() ? data : nullptr;
}

void put_network(Frame* frame, cudnnHandle_t handle, const void* descriptor) {
  static const RnnDesc none{std::string(1, '\x90'), {}, nullptr};
  const RnnDesc* rnn = network(descriptor);
  if (!rnn) frame->refuse(kInvalidValue);
  if (!rnn) rnn = &none;
  frame->cudnn(handle);
  frame->packed(rnn->content);
  put_dropout(frame, rnn->dropout);
}

// Whether cuDNN can do a call does not depend on how long sequences are, as long as it is the same.
void put_data(Frame* frame, const void* descriptor) {
  const DataDesc* data = data_of(descriptor);
  if (!data) frame->refuse(kInvalidValue);
  if (data) frame->packed(data->content, data->without_lengths);
}

void put_data(Frame* frame, const void* descriptor, std::initializer_list<const void*> pointers) {
  put_data(frame, descriptor);
  for (const void* p : pointers) frame->pointer(p);
}

void put_tensor(Frame* frame, const void* descriptor, std::initializer_list<const void*> pointers) {
  put(frame, descriptor);
  for (const void* p : pointers) frame->pointer(p);
}

void put_space(Frame* frame, size_t bytes, const void* space) {
  frame->unsigned_integer(bytes);
  frame->pointer(space);
}

std::vector<int> read_integers(Unpacker* from) {
  std::vector<int> values(from->array());
  for (int& v : values) v = static_cast<int>(from->integer());
  return values;
}

Param read_param(Unpacker* from) {
  Param param;
  param.exists = from->array() != 0;
  if (!param.exists) return param;
  param.offset = from->unsigned_integer();
  from->array();
  param.tensor.type = static_cast<int>(from->integer());
  param.tensor.sizes = read_integers(from);
  param.tensor.strides = read_integers(from);
  return param;
}

int ask_layer(cudnnHandle_t handle, const RnnDesc& rnn, int number, size_t weight_bytes,
              const void* space, Layer* layer) {
  Frame frame(Number::cudnn_rnn_weight_params, 6, Codes::kCudnn);
  frame.cudnn(handle);
  frame.packed(rnn.content);
  frame.integer(number);
  put_space(&frame, weight_bytes, space);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  Unpacker& values = reply.values();
  for (uint32_t n = values.array(); n && values.ok(); --n) {
    values.array();
    Param matrix = read_param(&values), bias = read_param(&values);
    layer->params.push_back({matrix, bias});
  }
  layer->weight_bytes = weight_bytes;
  return values.ok() ? kCudnnSuccess : kCudnnInternalError;
}

// A layer's params are never changed once they are there. A smaller weight space than any that the
// server has accepted is the server's to refuse.
int find_layer(cudnnHandle_t handle, const RnnDesc& rnn, int number, size_t weight_bytes,
               const void* space, const Layer** found) {
  std::unordered_map<int, Layer>& layers = rnn.weights->layers;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto known = layers.find(number);
    if (known != layers.end() && known->second.weight_bytes <= weight_bytes) {
      *found = &known->second;
      return kCudnnSuccess;
    }
  }
  Layer layer;
  if (int code = ask_layer(handle, rnn, number, weight_bytes, space, &layer)) return code;
  std::lock_guard<std::mutex> lock(tables_mutex());
  Layer& kept = layers[number];
  if (kept.params.empty()) kept.params = layer.params;
  kept.weight_bytes = weight_bytes;
  *found = &kept;
  return kCudnnSuccess;
}

void give(const Param& param, const void* space, void* descriptor, void** address) {
  if (!descriptor || !address) return;
  *static_cast<TensorDesc*>(descriptor) = param.tensor;
  char* at = static_cast<char*>(const_cast<void*>(space)) + param.offset;
  *address = param.exists ? at : nullptr;
}

// Bytes of an element that can be a layer's; 0: none.
size_t element_size(int type) {
  return type == kFloat ? 4 : type == kDouble ? 8 : type == kHalf || type == kBfloat16 ? 2 : 0;
}

struct TempSpace {
  uint64_t work = 0, reserve = 0;
};

int ask_temp_space(cudnnHandle_t handle, const void* rnn, int mode, const void* data,
                   TempSpace* space) {
  Frame frame(Number::cudnn_rnn_temp_space, 9, Codes::kCudnn);
  put_network(&frame, handle, rnn);
  frame.integer(mode);
  put_data(&frame, data);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  space->work = reply.values().unsigned_integer();
  space->reserve = reply.values().unsigned_integer();
  return kCudnnSuccess;
}

// Answers by content; with every batch's own lengths there is no end of them, so few are kept.
int find_temp_space(cudnnHandle_t handle, const RnnDesc* rnn, int mode, const DataDesc* data,
                    TempSpace* space) {
  constexpr size_t kMost = 4096;
  static auto* known = new std::unordered_map<std::string, TempSpace>;
  std::string key = rnn->content + pack({rnn->dropout.dropout > 0, mode}) + data->content;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = known->find(key);
    if (found != known->end()) return *space = found->second, kCudnnSuccess;
  }
  if (int code = ask_temp_space(handle, rnn, mode, data, space)) return code;
  std::lock_guard<std::mutex> lock(tables_mutex());
  if (known->size() >= kMost) known->clear();
  (*known)[key] = *space;
  return kCudnnSuccess;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateRNNDescriptor(void** descriptor) {
  return create_descriptor<RnnDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyRNNDescriptor(void* descriptor) {
  return destroy_descriptor<RnnDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetRNNDescriptor_v8(void* descriptor, int algo, int cell, int bias,
                                                     int direction, int input, int type,
                                                     int precision, int math, int input_size,
                                                     int hidden_size, int projection_size,
                                                     int layers, void* dropout, unsigned flags) {
  if (!descriptor || input_size < 1 || hidden_size < 1 || layers < 1 || projection_size < 0 ||
      projection_size > hidden_size) {
    return kCudnnBadParam;
  }
  auto rnn = static_cast<RnnDesc*>(descriptor);
  rnn->content = pack({algo, cell, bias, direction, input, type, precision, math, input_size,
                       hidden_size, projection_size, layers, flags});
  rnn->dropout = dropout ? *static_cast<const DropoutDesc*>(dropout) : DropoutDesc();
  rnn->weights = weights_of(rnn->content);
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnCreateRNNDataDescriptor(void** descriptor) {
  return create_descriptor<DataDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyRNNDataDescriptor(void* descriptor) {
  return destroy_descriptor<DataDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetRNNDataDescriptor(void* descriptor, int type, int layout,
                                                      int longest, int batch, int vector,
                                                      const int* lengths, void* fill) {
  if (!descriptor || !lengths || longest < 1 || batch < 1 || vector < 1 || !element_size(type)) {
    return kCudnnBadParam;
  }
  auto fits = [longest](int n) { return 0 <= n && n <= longest; };
  if (!std::all_of(lengths, lengths + batch, fits)) return kCudnnBadParam;
  Packer p;
  p.array(7);
  for (int v : {type, layout, longest, batch, vector}) p.integer(v);
  bool equal = std::all_of(lengths, lengths + batch, [longest](int n) { return n == longest; });
  auto data = static_cast<DataDesc*>(descriptor);
  data->without_lengths = std::string(p.data(), p.size()) + (equal ? "=" : "<");
  p.bytes(lengths, batch * sizeof *lengths);
  p.bytes(fill, fill ? element_size(type) : 0);
  data->content.assign(p.data(), p.size());
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, void* descriptor,
                                                       size_t* bytes) {
  const RnnDesc* rnn = network(descriptor);
  if (!rnn || !bytes) return kCudnnBadParam;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    *bytes = rnn->weights->bytes;
  }
  if (*bytes) return kCudnnSuccess;
  Frame frame(Number::cudnn_rnn_weight_space, 3, Codes::kCudnn);
  frame.cudnn(handle);
  frame.packed(rnn->content);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  *bytes = reply.values().unsigned_integer();
  std::lock_guard<std::mutex> lock(tables_mutex());
  rnn->weights->bytes = *bytes;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, void* descriptor,
                                                    int pseudo_layer, size_t weight_bytes,
                                                    const void* space, int linear_layer,
                                                    void* matrix_desc, void** matrix,
                                                    void* bias_desc, void** bias) {
  const RnnDesc* rnn = network(descriptor);
  if (!rnn || linear_layer < 0) return kCudnnBadParam;
  const Layer* layer = nullptr;
  if (int code = find_layer(handle, *rnn, pseudo_layer, weight_bytes, space, &layer)) return code;
  if (static_cast<size_t>(linear_layer) >= layer->params.size()) return kCudnnBadParam;
  const std::array<Param, 2>& params = layer->params[linear_layer];
  give(params[0], space, matrix_desc, matrix);
  give(params[1], space, bias_desc, bias);
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, void* descriptor,
                                                      int mode, void* data, size_t* work,
                                                      size_t* reserve) {
  const RnnDesc* rnn = network(descriptor);
  if (!rnn || !data_of(data) || !work) return kCudnnBadParam;
  TempSpace space;
  if (int code = find_temp_space(handle, rnn, mode, data_of(data), &space)) return code;
  *work = space.work;
  if (reserve) *reserve = space.reserve;
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, void* rnn, int mode, const int*,
                                            void* x_desc, const void* x, void* y_desc, void* y,
                                            void* h_desc, const void* hx, void* hy, void* c_desc,
                                            const void* cx, void* cy, size_t weight_bytes,
                                            const void* weights, size_t work_bytes, void* work,
                                            size_t reserve_bytes, void* reserve) {
  Frame frame(Number::cudnn_rnn_forward, 24, Codes::kCudnn);
  put_network(&frame, handle, rnn);
  frame.integer(mode);
  put_data(&frame, x_desc, {x});
  put_data(&frame, y_desc, {y});
  put_tensor(&frame, h_desc, {hx, hy});
  put_tensor(&frame, c_desc, {cx, cy});
  put_space(&frame, weight_bytes, weights);
  put_space(&frame, work_bytes, work);
  put_space(&frame, reserve_bytes, reserve);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, void* rnn, const int*, void* y_desc, const void* y, const void* dy,
    void* x_desc, void* dx, void* h_desc, const void* hx, const void* dhy, void* dhx, void* c_desc,
    const void* cx, const void* dcy, void* dcx, size_t weight_bytes, const void* weights,
    size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  Frame frame(Number::cudnn_rnn_backward_data, 26, Codes::kCudnn);
  put_network(&frame, handle, rnn);
  put_data(&frame, y_desc, {y, dy});
  put_data(&frame, x_desc, {dx});
  put_tensor(&frame, h_desc, {hx, dhy, dhx});
  put_tensor(&frame, c_desc, {cx, dcy, dcx});
  put_space(&frame, weight_bytes, weights);
  put_space(&frame, work_bytes, work);
  put_space(&frame, reserve_bytes, reserve);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t handle, void* rnn, int add, const int*, void* x_desc, const void* x, void* h_desc,
    const void* hx, void* y_desc, const void* y, size_t weight_bytes, void* weight_gradients,
    size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  Frame frame(Number::cudnn_rnn_backward_weights, 20, Codes::kCudnn);
  put_network(&frame, handle, rnn);
  frame.integer(add);
  put_data(&frame, x_desc, {x});
  put_tensor(&frame, h_desc, {hx});
  put_data(&frame, y_desc, {y});
  put_space(&frame, weight_bytes, weight_gradients);
  put_space(&frame, work_bytes, work);
  put_space(&frame, reserve_bytes, reserve);
  return frame.once();
}
