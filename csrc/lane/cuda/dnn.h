// The real cuDNN, found at run time: one session's handles, plans and tensor descriptors. What a
// client describes by content (see mnemosyne/api/cudnn.py) becomes real descriptors here.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../generated/calls.h"

namespace mnemosyne::cuda {

// A cudnnStatus_t.
constexpr int kDnnSuccess = 0;
constexpr int kDnnNotInitialized = 1001;
constexpr int kDnnBadParam = 2000;
constexpr int kDnnNotSupported = 3000;

struct DnnLibrary {
  void (*cudnnGetLastErrorString)(char*, size_t);
  int (*cudnnCreate)(void**);
  int (*cudnnSetStream)(void*, void*);
  int (*cudnnBackendCreateDescriptor)(int, void**);
  int (*cudnnBackendDestroyDescriptor)(void*);
  int (*cudnnBackendExecute)(void*, void*, void*);
  int (*cudnnBackendFinalize)(void*);
  int (*cudnnBackendGetAttribute)(void*, int, int, int64_t, int64_t*, void*);
  int (*cudnnBackendSetAttribute)(void*, int, int, int64_t, const void*);
  int (*cudnnCreateTensorDescriptor)(void**);
  int (*cudnnDestroyTensorDescriptor)(void*);
  int (*cudnnSetTensorNdDescriptor)(void*, int, int, const int*, const int*);
  int (*cudnnDeriveBNTensorDescriptor)(void*, const void*, int);
  int (*cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)(void*, int, int, void*, void*,
                                                                  void*, void*, void*, size_t*);
  int (*cudnnGetBatchNormalizationBackwardExWorkspaceSize)(void*, int, int, void*, void*, void*,
                                                           void*, void*, void*, void*, size_t*);
  int (*cudnnGetBatchNormalizationTrainingExReserveSpaceSize)(void*, int, int, void*, void*,
                                                              size_t*);
  int (*cudnnBatchNormalizationForwardTrainingEx)(void*, int, int, const void*, const void*, void*,
                                                  const void*, void*, const void*, void*, void*,
                                                  void*, const void*, const void*, double, void*,
                                                  void*, double, void*, void*, void*, void*, size_t,
                                                  void*, size_t);
  int (*cudnnBatchNormalizationForwardInference)(void*, int, const void*, const void*, void*,
                                                 const void*, void*, void*, void*, const void*,
                                                 const void*, const void*, const void*, double);
  int (*cudnnBatchNormalizationBackwardEx)(void*, int, int, const void*, const void*, const void*,
                                           const void*, void*, const void*, void*, const void*,
                                           void*, const void*, void*, void*, void*, void*, void*,
                                           const void*, const void*, void*, void*, double,
                                           const void*, const void*, void*, void*, size_t, void*,
                                           size_t);
};

// The path counts the first time. Throws std::runtime_error.
void load_dnn(const char* path);

// What load_dnn() does for recurrent layers.
void load_rnn(void* library);

// What the last call that failed in this thread said of it.
std::string dnn_error();

class DnnSession {
 public:
  ~DnnSession() { clear(); }
  // Gives back everything; the device has done the session's work.
  void clear();
  void add(uint64_t number) { numbers_.insert(number); }
  void remove(uint64_t number);

  // Engine configurations for an `ENGINEHEUR` descriptor, best first, as the reply lists them.
  // `room`: bytes that the reply may take.
  int heuristic(uint64_t handle, void* stream, const List& descriptor, size_t room,
                std::string* configs);
  int build_plan(uint64_t handle, void* stream, uint64_t plan, const List& descriptor,
                 uint64_t* workspace);
  bool destroy_plan(uint64_t plan) { return plans_.erase(plan) == 1; }

