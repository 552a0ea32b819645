"""The dense part of cuSOLVER that PyTorch calls (cusolverDn.h); see rows.py for how to read it.

A handle's stream is kept in the client and goes with the calls that use it.
"""

from mnemosyne.api.rows import KEEPS, Library, Row, variants
from mnemosyne.api.spec import Mode
from mnemosyne.api.words import handwritten

_LIBRARY = Library(
    "cusolver", "cusolverStatus_t",
    {"h": "cusolverDnHandle_t", "params": "cusolverDnParams_t", "gesvdj": "gesvdjInfo_t",
     "syevj": "syevjInfo_t"},
    described=("params", "gesvdj", "syevj"),
)  # fmt: skip

_ALL, _REAL, _COMPLEX = "S D C Z", "S D", "C Z"

#: Routines whose names say the type of the matrix: S float, D double, C and Z complex.
_TYPED = (
    ("cusolverDn{}geqrf", _ALL, "@h m n *A lda *tau *work lwork *info"),
    ("cusolverDn{}geqrf_bufferSize", _ALL, "@h m n *A lda =lwork"),
    ("cusolverDn{}getrf", _ALL, "@h m n *A lda *work *ipiv *info"),
    ("cusolverDn{}getrf_bufferSize", _ALL, "@h m n *A lda =lwork"),
    ("cusolverDn{}getrs", _ALL, "@h trans n nrhs *A lda *ipiv *B ldb *info"),
    ("cusolverDn{}potrf", _ALL, "@h uplo n *A lda *work lwork *info"),
    ("cusolverDn{}potrf_bufferSize", _ALL, "@h uplo n *A lda =lwork"),
    ("cusolverDn{}potrfBatched", _ALL, "@h uplo n *Aarray lda *info batchSize"),
    ("cusolverDn{}potrs", _ALL, "@h uplo n nrhs *A lda *B ldb *info"),
    ("cusolverDn{}potrsBatched", _ALL, "@h uplo n nrhs *Aarray lda *Barray ldb *info batchSize"),
    ("cusolverDn{}sytrf", _ALL, "@h uplo n *A lda *ipiv *work lwork *info"),
    ("cusolverDn{}sytrf_bufferSize", _ALL, "@h n *A lda =lwork"),
    *(
        row
        for types, gqr, mqr in ((_REAL, "orgqr", "ormqr"), (_COMPLEX, "ungqr", "unmqr"))
        for row in (
            (f"cusolverDn{{}}{gqr}", types, "@h m n k *A lda *tau *work lwork *info"),
            (f"cusolverDn{{}}{gqr}_bufferSize", types, "@h m n k *A lda *tau =lwork"),
            (
                f"cusolverDn{{}}{mqr}", types,
                "@h side trans m n k *A lda *tau *C ldc *work lwork *info",
            ),
            (
                f"cusolverDn{{}}{mqr}_bufferSize", types,
                "@h side trans m n k *A lda *tau *C ldc =lwork",
            ),
        )
    ),
    *(
        row
        for types, evd, evj in ((_REAL, "syevd", "syevj"), (_COMPLEX, "heevd", "heevj"))
        for row in (
            (f"cusolverDn{{}}{evd}", types, "@h jobz uplo n *A lda *W *work lwork *info"),
            (f"cusolverDn{{}}{evd}_bufferSize", types, "@h jobz uplo n *A lda *W =lwork"),
            (f"cusolverDn{{}}{evj}", types, "@h jobz uplo n *A lda *W *work lwork *info @syevj"),
            (f"cusolverDn{{}}{evj}_bufferSize", types, "@h jobz uplo n *A lda *W =lwork @syevj"),
            (
                f"cusolverDn{{}}{evj}Batched", types,
                "@h jobz uplo n *A lda *W *work lwork *info @syevj batchSize",
            ),
            (
                f"cusolverDn{{}}{evj}Batched_bufferSize", types,
                "@h jobz uplo n *A lda *W =lwork @syevj batchSize",
            ),
        )
    ),
    (
        "cusolverDn{}gesvd", _ALL,
        "@h jobu.c jobvt.c m n *A lda *S *U ldu *VT ldvt *work lwork *rwork *info",
    ),
    ("cusolverDn{}gesvd_bufferSize", _ALL, "@h m n =lwork"),
    (
        "cusolverDn{}gesvdj", _ALL,
        "@h jobz econ m n *A lda *S *U ldu *V ldv *work lwork *info @gesvdj",
    ),
    (
        "cusolverDn{}gesvdj_bufferSize", _ALL,
        "@h jobz econ m n *A lda *S *U ldu *V ldv =lwork @gesvdj",
    ),
    (
        "cusolverDn{}gesvdjBatched", _ALL,
        "@h jobz m n *A lda *S *U ldu *V ldv *work lwork *info @gesvdj batchSize",
    ),
    (
        "cusolverDn{}gesvdjBatched_bufferSize", _ALL,
        "@h jobz m n *A lda *S *U ldu *V ldv =lwork @gesvdj batchSize",
    ),
    (
        "cusolverDn{}gesvdaStridedBatched", _ALL,
        "@h jobz rank m n *A lda strideA.l *S strideS.l *U ldu strideU.l *V ldv strideV.l "
        "*work lwork *info %residuals:8*batchSize batchSize",
    ),
    (
        "cusolverDn{}gesvdaStridedBatched_bufferSize", _ALL,
        "@h jobz rank m n *A lda strideA.l *S strideS.l *U ldu strideU.l *V ldv strideV.l "
        "=lwork batchSize",
    ),
)  # fmt: skip

