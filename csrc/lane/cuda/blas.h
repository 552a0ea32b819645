// The real cuBLAS and cublasLt, found at run time, and one session's handles and descriptors.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "../../generated/blas_calls.h"

namespace mnemosyne::cuda {

struct Libraries {
  BlasFunctions calls;
  int (*cublasCreate_v2)(void**);
  int (*cublasDestroy_v2)(void*);
  int (*cublasSetMathMode)(void*, int);
  int (*cublasSetPointerMode_v2)(void*, int);
  int (*cublasSetSmCountTarget)(void*, int);
  int (*cublasSetStream_v2)(void*, void*);
  int (*cublasSetWorkspace_v2)(void*, void*, size_t);

  int (*cublasLtCreate)(void**);
  int (*cublasLtMatmul)(void*, void*, const void*, const void*, void*, const void*, void*,
                        const void*, const void*, void*, void*, void*, const void*, void*, size_t,
                        void*);
  int (*cublasLtMatmulAlgoCheck)(void*, void*, void*, void*, void*, void*, const void*, void*);
  int (*cublasLtMatmulAlgoConfigGetAttribute)(const void*, int, void*, size_t, size_t*);
  int (*cublasLtMatmulAlgoConfigSetAttribute)(void*, int, const void*, size_t);
  int (*cublasLtMatmulAlgoGetHeuristic)(void*, void*, void*, void*, void*, void*, void*, int, void*,
                                        int*);
  int (*cublasLtMatmulAlgoInit)(void*, int, int, int, int, int, int, int, void*);
  int (*cublasLtMatmulDescCreate)(void**, int, int);
  int (*cublasLtMatmulDescDestroy)(void*);
  int (*cublasLtMatmulDescSetAttribute)(void*, int, const void*, size_t);
  int (*cublasLtMatmulPreferenceCreate)(void**);
  int (*cublasLtMatmulPreferenceDestroy)(void*);
  int (*cublasLtMatmulPreferenceSetAttribute)(void*, int, const void*, size_t);
  int (*cublasLtMatrixLayoutCreate)(void**, int, uint64_t, uint64_t, int64_t);
  int (*cublasLtMatrixLayoutDestroy)(void*);
  int (*cublasLtMatrixLayoutSetAttribute)(void*, int, const void*, size_t);
};

// Opens both libraries; the paths count the first time. Throws std::runtime_error.
void load_libraries(const char* cublas, const char* cublas_lt);
// Null before load_libraries().
const Libraries* libraries();

// A cublasStatus_t.
constexpr int kBlasSuccess = 0;
constexpr int kBlasNotInitialized = 1;
constexpr int kBlasInvalidValue = 7;
constexpr int kBlasNotSupported = 15;

struct BlasSettings {
  void* stream = nullptr;
  uint64_t stream_number = 0;
  int math_mode = 0;
  int pointer_mode = 0;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
  int sm_count = 0;  // 0: the library's own choice
};

// The handles of one session. The real one is made by the first call that needs it, or taken from
// those that other sessions left: making one takes long, and ending one stalls the device.
class BlasHandles {
 public:
  ~BlasHandles() { clear(); }
  // Gives back everything; the device has done the session's work.
  void clear();
  void add(uint64_t number);
  bool remove(uint64_t number);
  bool configure(uint64_t number, const BlasSettings& settings);
  // The real handle, set up; null: see *status.
  void* use(uint64_t number, int* status);
  const BlasSettings* settings(uint64_t number) const;

 private:
  struct Handle {
    void* real = nullptr;
    bool changed = true;
    BlasSettings settings;
  };
  std::unordered_map<uint64_t, Handle> handles_;
};

// cublasLt for one session: what a client describes by content becomes real descriptors once.
class LtSession {
 public:
  ~LtSession() { clear(); }
  // Gives back everything; the device has done the session's work.
  void clear();
  int matmul(const calls::lt_matmul& c, void* stream);
  // Append the results as the `lt_heuristic` reply lists them.
  int heuristic(const calls::lt_heuristic& c, Packer* results);
  int check(const calls::lt_algo_check& c, Packer* results);
  // Append what the replies of these messages hold.
  int algorithm(const calls::lt_algo_init& c, Packer* made);
  int set(const calls::lt_algo_set& c, Packer* changed);
  int get(const calls::lt_algo_get& c, Packer* found);

 private:
  using Make = int (*)(Unpacker&, void**);
  using Destroy = int (*)(void*);
  void* made(std::unordered_map<std::string, void*>* known, const List& content, Make make,
             Destroy destroy, int* status);
  void* desc(const List& content, int* status);
  void* layout(const List& content, int* status);
  void* preference(const List& content, int* status);
  struct Operation;
  // What an algorithm is chosen for, of the fields of a message.
  template <typename Call>
  Operation operation(const Call& c, int* status);
  bool ready(int* status);

  void* handle_ = nullptr;
  std::unordered_map<std::string, void*> descs_, layouts_, preferences_;
};

}  // namespace mnemosyne::cuda