  int run(const calls::cudnn_execute& c, void* stream);
  int run(const calls::cudnn_batch_norm_training& c, void* stream);
  int run(const calls::cudnn_batch_norm_inference& c, void* stream);
  int run(const calls::cudnn_batch_norm_backward& c, void* stream);
  int run(const calls::cudnn_ctc& c, void* stream);
  int run(const calls::cudnn_ctc_host& c, void* stream);
  int run(const calls::cudnn_grid& c, void* stream);
  int run(const calls::cudnn_grid_backward& c, void* stream);
  int run(const calls::cudnn_sampler& c, void* stream);
  int run(const calls::cudnn_sampler_backward& c, void* stream);
  int run(const calls::cudnn_convolution& c, void* stream);
  int run(const calls::cudnn_convolution_fused& c, void* stream);
  int run(const calls::cudnn_pooling& c, void* stream);
  int room(const calls::cudnn_batch_norm_room& c, void* stream, uint64_t* bytes);
  int room(const calls::cudnn_ctc_room& c, void* stream, uint64_t* bytes);
  int room(const calls::cudnn_ctc_host_room& c, void* stream, uint64_t* bytes);
  int room(const calls::cudnn_convolution_room& c, void* stream, uint64_t* bytes);
  // Packs the results as the reply lists them.
  int algorithms(const calls::cudnn_convolution_algorithms& c, void* stream, Packer* results);

  // Recurrent layers (rnn.cpp). `params`: as the reply lists them.
  int dropout_states(uint64_t handle, void* stream, uint64_t* bytes);
  int weight_space(uint64_t handle, void* stream, const List& rnn, uint64_t* bytes);
  int weight_params(uint64_t handle, void* stream, const List& rnn, int pseudo_layer,
                    uint64_t weight_bytes, uint64_t weight_space, std::string* params);
  int temp_space(const calls::cudnn_rnn_temp_space& c, void* stream, uint64_t* work,
                 uint64_t* reserve);
  int run(const calls::cudnn_dropout_init& c, void* stream);
  int run(const calls::cudnn_rnn_forward& c, void* stream);
  int run(const calls::cudnn_rnn_backward_data& c, void* stream);
  int run(const calls::cudnn_rnn_backward_weights& c, void* stream);

 private:
  // Descriptors that belong together, by content; destroyed with it.
  struct Descriptors {
    ~Descriptors();
    std::unordered_map<std::string, void*> by_content;
    std::vector<void*> all;
    std::set<int64_t> by_value;  // unique ids of tensors whose values come with an execution
    int64_t last_id = 0;
    int depth = 0;
  };
  struct Plan {
    Descriptors descriptors;
    void* plan = nullptr;
  };

  void* use(uint64_t handle, void* stream, int* status);
  static void* build(Unpacker* from, void* handle, Descriptors* made, int* status);
  static void set(void* descriptor, Unpacker* from, void* handle, Descriptors* made, int* status);
  // How descriptors of a kind are made, of the fields of their content.
  struct Making {
    const char* kind;
    int (*create)(void**);
    int (*destroy)(void*);
    std::function<int(void*, Unpacker&)> set;
  };
  // A descriptor that is made once for each content. Null: see status.
  void* kept(const Making& making, const List& content, int* status);
  void* tensor(const List& content, int* status);
  // The same; null for an empty description.
  void* optional_tensor(const List& content, int* status);
  void* filter(const List& content, int* status);
  void* loss(const List& content, int* status);
  void* transformer(const List& content, int* status);
  void* convolution(const List& content, int* status);
  void* activation(const List& content, double coefficient, int* status);
  void* pooling(const List& content, int* status);

  struct Kept {
    void* descriptor;
    int (*destroy)(void*);
  };
  void give_back();

  // One real handle does for all of a session's, for its calls come one after another: PyTorch
  // makes one in each thread, and each takes 8 MiB of the GPU.
  void* handle_ = nullptr;
  std::set<uint64_t> numbers_;
  std::unordered_map<uint64_t, std::unique_ptr<Plan>> plans_;
  std::unordered_map<std::string, Kept> kept_;  // by kind and content
};

}  // namespace mnemosyne::cuda