#: What the routines of any type need to work, and how much of it.
_ROOM = "*work workBytes.z ~hostWork:hostWorkBytes hostWorkBytes.z"
_SIZES = "=workBytes.z =hostWorkBytes.z"


def _with_room(name: str, words: str, rest: str = "") -> list[Row]:
    return [
        (name, "", f"{words} {_ROOM} *info {rest}"),
        (f"{name}_bufferSize", "", f"{words} {_SIZES} {rest}"),
    ]


#: Routines that are told the types, as cudaDataType.
_ANY_TYPE = (
    *_with_room(
        "cusolverDnXgeev",
        "@h ?params jobvl jobvr n.l typeA *A lda.l typeW *W typeVL *VL ldvl.l typeVR *VR ldvr.l "
        "computeType",
    ),
    *_with_room("cusolverDnXgeqrf", "@h ?params m.l n.l typeA *A lda.l typeTau *tau computeType"),
    *_with_room("cusolverDnXpotrf", "@h ?params uplo n.l typeA *A lda.l computeType"),
    ("cusolverDnXpotrs", "", "@h ?params uplo n.l nrhs.l typeA *A lda.l typeB *B ldb.l *info"),
    *_with_room(
        "cusolverDnXsyevBatched", "@h ?params jobz uplo n.l typeA *A lda.l typeW *W computeType",
        rest="batchSize.l",
    ),
    *_with_room(
        "cusolverDnXsyevd", "@h ?params jobz uplo n.l typeA *A lda.l typeW *W computeType"
    ),
    *_with_room("cusolverDnXsytrs", "@h uplo n.l nrhs.l typeA *A lda.l *ipiv typeB *B ldb.l"),
)  # fmt: skip

_SETTINGS = (
    ("cusolverDnCreate", "", "+h"),
    ("cusolverDnDestroy", "", "-h"),
    ("cusolverDnCreateParams", "", "+params"),
    ("cusolverDnDestroyParams", "", "-params"),
    ("cusolverDnCreateGesvdjInfo", "", "+gesvdj"),
    ("cusolverDnDestroyGesvdjInfo", "", "-gesvdj"),
    ("cusolverDnXgesvdjSetMaxSweeps", "", "@gesvdj max_sweeps", KEEPS),
    ("cusolverDnXgesvdjSetSortEig", "", "@gesvdj sort_svd", KEEPS),
    ("cusolverDnXgesvdjSetTolerance", "", "@gesvdj tolerance.d", KEEPS),
    ("cusolverDnCreateSyevjInfo", "", "+syevj"),
    ("cusolverDnDestroySyevjInfo", "", "-syevj"),
    ("cusolverDnXsyevjSetMaxSweeps", "", "@syevj max_sweeps", KEEPS),
    ("cusolverDnXsyevjSetSortEig", "", "@syevj sort_eig", KEEPS),
    ("cusolverDnXsyevjSetTolerance", "", "@syevj tolerance.d", KEEPS),
)

REGULAR = _LIBRARY.calls(*_SETTINGS, *_TYPED, *_ANY_TYPE)

#: By the name of a call: its routine, and the type of its matrices.
VARIANTS = variants(*_TYPED)

BY_HAND = handwritten(
    "cusolver", Mode.LOCAL, "a handle's stream goes with the calls that use it",
    "cusolverDnSetStream",
)  # fmt: skip
