// cuDNN's spatial transformer: grids of sampling places, and the samples taken there.
#include "cudnn_tensor.h"

namespace mnemosyne {
namespace {

struct TransformerDesc {
  int sampler = 0;  // cudnnSamplerType_t
  int type = 0;     // cudnnDataType_t
  std::vector<int> sizes;
};

// [sampler, type, sizes]; an empty array for no descriptor.
void put_transformer(Frame* frame, const void* descriptor) {
  Packer p;
  if (auto transformer = static_cast<const TransformerDesc*>(descriptor)) {
    p.array(3);
    p.integer(transformer->sampler);
    p.integer(transformer->type);
    pack(&p, transformer->sizes);
  } else {
    p.array(0);
  }
  put(frame, p);
}

int generate(Number number, cudnnHandle_t handle, const void* transformer, const void* from,
             void* to) {
  Frame frame(number, 5, Codes::kCudnn);
  frame.cudnn(handle);
  put_transformer(&frame, transformer);
  put_pointers(&frame, {from, to});
  return frame.once();
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cudnnStatus_t cudnnCreateSpatialTransformerDescriptor(void** descriptor) {
  return create_descriptor<TransformerDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnDestroySpatialTransformerDescriptor(void* descriptor) {
  return destroy_descriptor<TransformerDesc>(descriptor);
}

MNEMOSYNE_API cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(void* descriptor, int sampler,
                                                                   int type, int count,
                                                                   const int* sizes) {
  if (!descriptor || !sizes || count < 1 || count > kMaxDimensions) return kCudnnBadParam;
  *static_cast<TransformerDesc*>(descriptor) = {sampler, type, {sizes, sizes + count}};
  return kCudnnSuccess;
}

MNEMOSYNE_API cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle,
                                                               const void* transformer,
                                                               const void* theta, void* grid) {
  return generate(Number::cudnn_grid, handle, transformer, theta, grid);
}

MNEMOSYNE_API cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle,
                                                                const void* transformer,
                                                                const void* dgrid, void* dtheta) {
  return generate(Number::cudnn_grid_backward, handle, transformer, dgrid, dtheta);
}

MNEMOSYNE_API cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle, void* transformer,
                                                         const void* alpha, const void* x_desc,
                                                         const void* x, const void* grid,
                                                         const void* beta, void* y_desc, void* y) {
  Frame frame(Number::cudnn_sampler, 10, Codes::kCudnn);
  frame.cudnn(handle);
  put_transformer(&frame, transformer);
  put_factors(&frame, x_desc, {alpha, beta});
  put_tensor(&frame, x_desc, x);
  frame.pointer(grid);
  put_tensor(&frame, y_desc, y);
  return frame.once();
}

MNEMOSYNE_API cudnnStatus_t cudnnSpatialTfSamplerBackward(
    cudnnHandle_t handle, void* transformer, const void* alpha, const void* x_desc, const void* x,
    const void* beta, const void* dx_desc, void* dx, const void* alpha_grid, const void* dy_desc,
    const void* dy, const void* grid, const void* beta_grid, void* dgrid) {
  Frame frame(Number::cudnn_sampler_backward, 15, Codes::kCudnn);
  frame.cudnn(handle);
  put_transformer(&frame, transformer);
  put_factors(&frame, x_desc, {alpha, beta, alpha_grid, beta_grid});
  put_tensor(&frame, x_desc, x);
  put_tensor(&frame, dx_desc, dx);
  put_tensor(&frame, dy_desc, dy);
  put_pointers(&frame, {grid, dgrid});
  return frame.once();
}
