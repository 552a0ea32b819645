#include "blas.h"

#include <memory>

#include "spare.h"

namespace mnemosyne::cuda {
namespace {

constexpr size_t kMostKnown = 4096;  // descriptors of one kind kept; contents hold addresses
constexpr int kMostResults = 64;
constexpr size_t kMostAttribute = 64;  // bytes of one attribute of an algorithm

std::unique_ptr<Libraries> loaded;

// Never destroyed: sessions end until the very end.
SpareHandles& spare() {
  static auto* handles = new SpareHandles;
  return *handles;
}
SpareHandles& spare_lt() {
  static auto* handles = new SpareHandles;
  return *handles;
}

void* open(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  return library;
}

// [[attribute, bytes], ...]
template <typename Set>
int set_attributes(Unpacker& u, void* object, Set set) {
  for (uint32_t n = u.array(); n && u.ok(); --n) {
    u.array();
    int id = static_cast<int>(u.integer());
    size_t size;
    const char* value = u.bytes(&size);
    if (!value) break;
    if (int status = set(object, id, value, size)) return status;
  }
  return u.ok() ? kBlasSuccess : kBlasInvalidValue;
}

// [computeType, scaleType, attributes]
int make_desc(Unpacker& u, void** desc) {
  u.array();
  int compute = static_cast<int>(u.integer());
  int scale = static_cast<int>(u.integer());
  if (int status = loaded->cublasLtMatmulDescCreate(desc, compute, scale)) return status;
  return set_attributes(u, *desc, loaded->cublasLtMatmulDescSetAttribute);
}

// [type, rows, cols, ld, attributes]
int make_layout(Unpacker& u, void** layout) {
  u.array();
  int type = static_cast<int>(u.integer());
  uint64_t rows = u.integer();
  uint64_t cols = u.integer();
  int64_t ld = u.integer();
  if (int status = loaded->cublasLtMatrixLayoutCreate(layout, type, rows, cols, ld)) return status;
  return set_attributes(u, *layout, loaded->cublasLtMatrixLayoutSetAttribute);
}

int make_preference(Unpacker& u, void** preference) {
  if (int status = loaded->cublasLtMatmulPreferenceCreate(preference)) return status;
  return set_attributes(u, *preference, loaded->cublasLtMatmulPreferenceSetAttribute);
}

// cublasLt.h: cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t data[8];
};

// cublasLt.h: cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

void pack(Packer* p, const HeuristicResult& result) {
  p->array(3);
  p->bytes(&result.algorithm, sizeof result.algorithm);
  p->unsigned_integer(result.workspace);
  p->real(result.waves);
}

bool read(const Bytes& bytes, Algorithm* algorithm) {
  if (bytes.size != sizeof *algorithm) return false;
  memcpy(algorithm, bytes.data, sizeof *algorithm);
  return true;
}

struct ScalarPlaces {
  bool alpha_on_device, beta_on_device;
};

// cublasLt.h: CUBLASLT_MATMUL_DESC_POINTER_MODE and the values of cublasLtPointerMode_t.
ScalarPlaces scalar_places(const List& desc) {
  constexpr int kPointerMode = 2, kHost = 0, kDevice = 1, kDeviceVector = 2;
  int32_t mode = kHost;
  Unpacker u = desc.values();
  u.array();
  u.integer();
  u.integer();
  for (uint32_t n = u.array(); n && u.ok(); --n) {
    u.array();
    int64_t id = u.integer();
    size_t size;
    const char* value = u.bytes(&size);
    if (value && id == kPointerMode && size == sizeof mode) memcpy(&mode, value, size);
  }
  return {mode != kHost, mode == kDevice || mode == kDeviceVector};
}

using Known = std::unordered_map<std::string, void*>;

void destroy_all(Known* known, int (*destroy)(void*)) {
  for (auto& [content, object] : *known) destroy(object);
  known->clear();
}

void keep_few(Known* known, int (*destroy)(void*)) {
  if (known->size() > kMostKnown) destroy_all(known, destroy);
}

const void* pointer(uint64_t address) { return reinterpret_cast<const void*>(address); }
void* mutable_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

void load_libraries(const char* cublas, const char* cublas_lt) {
  if (loaded) return;
  void* lt = open(cublas_lt);
  void* blas = open(cublas);
  auto l = std::make_unique<Libraries>();
  if (!l->calls.load(blas)) throw std::runtime_error(std::string(cublas) + " is too old");
#define MNEMOSYNE_NEED(library, name) need(library, #name, &l->name)
  MNEMOSYNE_NEED(blas, cublasCreate_v2);
  MNEMOSYNE_NEED(blas, cublasDestroy_v2);
  MNEMOSYNE_NEED(blas, cublasSetMathMode);
  MNEMOSYNE_NEED(blas, cublasSetPointerMode_v2);
  MNEMOSYNE_NEED(blas, cublasSetSmCountTarget);
  MNEMOSYNE_NEED(blas, cublasSetStream_v2);
  MNEMOSYNE_NEED(blas, cublasSetWorkspace_v2);
  MNEMOSYNE_NEED(lt, cublasLtCreate);
  MNEMOSYNE_NEED(lt, cublasLtMatmul);
  MNEMOSYNE_NEED(lt, cublasLtMatmulAlgoCheck);
  MNEMOSYNE_NEED(lt, cublasLtMatmulAlgoConfigGetAttribute);
  MNEMOSYNE_NEED(lt, cublasLtMatmulAlgoConfigSetAttribute);
  MNEMOSYNE_NEED(lt, cublasLtMatmulAlgoGetHeuristic);
  MNEMOSYNE_NEED(lt, cublasLtMatmulAlgoInit);
  MNEMOSYNE_NEED(lt, cublasLtMatmulDescCreate);
  MNEMOSYNE_NEED(lt, cublasLtMatmulDescDestroy);
  MNEMOSYNE_NEED(lt, cublasLtMatmulDescSetAttribute);
  MNEMOSYNE_NEED(lt, cublasLtMatmulPreferenceCreate);
  MNEMOSYNE_NEED(lt, cublasLtMatmulPreferenceDestroy);
  MNEMOSYNE_NEED(lt, cublasLtMatmulPreferenceSetAttribute);
  MNEMOSYNE_NEED(lt, cublasLtMatrixLayoutCreate);
  MNEMOSYNE_NEED(lt, cublasLtMatrixLayoutDestroy);
  MNEMOSYNE_NEED(lt, cublasLtMatrixLayoutSetAttribute);
#undef MNEMOSYNE_NEED
  loaded = std::move(l);
}

const Libraries* libraries() { return loaded.get(); }

void BlasHandles::clear() {
  for (auto& [number, handle] : handles_) spare().give(handle.real);
  handles_.clear();
}

void BlasHandles::add(uint64_t number) { handles_[number] = {}; }

bool BlasHandles::remove(uint64_t number) {
  auto found = handles_.find(number);
  if (found == handles_.end()) return false;
  spare().give(found->second.real);
  handles_.erase(found);
  return true;
}

bool BlasHandles::configure(uint64_t number, const BlasSettings& settings) {
  auto found = handles_.find(number);
  if (found == handles_.end()) return false;
  found->second.settings = settings;
  found->second.changed = true;
  return true;
}

const BlasSettings* BlasHandles::settings(uint64_t number) const {
  auto found = handles_.find(number);
  return found == handles_.end() ? nullptr : &found->second.settings;
}

void* BlasHandles::use(uint64_t number, int* status) {
  auto found = handles_.find(number);
  *status = kBlasNotInitialized;
  if (found == handles_.end() || !loaded) return nullptr;
  Handle& h = found->second;
  if (!h.real) h.real = spare().take();
  if (!h.real && (*status = loaded->cublasCreate_v2(&h.real))) return nullptr;
  if (!h.changed) return h.real;
  // The stream first: setting it resets the workspace.
  *status = loaded->cublasSetStream_v2(h.real, h.settings.stream);
  if (!*status && h.settings.workspace_bytes) {
    *status =
        loaded->cublasSetWorkspace_v2(h.real, h.settings.workspace, h.settings.workspace_bytes);
  }
  if (!*status) *status = loaded->cublasSetMathMode(h.real, h.settings.math_mode);
  if (!*status) *status = loaded->cublasSetPointerMode_v2(h.real, h.settings.pointer_mode);
  if (!*status) *status = loaded->cublasSetSmCountTarget(h.real, h.settings.sm_count);
  h.changed = *status != kBlasSuccess;
  return *status ? nullptr : h.real;
}

void LtSession::clear() {
  if (!loaded) return;
  spare_lt().give(handle_);
  handle_ = nullptr;
  destroy_all(&descs_, loaded->cublasLtMatmulDescDestroy);
  destroy_all(&layouts_, loaded->cublasLtMatrixLayoutDestroy);
  destroy_all(&preferences_, loaded->cublasLtMatmulPreferenceDestroy);
}

// Before a call: forgets all of a kind when there are too many, and has a handle.
bool LtSession::ready(int* status) {
  if (handle_) {
    keep_few(&descs_, loaded->cublasLtMatmulDescDestroy);
    keep_few(&layouts_, loaded->cublasLtMatrixLayoutDestroy);
    keep_few(&preferences_, loaded->cublasLtMatmulPreferenceDestroy);
    return true;
  }
  if (loaded) handle_ = spare_lt().take();
  if (handle_) return true;
  *status = loaded ? loaded->cublasLtCreate(&handle_) : kBlasNotInitialized;
  return *status == kBlasSuccess;
}

// The object of this content, made on first sight.
void* LtSession::made(Known* known, const List& content, Make make, Destroy destroy, int* status) {
  if (*status) return nullptr;
  std::string key(content.data, content.size);
  auto found = known->find(key);
  if (found != known->end()) return found->second;
  Unpacker values = content.values();
  void* object = nullptr;
  *status = make(values, &object);
  if (*status) {
    if (object) destroy(object);
    return nullptr;
  }
  return (*known)[key] = object;
}

void* LtSession::desc(const List& content, int* status) {
  return made(&descs_, content, make_desc, loaded->cublasLtMatmulDescDestroy, status);
}

void* LtSession::layout(const List& content, int* status) {
  return made(&layouts_, content, make_layout, loaded->cublasLtMatrixLayoutDestroy, status);
}

void* LtSession::preference(const List& content, int* status) {
  return made(&preferences_, content, make_preference, loaded->cublasLtMatmulPreferenceDestroy,
              status);
}

int LtSession::matmul(const calls::lt_matmul& c, void* stream) {
  int status = kBlasSuccess;
  if (!ready(&status)) return status;
  void* d = desc(c.desc, &status);
  void* layout_a = layout(c.layoutA, &status);
  void* layout_b = layout(c.layoutB, &status);
  void* layout_c = layout(c.layoutC, &status);
  void* layout_d = layout(c.layoutD, &status);
  if (status) return status;
  Algorithm algorithm;
  bool chosen = read(c.algo, &algorithm);
  ScalarPlaces at = scalar_places(c.desc);
  const void* beta = c.beta.size || at.beta_on_device ? c.beta.pointer(at.beta_on_device) : nullptr;
  return loaded->cublasLtMatmul(handle_, d, c.alpha.pointer(at.alpha_on_device), pointer(c.A),
                                layout_a, pointer(c.B), layout_b, beta, pointer(c.C), layout_c,
                                mutable_pointer(c.D), layout_d, chosen ? &algorithm : nullptr,
                                mutable_pointer(c.workspace), c.workspaceBytes, stream);
}

struct LtSession::Operation {
  void *desc, *a, *b, *c, *d;
};

template <typename Call>
LtSession::Operation LtSession::operation(const Call& c, int* status) {
  if (!ready(status)) return {};
  return {desc(c.desc, status), layout(c.layoutA, status), layout(c.layoutB, status),
          layout(c.layoutC, status), layout(c.layoutD, status)};
}

int LtSession::heuristic(const calls::lt_heuristic& c, Packer* results) {
  int status = kBlasSuccess;
  Operation o = operation(c, &status);
  void* wanted = status ? nullptr : preference(c.preference, &status);
  if (status) return status;
  HeuristicResult found[kMostResults] = {};
  int requested = c.requested < 1 ? 1 : c.requested < kMostResults ? c.requested : kMostResults;
  int count = 0;
  status = loaded->cublasLtMatmulAlgoGetHeuristic(handle_, o.desc, o.a, o.b, o.c, o.d, wanted,
                                                  requested, found, &count);
  if (status) return status;
  results->array(count);
  for (int i = 0; i < count; ++i) pack(results, found[i]);
  return kBlasSuccess;
}

int LtSession::check(const calls::lt_algo_check& c, Packer* results) {
  int status = kBlasSuccess;
  Operation o = operation(c, &status);
  if (status) return status;
  Algorithm algorithm;
  HeuristicResult result{};
  if (!read(c.algo, &algorithm)) return kBlasInvalidValue;
  status =
      loaded->cublasLtMatmulAlgoCheck(handle_, o.desc, o.a, o.b, o.c, o.d, &algorithm, &result);
  if (status) return status;
  result.algorithm = algorithm;
  results->array(1);
  pack(results, result);
  return kBlasSuccess;
}

int LtSession::algorithm(const calls::lt_algo_init& c, Packer* made) {
  int status = kBlasSuccess;
  if (!ready(&status)) return status;
  Algorithm algorithm{};
  status = loaded->cublasLtMatmulAlgoInit(handle_, c.computeType, c.scaleType, c.Atype, c.Btype,
                                          c.Ctype, c.Dtype, c.algoId, &algorithm);
  if (!status) made->bytes(&algorithm, sizeof algorithm);
  return status;
}

int LtSession::set(const calls::lt_algo_set& c, Packer* changed) {
  Algorithm algorithm;
  if (!loaded) return kBlasNotInitialized;
  if (!read(c.algo, &algorithm)) return kBlasInvalidValue;
  int status = loaded->cublasLtMatmulAlgoConfigSetAttribute(&algorithm, c.attribute, c.value.data,
                                                            c.value.size);
  if (!status) changed->bytes(&algorithm, sizeof algorithm);
  return status;
}

int LtSession::get(const calls::lt_algo_get& c, Packer* found) {
  Algorithm algorithm;
  char value[kMostAttribute];
  size_t written = 0;
  if (!loaded) return kBlasNotInitialized;
  if (!read(c.algo, &algorithm) || c.size > sizeof value) return kBlasInvalidValue;
  int status = loaded->cublasLtMatmulAlgoConfigGetAttribute(&algorithm, c.attribute, value, c.size,
                                                            &written);
  if (status) return status;
  found->bytes(value, written < c.size ? written : c.size);
  found->unsigned_integer(written);
  return kBlasSuccess;
}

}  // namespace mnemosyne::cuda
