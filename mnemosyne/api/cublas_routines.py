"""The routines of cuBLAS that are all alike, as one table (cublas_api.h).

How this works: a row is a routine's name without its type, the types it exists for, and its
parameters after the handle. A word stands for a field by its name: what is a size, step or choice
is an int, a matrix, vector or array a device pointer. With a sign in front it is a scalar in host
or device memory, as the handle's pointer mode says: ``$`` one that is read, ``&`` one that is
changed, ``>`` one that is the result. It is of the routine's type, unless ``.r`` (the real type of
the same precision), ``.i`` (an index) or ``.5`` (five elements) follows. ``!`` is what the library
itself says of the arguments, in host memory.
"""

from __future__ import annotations

from mnemosyne.api.spec import Call, Field, Kind, Mode
from mnemosyne.api.words import BLAS, I32, PTR, RESULT, SCALAR

_INTEGERS = (
    "m", "n", "k", "nrhs", "side", "uplo", "trans", "transa", "transb", "diag", "incx", "incy",
    "lda", "ldb", "ldc", "batchCount", "batchSize",
)  # fmt: skip
_POINTERS = (
    "A", "B", "C", "P", "x", "y", "info", "Aarray", "Barray", "Carray", "TauArray", "devIpiv",
    "devInfoArray",
)  # fmt: skip

_BYTES = {"S": 4, "D": 8, "C": 8, "Z": 16}
#: Types as they stand in a routine's name: of its vectors and matrices.
_ELEMENT = {
    "S": "S", "D": "D", "C": "C", "Z": "Z", "Sc": "C", "Dz": "Z", "Cs": "C", "Zd": "Z",
    "Is": "S", "Id": "D", "Ic": "C", "Iz": "Z",
}  # fmt: skip
_REAL = {"S": 4, "C": 4, "D": 8, "Z": 8}

_ALL, _REALS, _COMPLEX = "S D C Z", "S D", "C Z"
_TRIANGLE = "uplo trans diag"

_ROUTINES = (
    # Vectors
    ("amax_v2", "Is Id Ic Iz", "n x incx >result.i"),
    ("amin_v2", "Is Id Ic Iz", "n x incx >result.i"),
    ("asum_v2", "S D Sc Dz", "n x incx >result.r"),
    ("axpy_v2", _ALL, "n $alpha x incx y incy"),
    ("copy_v2", _ALL, "n x incx y incy"),
    ("dot_v2", _REALS, "n x incx y incy >result"),
    ("dotc_v2", _COMPLEX, "n x incx y incy >result"),
    ("dotu_v2", _COMPLEX, "n x incx y incy >result"),
    ("nrm2_v2", "S D Sc Dz", "n x incx >result.r"),
    ("rot_v2", "S D C Z", "n x incx y incy $c.r $s"),
    ("rot_v2", "Cs Zd", "n x incx y incy $c.r $s.r"),
    ("rotg_v2", _ALL, "&a &b &c.r &s"),
    ("rotm_v2", _REALS, "n x incx y incy $param.5"),
    ("rotmg_v2", _REALS, "&d1 &d2 &x1 $y1 &param.5"),
    ("scal_v2", _ALL, "n $alpha x incx"),
    ("scal_v2", "Cs Zd", "n $alpha.r x incx"),
    ("swap_v2", _ALL, "n x incx y incy"),
    # Matrix and vector
    ("gemv_v2", _ALL, "trans m n $alpha A lda x incx $beta y incy"),
    ("ger_v2", _REALS, "m n $alpha x incx y incy A lda"),
    ("gerc_v2", _COMPLEX, "m n $alpha x incx y incy A lda"),
    ("geru_v2", _COMPLEX, "m n $alpha x incx y incy A lda"),
    ("hemv_v2", _COMPLEX, "uplo n $alpha A lda x incx $beta y incy"),
    ("her_v2", _COMPLEX, "uplo n $alpha.r x incx A lda"),
    ("her2_v2", _COMPLEX, "uplo n $alpha x incx y incy A lda"),
    ("symv_v2", _ALL, "uplo n $alpha A lda x incx $beta y incy"),
    ("syr_v2", _ALL, "uplo n $alpha x incx A lda"),
    ("syr2_v2", _ALL, "uplo n $alpha x incx y incy A lda"),
    ("trmv_v2", _ALL, f"{_TRIANGLE} n A lda x incx"),
    ("trsv_v2", _ALL, f"{_TRIANGLE} n A lda x incx"),
    # Matrices
    ("gemm_v2", _ALL, "transa transb m n k $alpha A lda B ldb $beta C ldc"),
    ("hemm_v2", _COMPLEX, "side uplo m n $alpha A lda B ldb $beta C ldc"),
    ("herk_v2", _COMPLEX, "uplo trans n k $alpha.r A lda $beta.r C ldc"),
    ("her2k_v2", _COMPLEX, "uplo trans n k $alpha A lda B ldb $beta.r C ldc"),
    ("symm_v2", _ALL, "side uplo m n $alpha A lda B ldb $beta C ldc"),
    ("syrk_v2", _ALL, "uplo trans n k $alpha A lda $beta C ldc"),
    ("syr2k_v2", _ALL, "uplo trans n k $alpha A lda B ldb $beta C ldc"),
    ("trmm_v2", _ALL, f"side {_TRIANGLE} m n $alpha A lda B ldb C ldc"),
    ("trsm_v2", _ALL, f"side {_TRIANGLE} m n $alpha A lda B ldb"),
    # Batches: arrays of pointers in device memory
    (
        "gemmBatched", _ALL,
        "transa transb m n k $alpha Aarray lda Barray ldb $beta Carray ldc batchCount",
    ),
    ("trsmBatched", _ALL, f"side {_TRIANGLE} m n $alpha Aarray lda Barray ldb batchCount"),
    ("getrfBatched", _ALL, "n Aarray lda P info batchSize"),
    ("getrsBatched", _ALL, "trans n nrhs Aarray lda devIpiv Barray ldb !info batchSize"),
    ("geqrfBatched", _ALL, "m n Aarray lda TauArray !info batchSize"),
    ("gelsBatched", _ALL, "trans m n nrhs Aarray lda Carray ldc !info devInfoArray batchSize"),
)  # fmt: skip


def once(name: str, *params: Field) -> Call:
    return Call(name, "cublas", Mode.ONCE, (BLAS(), *params), "cublasStatus_t", lane=True)


def _size(element: str, suffix: str) -> str:
    size = {"": _BYTES[element], "r": _REAL[element], "i": 4, "5": 5 * _BYTES[element]}[suffix]
    return str(size)


def _field(word: str, element: str) -> Field:
    if word in _INTEGERS:
        return I32(word)
    if word in _POINTERS:
        return PTR(word)
    sign, (name, _, suffix) = word[0], word[1:].partition(".")
    if sign == "!":
        return Field(name, Kind.INT, "int").out
    size = _size(element, suffix)
    if sign == ">":
        return RESULT(name, size)
    return SCALAR(name, size).inout if sign == "&" else SCALAR(name, size)


ROUTINES = [
    once(f"cublas{letters}{name}", *(_field(word, _ELEMENT[letters]) for word in words.split()))
    for name, types, words in _ROUTINES
    for letters in types.split()
]

#: By the name of a call: its routine, and the type of its vectors and matrices.
VARIANTS = {
    f"cublas{letters}{name}": (name, letters, _ELEMENT[letters])
    for name, types, _ in _ROUTINES
    for letters in types.split()
}
