// Spatial transformers of cuDNN.
#include "dnn_parts.h"

namespace mnemosyne::cuda {
namespace {

struct TransformerFunctions {
  int (*cudnnCreateSpatialTransformerDescriptor)(void**);
  int (*cudnnDestroySpatialTransformerDescriptor)(void*);
  int (*cudnnSetSpatialTransformerNdDescriptor)(void*, int, int, int, const int*);
  int (*cudnnSpatialTfGridGeneratorForward)(void*, const void*, const void*, void*);
  int (*cudnnSpatialTfGridGeneratorBackward)(void*, const void*, const void*, void*);
  int (*cudnnSpatialTfSamplerForward)(void*, void*, const void*, const void*, const void*,
                                      const void*, const void*, void*, void*);
  int (*cudnnSpatialTfSamplerBackward)(void*, void*, const void*, const void*, const void*,
                                       const void*, const void*, void*, const void*, const void*,
                                       const void*, const void*, const void*, void*);
};
TransformerFunctions functions;
bool complete = false;

}  // namespace

void load_transformer(void* library) {
  TransformerFunctions& f = functions;
  complete = true;
#define MNEMOSYNE_FIND(name) complete &= find(library, #name, &f.name)
  MNEMOSYNE_FIND(cudnnCreateSpatialTransformerDescriptor);
  MNEMOSYNE_FIND(cudnnDestroySpatialTransformerDescriptor);
  MNEMOSYNE_FIND(cudnnSetSpatialTransformerNdDescriptor);
  MNEMOSYNE_FIND(cudnnSpatialTfGridGeneratorForward);
  MNEMOSYNE_FIND(cudnnSpatialTfGridGeneratorBackward);
  MNEMOSYNE_FIND(cudnnSpatialTfSamplerForward);
  MNEMOSYNE_FIND(cudnnSpatialTfSamplerBackward);
#undef MNEMOSYNE_FIND
}

// The descriptor of [sampler, type, sizes].
void* DnnSession::transformer(const List& content, int* status) {
  if (!*status && !complete) *status = kDnnNotSupported;
  auto set = [](void* descriptor, Unpacker& u) -> int {
    int sampler = static_cast<int>(u.integer()), type = static_cast<int>(u.integer());
    Numbers sizes;
    if (!sizes.read(&u)) return kDnnBadParam;
    return functions.cudnnSetSpatialTransformerNdDescriptor(descriptor, sampler, type, sizes.count,
                                                            sizes.values);
  };
  return kept({"transformer", functions.cudnnCreateSpatialTransformerDescriptor,
               functions.cudnnDestroySpatialTransformerDescriptor, set},
              content, status);
}

int DnnSession::run(const calls::cudnn_grid& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* descriptor = transformer(c.transformer, &status);
  if (status) return status;
  return functions.cudnnSpatialTfGridGeneratorForward(handle, descriptor, at(c.theta), at(c.grid));
}

int DnnSession::run(const calls::cudnn_grid_backward& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void* descriptor = transformer(c.transformer, &status);
  if (status) return status;
  return functions.cudnnSpatialTfGridGeneratorBackward(handle, descriptor, at(c.dgrid),
                                                       at(c.dtheta));
}

int DnnSession::run(const calls::cudnn_sampler& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *descriptor = transformer(c.transformer, &status), *x = tensor(c.xDesc, &status),
       *y = tensor(c.yDesc, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc);
  return functions.cudnnSpatialTfSamplerForward(handle, descriptor, alpha.pointer(), x, at(c.x),
                                                at(c.grid), beta.pointer(), y, at(c.y));
}

int DnnSession::run(const calls::cudnn_sampler_backward& c, void* stream) {
  int status = kDnnSuccess;
  void* handle = use(c.handle, stream, &status);
  void *descriptor = transformer(c.transformer, &status), *x = tensor(c.xDesc, &status),
       *dx = tensor(c.dxDesc, &status), *dy = tensor(c.dyDesc, &status);
  if (status) return status;
  Factor alpha(c.alpha, c.xDesc), beta(c.beta, c.xDesc), alpha_grid(c.alphaGrid, c.xDesc),
      beta_grid(c.betaGrid, c.xDesc);
  return functions.cudnnSpatialTfSamplerBackward(
      handle, descriptor, alpha.pointer(), x, at(c.x), beta.pointer(), dx, at(c.dx),
      alpha_grid.pointer(), dy, at(c.dy), at(c.grid), beta_grid.pointer(), at(c.dgrid));
}

}  // namespace mnemosyne::cuda
