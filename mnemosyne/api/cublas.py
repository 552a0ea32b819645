"""cuBLAS and cublasLt matrix products, as PyTorch calls them (cublas_api.h, cublasLt.h).

A handle's settings (stream, workspace, modes, multiprocessors) are kept in the client; they travel,
as one ``blas_configure`` message, only when a compute call follows a change.
"""

from mnemosyne.api.cublas_routines import ROUTINES, once
from mnemosyne.api.spec import Call, Field, Mode
from mnemosyne.api.words import BLAS, I32, I64, PTR, RESULT, SCALAR, handwritten

_SIZES = {"S": "4", "D": "8", "C": "8", "Z": "16"}  # bytes of one element


def _mnk() -> tuple[Field, ...]:
    return (I32("transa"), I32("transb"), I32("m"), I32("n"), I32("k"))


def _gemm_strided(t: str) -> Call:
    s = _SIZES[t]
    return once(
        f"cublas{t}gemmStridedBatched", *_mnk(), SCALAR("alpha", s), PTR("A"), I32("lda"),
        I64("strideA"), PTR("B"), I32("ldb"), I64("strideB"), SCALAR("beta", s), PTR("C"),
        I32("ldc"), I64("strideC"), I32("batchCount"),
    )  # fmt: skip


_COMPUTE_SIZE = "compute_scalar_size(computeType, Ctype)"

REGULAR = [
    Call(
        "cublasCreate_v2", "cublas", Mode.ASYNC, (BLAS().new,), "cublasStatus_t", journal=True
    ),
    Call(
        "cublasDestroy_v2", "cublas", Mode.ASYNC, (BLAS().gone,), "cublasStatus_t", journal=True
    ),
    *ROUTINES,
    *[_gemm_strided(t) for t in _SIZES],
    once(
        "cublasSgemmEx", *_mnk(), SCALAR("alpha", "4"), PTR("A"), I32("Atype"), I32("lda"),
        PTR("B"), I32("Btype"), I32("ldb"), SCALAR("beta", "4"), PTR("C"), I32("Ctype"), I32("ldc"),
    ),
    once(
        "cublasGemmEx", *_mnk(), SCALAR("alpha", _COMPUTE_SIZE), PTR("A"), I32("Atype"),
        I32("lda"), PTR("B"), I32("Btype"), I32("ldb"), SCALAR("beta", _COMPUTE_SIZE), PTR("C"),
        I32("Ctype"), I32("ldc"), I32("computeType"), I32("algo"),
    ),
    once(
        "cublasGemmStridedBatchedEx", *_mnk(), SCALAR("alpha", _COMPUTE_SIZE), PTR("A"),
        I32("Atype"), I32("lda"), I64("strideA"), PTR("B"), I32("Btype"), I32("ldb"),
        I64("strideB"), SCALAR("beta", _COMPUTE_SIZE), PTR("C"), I32("Ctype"), I32("ldc"),
        I64("strideC"), I32("batchCount"), I32("computeType"), I32("algo"),
    ),
    once(
        "cublasDotEx", I32("n"), PTR("x"), I32("xType"), I32("incx"), PTR("y"), I32("yType"),
        I32("incy"), RESULT("result", "data_size(resultType)"), I32("resultType"),
        I32("executionType"),
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
        "cublas", Mode.CUSTOM, "copies of rows or of single elements",
        "cublasGetMatrixAsync", "cublasGetVectorAsync", "cublasSetMatrixAsync",
        "cublasSetVectorAsync",
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
    *handwritten(
        "cublasLt", Mode.CUSTOM, "an algorithm is bytes that the server's library reads",
        "cublasLtMatmulAlgoCheck", "cublasLtMatmulAlgoConfigGetAttribute",
        "cublasLtMatmulAlgoConfigSetAttribute", "cublasLtMatmulAlgoInit",
    ),
]  # fmt: skip
