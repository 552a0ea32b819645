// cublasLt: descriptors are recorded here and sent by content; heuristics are asked once per
// content.
#include <map>
#include <string>
#include <vector>

#include "../common/blas_types.h"
#include "frame.h"
#include "structs.h"
#include "tables.h"

namespace mnemosyne {
namespace {

using Attributes =
    std::map<int, std::string>;  // by attribute number, so equal contents are equal bytes

struct MatmulDesc {
  int compute_type, scale_type;
  Attributes attributes;
};
struct MatrixLayout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  Attributes attributes;
};
struct Preference {
  Attributes attributes;
};

// cublasLt.h: attributes that are device pointers. Their values are not part of what an algorithm
// depends on, only their presence and alignment are. They are those of bias and auxiliary matrix,
// the scales of A, B, C and D, AMAX_D, scale and amax of the auxiliary matrix, and the scales that
// D is given.
constexpr int kPointers[] = {8, 11, 17, 18, 19, 20, 21, 23, 24, 36};
constexpr int kPointerMode = 2;  // CUBLASLT_MATMUL_DESC_POINTER_MODE

int set(Attributes* attributes, int id, const void* value, size_t size) {
  if (!value) return kBlasInvalidValue;
  (*attributes)[id].assign(static_cast<const char*>(value), size);
  return kBlasSuccess;
}

void pack(Packer* p, const Attributes& attributes) {
  p->array(attributes.size());
  for (const auto& [id, value] : attributes) {
    p->array(2);
    p->integer(id);
    p->bytes(value.data(), value.size());
  }
}

std::string text_of(const Packer& p) { return std::string(p.data(), p.size()); }

std::string pack(const MatmulDesc& d) {
  Packer p;
  p.array(3);
  p.integer(d.compute_type);
  p.integer(d.scale_type);
  pack(&p, d.attributes);
  return text_of(p);
}

std::string pack(const MatrixLayout& l) {
  Packer p;
  p.array(5);
  p.integer(l.type);
  p.unsigned_integer(l.rows);
  p.unsigned_integer(l.cols);
  p.integer(l.ld);
  pack(&p, l.attributes);
  return text_of(p);
}

std::string pack(const Preference& preference) {
  Packer p;
  pack(&p, preference.attributes);
  return text_of(p);
}

// The description with every device pointer replaced by its alignment.
MatmulDesc content_of(const MatmulDesc& d) {
  MatmulDesc content = d;
  for (int id : kPointers) {
    auto found = content.attributes.find(id);
    if (found == content.attributes.end() || found->second.size() != 8) continue;
    uint64_t p;
    memcpy(&p, found->second.data(), 8);
    p = p ? uint64_t{1} << __builtin_ctzll(p | 256) : 0;
    found->second.assign(reinterpret_cast<char*>(&p), 8);
  }
  return content;
}

// What an algorithm is chosen for, as the messages list it.
std::string content_of(const void* desc, const void* a, const void* b, const void* c,
                       const void* d) {
  std::string content = pack(content_of(*static_cast<const MatmulDesc*>(desc)));
  for (const void* layout : {a, b, c, d}) {
    content += pack(*static_cast<const MatrixLayout*>(layout));
  }
  return content;
}

// cublasLt.h: cublasLtPointerMode_t.
enum class Place { kHost, kDevice, kZero };
struct Places {
  Place alpha, beta;
};
constexpr Places kPlaces[] = {
    {Place::kHost, Place::kHost},      // HOST
    {Place::kDevice, Place::kDevice},  // DEVICE
    {Place::kDevice, Place::kDevice},  // DEVICE_VECTOR
    {Place::kDevice, Place::kZero},    // ALPHA_DEVICE_VECTOR_BETA_ZERO
    {Place::kDevice, Place::kHost},    // ALPHA_DEVICE_VECTOR_BETA_HOST
};

// Null for a mode that the header does not know.
const Places* places_of(const MatmulDesc& d) {
  int32_t mode = 0;
  auto found = d.attributes.find(kPointerMode);
  if (found != d.attributes.end() && found->second.size() == sizeof mode) {
    memcpy(&mode, found->second.data(), sizeof mode);
  }
  bool known = mode >= 0 && mode < static_cast<int>(sizeof kPlaces / sizeof *kPlaces);
  return known ? &kPlaces[mode] : nullptr;
}

// Host scalars travel as bytes, device scalars as addresses.
void put_scalar(Frame* frame, Place place, int type, const void* p) {
  static constexpr char kZeros[16] = {};
  if (place == Place::kDevice) return frame->pointer(p);
  size_t size = data_size(type);
  if (place == Place::kZero) p = kZeros;
  if (!p || !size) frame->refuse(kNotSupported);
  frame->bytes(p && size ? p : "", p ? size : 0);
}

bool read_results(Reply* reply, std::vector<cublasLtMatmulHeuristicResult_t>* results) {
  Unpacker& u = reply->values();
  for (uint32_t n = u.array(); n && u.ok(); --n) {
    u.array();
    cublasLtMatmulHeuristicResult_t result{};
    size_t size;
    const char* algorithm = u.bytes(&size);
    if (!algorithm || size != sizeof result.algo) return false;
    memcpy(&result.algo, algorithm, size);
    result.workspaceSize = u.integer();
    result.wavesCount = static_cast<float>(u.real());
    results->push_back(result);
  }
  return u.ok();
}

int ask(const std::string& content, int requested,
        std::vector<cublasLtMatmulHeuristicResult_t>* results) {
  static auto* known =
      new std::map<std::pair<int, std::string>, std::vector<cublasLtMatmulHeuristicResult_t>>;
  {
    std::lock_guard<std::mutex> lock(tables_mutex());
    auto found = known->find({requested, content});
    if (found != known->end()) return *results = found->second, kBlasSuccess;
  }
  Frame frame(Number::lt_heuristic, 7, Codes::kBlas);
  frame.packed(content);
  frame.integer(requested);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  if (!read_results(&reply, results)) return kBlasInternalError;
  std::lock_guard<std::mutex> lock(tables_mutex());
  (*known)[{requested, content}] = *results;
  return kBlasSuccess;
}

// Calls, and reads the bytes of an algorithm that come first in the reply.
int call_for(Frame* frame, Reply* reply, void* algorithm) {
  if (int code = frame->call(reply)) return code;
  size_t size;
  const char* bytes = reply->values().bytes(&size);
  if (!bytes || size != sizeof(cublasLtMatmulAlgo_t)) return kBlasInternalError;
  memcpy(algorithm, bytes, size);
  return kBlasSuccess;
}

template <typename T>
int destroy(void* descriptor) {
  delete static_cast<T*>(descriptor);
  return kBlasSuccess;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API cublasStatus_t cublasCreate_v2(cublasHandle_t*);
MNEMOSYNE_API cublasStatus_t cublasDestroy_v2(cublasHandle_t);

// torch uses a cuBLAS handle as a cublasLt handle, so they are one kind.
MNEMOSYNE_API cublasStatus_t cublasLtCreate(void** handle) { return cublasCreate_v2(handle); }
MNEMOSYNE_API cublasStatus_t cublasLtDestroy(void* handle) { return cublasDestroy_v2(handle); }

MNEMOSYNE_API cublasStatus_t cublasLtMatmulDescCreate(void** desc, int compute_type,
                                                      int scale_type) {
  if (!desc) return kBlasInvalidValue;
  *desc = new MatmulDesc{compute_type, scale_type, {}};
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulDescDestroy(void* desc) {
  return destroy<MatmulDesc>(desc);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulDescSetAttribute(void* desc, int id, const void* value,
                                                            size_t size) {
  if (!desc) return kBlasInvalidValue;
  return set(&static_cast<MatmulDesc*>(desc)->attributes, id, value, size);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows,
                                                        uint64_t cols, int64_t ld) {
  if (!layout) return kBlasInvalidValue;
  *layout = new MatrixLayout{type, rows, cols, ld, {}};
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasLtMatrixLayoutDestroy(void* layout) {
  return destroy<MatrixLayout>(layout);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(void* layout, int id,
                                                              const void* value, size_t size) {
  if (!layout) return kBlasInvalidValue;
  return set(&static_cast<MatrixLayout*>(layout)->attributes, id, value, size);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulPreferenceCreate(void** preference) {
  if (!preference) return kBlasInvalidValue;
  *preference = new Preference;
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulPreferenceDestroy(void* preference) {
  return destroy<Preference>(preference);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(void* preference, int id,
                                                                  const void* value, size_t size) {
  if (!preference) return kBlasInvalidValue;
  return set(&static_cast<Preference*>(preference)->attributes, id, value, size);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    void*, const void* desc, const void* a, const void* b, const void* c, const void* d,
    const void* preference, int requested, cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (!desc || !a || !b || !c || !d || !preference || !results || !count || requested < 1) {
    return kBlasInvalidValue;
  }
  *count = 0;
  std::string content = content_of(desc, a, b, c, d);
  content += pack(*static_cast<const Preference*>(preference));
  std::vector<cublasLtMatmulHeuristicResult_t> known;
  if (int code = ask(content, requested, &known)) return code;
  for (const cublasLtMatmulHeuristicResult_t& result : known) {
    if (*count < requested) results[(*count)++] = result;
  }
  return *count ? kBlasSuccess : kBlasNotSupported;
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmul(void*, const void* desc, const void* alpha,
                                            const void* a, const void* layout_a, const void* b,
                                            const void* layout_b, const void* beta, const void* c,
                                            const void* layout_c, void* d, const void* layout_d,
                                            const void* algorithm, void* workspace,
                                            size_t workspace_bytes, cudaStream_t stream) {
  if (!desc || !layout_a || !layout_b || !layout_c || !layout_d) return kBlasInvalidValue;
  const MatmulDesc& description = *static_cast<const MatmulDesc*>(desc);
  auto layout = [](const void* p) { return pack(*static_cast<const MatrixLayout*>(p)); };
  const Places* places = places_of(description);
  if (!places) return kBlasInvalidValue;
  Frame frame(Number::lt_matmul, 15, Codes::kBlas);
  frame.stream(stream);
  frame.packed(pack(description), pack(content_of(description)));
  put_scalar(&frame, places->alpha, description.scale_type, alpha);
  frame.pointer(a);
  frame.packed(layout(layout_a));
  frame.pointer(b);
  frame.packed(layout(layout_b));
  put_scalar(&frame, places->beta, description.scale_type, beta);
  frame.pointer(c);
  frame.packed(layout(layout_c));
  frame.pointer(d);
  frame.packed(layout(layout_d));
  frame.bytes(algorithm ? algorithm : "", algorithm ? sizeof(cublasLtMatmulAlgo_t) : 0);
  frame.pointer(workspace);
  frame.unsigned_integer(workspace_bytes);
  return frame.once();
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulAlgoInit(void*, int compute_type, int scale_type,
                                                    int a_type, int b_type, int c_type, int d_type,
                                                    int id, void* algorithm) {
  if (!algorithm) return kBlasInvalidValue;
  Frame frame(Number::lt_algo_init, 7, Codes::kBlas);
  for (int v : {compute_type, scale_type, a_type, b_type, c_type, d_type, id}) frame.integer(v);
  Reply reply;
  return call_for(&frame, &reply, algorithm);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulAlgoCheck(void*, const void* desc, const void* a,
                                                     const void* b, const void* c, const void* d,
                                                     const void* algorithm, void* result) {
  if (!desc || !a || !b || !c || !d || !algorithm || !result) return kBlasInvalidValue;
  Frame frame(Number::lt_algo_check, 6, Codes::kBlas);
  frame.packed(content_of(desc, a, b, c, d));
  frame.bytes(algorithm, sizeof(cublasLtMatmulAlgo_t));
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  if (!read_results(&reply, &results) || results.size() != 1) return kBlasInternalError;
  memcpy(result, &results[0], sizeof results[0]);
  return kBlasSuccess;
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(void* algorithm, int attribute,
                                                                  const void* value, size_t size) {
  if (!algorithm || !value) return kBlasInvalidValue;
  Frame frame(Number::lt_algo_set, 3, Codes::kBlas);
  frame.bytes(algorithm, sizeof(cublasLtMatmulAlgo_t));
  frame.integer(attribute);
  frame.bytes(value, size);
  Reply reply;
  return call_for(&frame, &reply, algorithm);
}

MNEMOSYNE_API cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const void* algorithm,
                                                                  int attribute, void* value,
                                                                  size_t size, size_t* written) {
  if (!algorithm || (size ? !value : !written)) return kBlasInvalidValue;
  Frame frame(Number::lt_algo_get, 3, Codes::kBlas);
  frame.bytes(algorithm, sizeof(cublasLtMatmulAlgo_t));
  frame.integer(attribute);
  frame.unsigned_integer(size);
  Reply reply;
  if (int code = frame.call(&reply)) return code;
  size_t got;
  const char* bytes = reply.values().bytes(&got);
  uint64_t whole = reply.values().integer();
  if (!bytes || got > size || !reply.values().ok()) return kBlasInternalError;
  if (got) memcpy(value, bytes, got);
  if (written) *written = whole;
  return kBlasSuccess;
}
