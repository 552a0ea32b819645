"""Fake cuFFT, cuSOLVER and cuSPARSE: they write down how they are called, and copy a few bytes.

How this works: each library is built from a few lines of C++, with the names and sonames of the
real one. The fake driver is linked with them, so they are loaded with it, and are found before the
real ones. A line of the file that FAKE_LIBRARY_LOG names is a function and its arguments.
"""

from __future__ import annotations

from pathlib import Path

from fakecuda.build import build_driver, compile_cpp, cuda_headers

_COMMON = """
#include <cuda.h>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
using ll = long long;
using P = void*;
static void note(const char* format, ...) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  FILE* f = fopen(getenv("FAKE_LIBRARY_LOG"), "a");
  va_list args;
  va_start(args, format);
  vfprintf(f, format, args);
  va_end(args);
  fputc('\\n', f);
  fclose(f);
}
static P make(const char* name) {
  static std::atomic<long> made;
  P handle = reinterpret_cast<P>(0x1000 + 16 * ++made);
  note("%s -> %p", name, handle);
  return handle;
}
"""
_FFT = """
static P streams[1 << 18];
extern "C" {
int cufftCreate(int* plan) {
  static std::atomic<int> made;
  note("create %d", *plan = ++made);
  return 0;
}
int cufftDestroy(int plan) { note("destroy %d", plan); return 0; }
int cufftSetAutoAllocation(int plan, int value) { note("allocate %d %d", plan, value); return 0; }
int cufftSetStream(int plan, P s) { streams[plan] = s; note("stream %d", plan); return 0; }
int cufftSetWorkArea(int plan, P area) { note("area %d %p", plan, area); return 0; }
int cufftXtMakePlanMany(int plan, int rank, ll* n, ll* in, ll is, ll id, int it, ll* on, ll os,
                        ll od, int ot, ll batch, size_t* work, int type) {
  *work = 1000 + n[0];
  note("plan %d rank %d n %lld %lld in %lld step %lld %lld type %d out %s step %lld %lld type %d "
       "batch %lld as %d", plan, rank, n[0], n[rank - 1], in[0], is, id, it, on ? "given" : "none",
       os, od, ot, batch, type);
  return 0;
}
int cufftXtExec(int plan, P in, P out, int direction) {
  note("exec %d %d", plan, direction);
  if (direction > 1) return direction;
  auto from = reinterpret_cast<CUdeviceptr>(in), to = reinterpret_cast<CUdeviceptr>(out);
  return cuMemcpyDtoDAsync_v2(to, from, 16, static_cast<CUstream>(streams[plan])) ? 6 : 0;
}
}
"""
_SOLVER = """
#include <map>
static std::map<P, double> tolerances;  // of one client alone
extern "C" {
int cusolverDnCreate(P* h) { *h = make("solver"); return 0; }
int cusolverDnDestroy(P h) { note("destroy solver %p", h); return 0; }
int cusolverDnSetStream(P h, P) { note("stream %p", h); return 0; }
int cusolverDnCreateParams(P* h) { *h = make("params"); return 0; }
int cusolverDnDestroyParams(P h) { note("destroy params %p", h); return 0; }
int cusolverDnCreateGesvdjInfo(P* h) { *h = make("gesvdj"); return 0; }
int cusolverDnDestroyGesvdjInfo(P h) { note("destroy gesvdj %p", h); return 0; }
int cusolverDnXgesvdjSetTolerance(P info, double t) {
  note("tolerance %g", tolerances[info] = t);
  return 0;
}
int cusolverDnSgesvdjBatched(P, int, int, int, P, int, P, P, int, P, int, P, int, P, P info, int) {
  note("svd to %g", tolerances[info]);
  return 0;
}
int cusolverDnXpotrf_bufferSize(P, P, int, ll n, int, P, ll, int, size_t* d, size_t* h) {
  note("sizes of %lld", n);
  *d = 10 * n; *h = 20 * n; return n < 0 ? 3 : 0;
}
int cusolverDnXpotrf(P, P params, int uplo, ll n, int, P a, ll, int, P, size_t d, char* host,
                     size_t h, P info) {
  memset(host, 1, h);
  note("potrf %s uplo %d n %lld A %p room %zu %zu info %p", params ? "as set" : "by default", uplo,
       n, a, d, h, info);
  return 0;
}
int cusolverDnSgesvd(P, signed char u, signed char v, int, int, P, int, P, P, int, P, int, P, int,
                     P, P) {
  note("gesvd %c %c", u, v);
  return 0;
}
int cusolverDnSgesvdaStridedBatched(P, int, int, int, int, P, int, ll, P, ll, P, int, ll, P, int,
                                    ll, P, int, P, double* residuals, int batch) {
  for (int i = 0; i < batch; ++i) residuals[i] = i + 0.5;
  return 0;
}
}
"""
_SPARSE = """
static int mode;
extern "C" {
int cusparseCreate(P* h) { *h = make("sparse"); return 0; }
int cusparseDestroy(P h) { note("destroy sparse %p", h); return 0; }
int cusparseSetStream(P h, P) { note("stream %p", h); return 0; }
int cusparseSetPointerMode(P, int m) { mode = m; note("mode %d", m); return 0; }
int cusparseCreateMatDescr(P* h) { *h = make("matrix"); return 0; }
int cusparseDestroyMatDescr(P h) { note("destroy matrix %p", h); return 0; }
int cusparseScsrgeam2(P, int m, int n, float* alpha, P, int, P, P, P, float* beta, P, int, P, P, P,
                      P, P, P, P, P) {
  if (mode) note("sum of %d %d in device memory", m, n);
  else note("sum of %d %d by %g %g", m, n, *alpha, *beta);
  return 0;
}
int cusparseXcsrgeam2Nnz(P, int, int, P, int, P, P, P, int, P, P, P, P, int* nnz, P) {
  if (mode) note("count into device memory %p", nnz);
  else *nnz = 77;
  return 0;
}
int cusparseCreateCsr(P* h, ll, ll, ll, P, P, P, int, int, int, int) { *h = make("csr"); return 0; }
int cusparseDestroySpMat(P) { return 0; }
int cusparseSpGEMM_createDescr(P* h) { *h = make("product"); return 0; }
int cusparseSpGEMM_destroyDescr(P) { return 0; }
int cusparseSpGEMM_workEstimation(P, int, int, float* alpha, P, P, float* beta, P, int, int, P,
                                  size_t* size, P buffer) {
  if (mode) note("estimate in device memory into %p", buffer);
  else note("estimate by %g %g of %zu", *alpha, *beta, *size);
  ++*size;
  return buffer ? 7 : 0;
}
int cusparseXbsrsv2_zeroPivot(P, P, int*) { return 9; }
}
"""
_LIBRARIES = {
    "libcufft.so.12": _FFT, "libcusolver.so.12": _SOLVER, "libcusparse.so.12": _SPARSE,
}  # fmt: skip


def build_driver_with_libraries(folder: Path) -> Path:
    """Build the fake driver and the libraries in `folder`, for LD_LIBRARY_PATH."""
    paths = [str(build_library(folder, soname)) for soname in _LIBRARIES]
    return build_driver(folder, "-Wl,--no-as-needed", *paths, "-Wl,--as-needed")


def build_library(folder: Path, soname: str, *options: str | Path) -> Path:
    source = folder / f"{soname}.cpp"
    source.write_text(_COMMON + _LIBRARIES[soname])
    flags = ["-std=c++17", "-shared", "-fPIC", f"-I{cuda_headers()}", f"-Wl,-soname,{soname}"]
    compile_cpp(*flags, source, *options, "-o", folder / soname)
    return folder / soname
