// cuDNN's CTC loss. Labels and lengths come from the host or lie on the device.
#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

constexpr int kAnyLength = -1;  // of cudnnSetCTCLossDescriptorEx, which does not bound labels

struct CtcDesc {
  int type = 0;           // cudnnDataType_t
  int normalization = 0;  // cudnnLossNormalizationMode_t
  int gradients = 0;      // cudnnNanPropagation_t or cudnnCTCGradMode_t, which number alike
  int longest = kAnyLength;
};

int set_loss(void* descriptor, const CtcDesc& settings) {
  if (!descriptor) return kCudnnBadParam;
  *static_cast<CtcDesc*>(descriptor) = settings;
  return kCudnnSuccess;
}

// [type, normalization, gradients, longest]; an empty array for no descriptor.
void put_loss(Frame* frame, const void* descriptor) {
  Packer p;
  if (auto loss = static_cast<const CtcDesc*>(descriptor)) {
    pack(&p, {loss->type, loss->normalization, loss->gradients, loss->longest});
  } else {
    p.array(0);
  }
  put(frame, p);
}

// The labels of a batch in host memory.
struct HostLabels {
  const int *labels, *label_lengths, *input_lengths;

  // False: they are missing, or the descriptor is of no batch.
  bool put(Frame* frame, const void* probs_desc) const {
    auto probs = static_cast<const TensorDesc*>(probs_desc);
    if (!probs || probs->sizes.size() != 3 || !label_lengths || !input_lengths) return false;
    int batch = probs->sizes[1];
    int64_t count = 0;
    for (int i = 0; i < batch; ++i) {
      if (label_lengths[i] < 0) return false;
      count += label_lengths[i];
    }
    if (count && !labels) return false;
    frame->bytes(labels, count * sizeof *labels);
    frame->bytes(label_lengths, batch * sizeof *label_lengths);
    frame->bytes(input_lengths, batch * sizeof *input_lengths);
    return true;
  }
};

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateCTCLossDescriptor(void** descriptor) {
  return create_descriptor<CtcDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroyCTCLossDescriptor(void* descriptor) {
  return destroy_descriptor<CtcDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetCTCLossDescriptorEx(void* descriptor, int type,
                                                        int normalization, int gradients) {
  return set_loss(descriptor, {type, normalization, gradients, kAnyLength});
}

MNEMOSYNE_API cudnnStatus_t cudnnSetCTCLossDescriptor_v9(void* descriptor, int type,
                                                         int normalization, int gradients,
                                                         int longest) {
  if (longest < 0) return kCudnnBadParam;
  return set_loss(descriptor, {type, normalization, gradients, longest});
}

// Depends on the labels, so it is asked for each time.
MNEMOSYNE_API cudnnStatus_t cudnnGetCTCLossWorkspaceSize(
    cudnnHandle_t handle, const void* probs_desc, const void* gradients_desc, const int* labels,
    const int* label_lengths, const int* input_lengths, int algo, void* loss, size_t* bytes) {
  if (!bytes) return kCudnnBadParam;
  Frame frame(Number::cudnn_ctc_host_room, 9, Codes::kCudnn);
  frame.cudnn(handle);
  put_loss(&frame, loss);
  frame.integer(algo);
  put(&frame, probs_desc);
  put(&frame, gradients_desc);
  HostLabels host{labels, label_lengths, input_lengths};
  if (!host.put(&frame, probs_desc)) return kCudnnBadParam;
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  *bytes = reply.values().integer();
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, int algo,
                                                            void* loss, const void* probs_desc,
                                                            const void* gradients_desc,
                                                            size_t* bytes) {
  if (!bytes) return kCudnnBadParam;
  Frame frame(Number::cudnn_ctc_room, 6, Codes::kCudnn);
  frame.cudnn(handle);
  put_loss(&frame, loss);
  frame.integer(algo);
  put(&frame, probs_desc);
  put(&frame, gradients_desc);
  return ask_size(&frame, bytes);
}

MNEMOSYNE_API cudnnStatus_t cudnnCTCLoss(cudnnHandle_t handle, const void* probs_desc,
                                         const void* probs, const int* labels,
                                         const int* label_lengths, const int* input_lengths,
                                         void* costs, const void* gradients_desc, void* gradients,
                                         int algo, void* loss, void* workspace,
                                         size_t workspace_bytes) {
  Frame frame(Number::cudnn_ctc_host, 14, Codes::kCudnn);
  frame.cudnn(handle);
  put_loss(&frame, loss);
  frame.integer(algo);
  put_tensor(&frame, probs_desc, probs);
  HostLabels host{labels, label_lengths, input_lengths};
  if (!host.put(&frame, probs_desc)) return kCudnnBadParam;
  frame.pointer(costs);
  put_tensor(&frame, gradients_desc, gradients);
  put_room(&frame, workspace, workspace_bytes);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnCTCLoss_v8(cudnnHandle_t handle, int algo, void* loss,
                                            const void* probs_desc, const void* probs,
                                            const int* labels, const int* label_lengths,
                                            const int* input_lengths, void* costs,
                                            const void* gradients_desc, void* gradients,
                                            size_t workspace_bytes, void* workspace) {
  Frame frame(Number::cudnn_ctc, 14, Codes::kCudnn);
  frame.cudnn(handle);
  put_loss(&frame, loss);
  frame.integer(algo);
  put_tensor(&frame, probs_desc, probs);
  put_pointers(&frame, {labels, label_lengths, input_lengths, costs});
  put_tensor(&frame, gradients_desc, gradients);
  put_room(&frame, workspace, workspace_bytes);
  return frame.once();
}
