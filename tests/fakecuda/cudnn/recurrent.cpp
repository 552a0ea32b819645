// A cuDNN for tests of the lane: it computes nothing, and says on stderr what its recurrent layers
// were called with. Built with the vendor's header, so that a call of another form is not compiled.
#include <cudnn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnDropoutStruct {
  std::string text;
};
struct cudnnRNNStruct {
  std::string text;
  int layers = 0, mode = 0;
  bool projected = false;
};
struct cudnnRNNDataStruct {
  std::string text;
};
struct cudnnTensorStruct {
  std::vector<int> sizes, strides;
  int type = 0;
};

namespace {

std::atomic<int> live{0};  // descriptors

std::string format(const char* form, ...) {
  char text[1000];
  va_list values;
  va_start(values, form);
  vsnprintf(text, sizeof text, form, values);
  va_end(values);
  return text;
}

// A line says how many descriptors there are, so that a test sees that they go again.
cudnnStatus_t say(const std::string& text) {
  fprintf(stderr, "fakecudnn: %s live %d\n", text.c_str(), live.load());
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t create(T** descriptor) {
  *descriptor = new T;
  ++live;
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t destroy(T* descriptor) {
  delete descriptor;
  --live;
  return CUDNN_STATUS_SUCCESS;
}

std::string text_of(const std::vector<int>& values) {
  std::string text;
  for (int v : values) text += (text.empty() ? "" : ",") + std::to_string(v);
  return "(" + text + ")";
}

std::string text_of(cudnnTensorDescriptor_t t) {
  return t ? format("tensor %d%s%s", t->type, text_of(t->sizes).c_str(),
                    text_of(t->strides).c_str())
           : "no tensor";
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
void cudnnGetLastErrorString(char* text, size_t room) { snprintf(text, room, "of the fake"); }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{};
  fprintf(stderr, "fakecudnn made a handle\n");
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int count,
                                         const int sizes[], const int strides[]) {
  d->type = type;
  d->sizes.assign(sizes, sizes + count);
  d->strides.assign(strides, strides + count);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int room,
                                         cudnnDataType_t* type, int* count, int sizes[],
                                         int strides[]) {
  *type = static_cast<cudnnDataType_t>(d->type);
  *count = static_cast<int>(d->sizes.size());
  for (int i = 0; i < room && i < *count; ++i) sizes[i] = d->sizes[i], strides[i] = d->strides[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, size_t* bytes) {
  *bytes = 2080768;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p,
                                        void* states, size_t bytes, unsigned long long seed) {
  d->text = format("dropout %g at %p %zu seed %llu", p, states, bytes, seed);
  return states && handle ? say("set " + d->text) : CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t, float p,
                                            void* states, size_t bytes, unsigned long long seed) {
  d->text = format("restored %g at %p %zu seed %llu", p, states, bytes, seed);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t input_size, int32_t hidden,
                                       int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  if (bias != CUDNN_RNN_DOUBLE_BIAS) return CUDNN_STATUS_NOT_SUPPORTED;
  d->layers = layers * (direction + 1);
  d->mode = mode;
  d->projected = projection != hidden;
  d->text = format("rnn %d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%u %s", algo, mode, bias, direction,
                   input, type, precision, math, input_size, hidden, projection, layers, flags,
                   dropout->text.c_str());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int longest, int batch,
                                        int vector, const int lengths[], void* fill) {
  std::vector<int> all(lengths, lengths + batch);
  std::string filled = fill ? format(" fill %g", *static_cast<float*>(fill)) : "";
  d->text = format("data %d,%d,%d,%d %s%s", type, layout, longest, vector, text_of(all).c_str(),
                   filled.c_str());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  *bytes = 4096;
  return say("weights of " + rnn->text);
}

// Matrix and bias of layer i are 128 and 64 bytes from each other.
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t layer,
                                      size_t bytes, const void* space, int32_t linear,
                                      cudnnTensorDescriptor_t matrix, void** matrix_at,
                                      cudnnTensorDescriptor_t bias, void** bias_at) {
  if (layer >= rnn->layers || bytes < 4096 || linear > 8) return CUDNN_STATUS_BAD_PARAM;
  bool projection = linear == 8;
  char* at = static_cast<char*>(const_cast<void*>(space)) + 1024 * layer + 128 * linear;
  matrix->type = bias->type = CUDNN_DATA_FLOAT;
  matrix->sizes = {1, 2, 3}, matrix->strides = {6, 3, 1};
  bias->sizes = {1, 2, 1}, bias->strides = {2, 1, 1};
  *matrix_at = projection && !rnn->projected ? nullptr : at;
  *bias_at = projection ? nullptr : at + 64;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* work, size_t* reserve) {
  *work = 111;
  if (reserve) *reserve = 222;
  return say(format("space %d reserve %d ", mode, reserve != nullptr) + rnn->text + " x " +
             x->text);
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t* lengths, cudnnRNNDataDescriptor_t xd, const void* x,
                              cudnnRNNDataDescriptor_t yd, void* y, cudnnTensorDescriptor_t hd,
                              const void* hx, void* hy, cudnnTensorDescriptor_t cd, const void* cx,
                              void* cy, size_t weight_bytes, const void* weights, size_t work_bytes,
                              void* work, size_t reserve_bytes, void* reserve) {
  return say(format("forward %d lengths %d ", mode, lengths != nullptr) + rnn->text + " x " +
             xd->text + format(" %p y ", x) + yd->text + format(" %p h ", y) + text_of(hd) +
             format(" %p %p c ", hx, hy) + text_of(cd) +
             format(" %p %p spaces %zu %p %zu %p %zu %p", cx, cy, weight_bytes, weights, work_bytes,
                    work, reserve_bytes, reserve));
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t, cudnnRNNDescriptor_t rnn,
                                      const int32_t* lengths, cudnnRNNDataDescriptor_t yd,
                                      const void* y, const void* dy, cudnnRNNDataDescriptor_t xd,
                                      void* dx, cudnnTensorDescriptor_t hd, const void* hx,
                                      const void* dhy, void* dhx, cudnnTensorDescriptor_t cd,
                                      const void* cx, const void* dcy, void* dcx,
                                      size_t weight_bytes, const void* weights, size_t work_bytes,
                                      void* work, size_t reserve_bytes, void* reserve) {
  return say(format("backward lengths %d ", lengths != nullptr) + rnn->text + " y " + yd->text +
             format(" %p %p x ", y, dy) + xd->text + format(" %p h ", dx) + text_of(hd) +
             format(" %p %p %p c ", hx, dhy, dhx) + text_of(cd) +
             format(" %p %p %p ", cx, dcy, dcx) +
             format("spaces %zu %p %zu %p %zu %p", weight_bytes, weights, work_bytes, work,
                    reserve_bytes, reserve));
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t add, const int32_t* lengths,
                                         cudnnRNNDataDescriptor_t xd, const void* x,
                                         cudnnTensorDescriptor_t hd, const void* hx,
                                         cudnnRNNDataDescriptor_t yd, const void* y,
                                         size_t weight_bytes, void* weights, size_t work_bytes,
                                         void* work, size_t reserve_bytes, void* reserve) {
  return say(format("gradients %d lengths %d ", add, lengths != nullptr) + rnn->text + " x " +
             xd->text + format(" %p h ", x) + text_of(hd) + format(" %p y ", hx) + yd->text +
             format(" %p spaces %zu %p %zu %p %zu %p", y, weight_bytes, weights, work_bytes, work,
                    reserve_bytes, reserve));
}

}  // extern "C"
