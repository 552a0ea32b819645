"""cuBLAS and cublasLt matrix products, as PyTorch calls them (cublas_api.h, cublasLt.h).

A handle's settings (stream, workspace, modes, multiprocessors) are kept in the client; they travel,
as one ``blas_configure`` message, only when a compute call follows a change.
"""

from mnemosyne.api.spec import Call, Field, Mode
from mnemosyne.api.words import BLAS, I32, I64, PTR, SCALAR, handwritten

_SIZES = {"S": "4", "D": "8", "C": "8", "Z": "16"}  # bytes of one element


def _once(name: str, *params: Field) -> Call:
    return Call(name, "cublas", Mode.ONCE, (BLAS(), *params), "cublasStatus_t", lane=True)


def _mnk() -> tuple[Field, ...]:
    return (I32("transa"), I32("transb"), I32("m"), I32("n"), I32("k"))


def _gemm(t: str) -> Call:
    s = _SIZES[t]
    return _once(
        f"cublas{t}gemm_v2", *_mnk(), SCALAR("alpha", s), PTR("A"), I32("lda"), PTR("B"),
        I32("ldb"), SCALAR("beta", s), PTR("C"), I32("ldc"),
    )  # fmt: skip


def _gemm_strided(t: str) -> Call:
    s = _SIZES[t]
    return _once(
        f"cublas{t}gemmStridedBatched", *_mnk(), SCALAR("alpha", s), PTR("A"), I32("lda"),
        I64("strideA"), PTR("B"), I32("ldb"), I64("strideB"), SCALAR("beta", s), PTR("C"),
        I32("ldc"), I64("strideC"), I32("batchCount"),
    )  # fmt: skip


def _gemv(t: str) -> Call:
    s = _SIZES[t]
    return _once(
        f"cublas{t}gemv_v2", I32("trans"), I32("m"), I32("n"), SCALAR("alpha", s), PTR("A"),
        I32("lda"), PTR("x"), I32("incx"), SCALAR("beta", s), PTR("y"), I32("incy"),
    )  # fmt: skip


_COMPUTE_SIZE = "compute_scalar_size(computeType)"

REGULAR = [
    Call(
        "cublasCreate_v2", "cublas", Mode.ASYNC, (BLAS().new,), "cublasStatus_t", journal=True
    ),
    Call(
        "cublasDestroy_v2", "cublas", Mode.ASYNC, (BLAS().gone,), "cublasStatus_t", journal=True
    ),
    *[_gemm(t) for t in _SIZES],
    *[_gemm_strided(t) for t in _SIZES],
    *[_gemv(t) for t in _SIZES],
    _once(
        "cublasSgemmEx", *_mnk(), SCALAR("alpha", "4"), PTR("A"), I32("Atype"), I32("lda"),
        PTR("B"), I32("Btype"), I32("ldb"), SCALAR("beta", "4"), PTR("C"), I32("Ctype"), I32("ldc"),
    ),
    _once(
        "cublasGemmEx", *_mnk(), SCALAR("alpha", _COMPUTE_SIZE), PTR("A"), I32("Atype"),
        I32("lda"), PTR("B"), I32("Btype"), I32("ldb"), SCALAR("beta", _COMPUTE_SIZE), PTR("C"),
        I32("Ctype"), I32("ldc"), I32("computeType"), I32("algo"),
    ),
    _once(
        "cublasGemmStridedBatchedEx", *_mnk(), SCALAR("alpha", _COMPUTE_SIZE), PTR("A"),
        I32("Atype"), I32("lda"), I64("strideA"), PTR("B"), I32("Btype"), I32("ldb"),
        I64("strideB"), SCALAR("beta", _COMPUTE_SIZE), PTR("C"), I32("Ctype"), I32("ldc"),
        I64("strideC"), I32("batchCount"), I32("computeType"), I32("algo"),
    ),
]  # fmt: skip

BY_HAND = [
    *handwritten(
        "cublas", Mode.CUSTOM, "settings stay in the client until a compute call needs them",
        "cublasGetMathMode", "cublasGetPointerMode_v2", "cublasGetStream_v2", "cublasSetMathMode",
        "cublasSetPointerMode_v2", "cublasSetSmCountTarget", "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
    ),
    *handwritten(
        "cublas", Mode.CUSTOM, "the result goes to host or device memory, as the pointer mode says",
        "cublasDdot_v2", "cublasSdot_v2",
    ),
    *handwritten(
        "cublasLt", Mode.LOCAL, "descriptors are recorded in the client and sent by content",
        "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", "cublasLtMatmulDescSetAttribute",
        "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy", "cublasLtMatrixLayoutSetAttribute",
    ),
    *handwritten(
        "cublasLt", Mode.CUSTOM, "sends descriptors by content; heuristics are cached by content",
        "cublasLtCreate", "cublasLtDestroy", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic",
    ),
]  # fmt: skip
