"""How a call fails: with CUDA's own code and one line for people.

Codes are those of driver_types.h (cudaError_t), cublas_api.h (cublasStatus_t) and cudnn_graph.h
(cudnnStatus_t), cufft.h (cufftResult), cusolver_common.h (cusolverStatus_t) and cusparse.h
(cusparseStatus_t).
"""

from __future__ import annotations

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONFIGURATION = 9
INVALID_DEVICE_FUNCTION = 98
INVALID_KERNEL_IMAGE = 200
INVALID_CONTEXT = 201
NO_KERNEL_IMAGE = 209
INVALID_RESOURCE_HANDLE = 400
ILLEGAL_ADDRESS = 700
LAUNCH_OUT_OF_RESOURCES = 701
DEVICE_ASSERT = 710
MISALIGNED_ADDRESS = 716
NOT_SUPPORTED = 801
UNKNOWN = 999

_CUDNN_EXECUTION_FAILED = 5000
_CUDNN_STATUS = {
    INVALID_VALUE: 2000,
    OUT_OF_MEMORY: 4003,
    INVALID_RESOURCE_HANDLE: 1001,
    UNKNOWN: 4000,
    NOT_SUPPORTED: 3000,
}

_BLAS_EXECUTION_FAILED = 13
_BLAS_STATUS = {
    INVALID_VALUE: 7,
    OUT_OF_MEMORY: 3,
    INVALID_RESOURCE_HANDLE: 1,  # "the library was not initialised"
    UNKNOWN: 14,
    NOT_SUPPORTED: 15,
}

#: By cudaError_t: what cuFFT, cuSOLVER and cuSPARSE call it, and what else they say.
_FFT_STATUS = {
    INVALID_VALUE: 4, OUT_OF_MEMORY: 2, INVALID_RESOURCE_HANDLE: 1, UNKNOWN: 5, NOT_SUPPORTED: 16,
}  # fmt: skip
_FFT_EXECUTION_FAILED = 6
_SOLVER_STATUS = {
    INVALID_VALUE: 3, OUT_OF_MEMORY: 2, INVALID_RESOURCE_HANDLE: 1, UNKNOWN: 7, NOT_SUPPORTED: 9,
}  # fmt: skip
_SOLVER_EXECUTION_FAILED = 6
_SPARSE_STATUS = {**_SOLVER_STATUS, NOT_SUPPORTED: 10}
_SPARSE_EXECUTION_FAILED = 6


class CallError(Exception):
    """A call failed as CUDA lets it fail; the session goes on. ``code`` is a cudaError_t."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class LibraryError(CallError):
    """A library's own function failed: ``status`` is what it returned, ``text`` what it said."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(UNKNOWN, text)
        self.status = status


def blas_status(code: int) -> int:
    """The cublasStatus_t that a library call returns for a cudaError_t."""
    return _BLAS_STATUS.get(code, _BLAS_EXECUTION_FAILED)


def cudnn_status(code: int) -> int:
    """The cudnnStatus_t that a library call returns for a cudaError_t."""
    return _CUDNN_STATUS.get(code, _CUDNN_EXECUTION_FAILED)


def fft_status(code: int) -> int:
    """The cufftResult that a library call returns for a cudaError_t."""
    return _FFT_STATUS.get(code, _FFT_EXECUTION_FAILED)


def solver_status(code: int) -> int:
    """The cusolverStatus_t that a library call returns for a cudaError_t."""
    return _SOLVER_STATUS.get(code, _SOLVER_EXECUTION_FAILED)


def sparse_status(code: int) -> int:
    """The cusparseStatus_t that a library call returns for a cudaError_t."""
    return _SPARSE_STATUS.get(code, _SPARSE_EXECUTION_FAILED)
