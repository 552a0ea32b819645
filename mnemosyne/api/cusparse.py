"""cuSPARSE as PyTorch calls it (cusparse.h); see rows.py for how to read it.

A handle's stream and pointer mode are kept in the client and go with the calls that use them.
"""

from mnemosyne.api.rows import KEEPS, LOSES, Library, variants
from mnemosyne.api.spec import Mode
from mnemosyne.api.words import handwritten

_LIBRARY = Library(
    "cusparse", "cusparseStatus_t",
    {"h": "cusparseHandle_t", "sp": "cusparseSpMatDescr_t", "dn": "cusparseDnMatDescr_t",
     "vec": "cusparseDnVecDescr_t", "mat": "cusparseMatDescr_t", "bsrsv2": "bsrsv2Info_t",
     "bsrsm2": "bsrsm2Info_t", "spgemm": "cusparseSpGEMMDescr_t", "spsm": "cusparseSpSMDescr_t",
     "spsv": "cusparseSpSVDescr_t"},
)  # fmt: skip

_ALL = "S D C Z"

_SETTINGS = (
    *(
        row
        for create, destroy, kind in (
            ("Create", "Destroy", "h"),
            ("CreateMatDescr", "DestroyMatDescr", "mat"),
            ("CreateBsrsv2Info", "DestroyBsrsv2Info", "bsrsv2"),
            ("CreateBsrsm2Info", "DestroyBsrsm2Info", "bsrsm2"),
            ("SpGEMM_createDescr", "SpGEMM_destroyDescr", "spgemm"),
            ("SpSM_createDescr", "SpSM_destroyDescr", "spsm"),
            ("SpSV_createDescr", "SpSV_destroyDescr", "spsv"),
        )
        for row in ((f"cusparse{create}", "", f"+{kind}"), (f"cusparse{destroy}", "", f"-{kind}"))
    ),
    (
        "cusparseCreateCoo", "",
        "+sp rows.l cols.l nnz.l *rowInd *colInd *values idxType idxBase valueType",
    ),
    (
        "cusparseCreateCsr", "",
        "+sp rows.l cols.l nnz.l *rowOffsets *colInd *values offsetsType idxType idxBase valueType",
    ),
    ("cusparseCreateDnMat", "", "+dn rows.l cols.l ld.l *values valueType order"),
    ("cusparseCreateDnVec", "", "+vec size.l *values valueType"),
    ("cusparseDestroyDnMat", "", "-dn"),
    ("cusparseDestroyDnVec", "", "-vec"),
    ("cusparseDestroySpMat", "", "-sp"),
    ("cusparseCsrSetPointers", "", "@sp *rowOffsets *colInd *values", KEEPS),
    ("cusparseCsrSetStridedBatch", "", "@sp batchCount offsetsStride.l valuesStride.l", KEEPS),
    ("cusparseDnMatSetStridedBatch", "", "@dn batchCount stride.l", KEEPS),
    ("cusparseSpMatSetAttribute", "", "@sp attribute #data:dataSize dataSize.z", KEEPS),
    ("cusparseSetMatDiagType", "", "@mat diagType", KEEPS),
    ("cusparseSetMatFillMode", "", "@mat fillMode", KEEPS),
    ("cusparseSetMatIndexBase", "", "@mat base", KEEPS),
    ("cusparseSetMatType", "", "@mat type", KEEPS),
)  # fmt: skip

_SDDMM = "@h opA opB $alpha.x @A:dn @B:dn $beta.x @C:sp computeType alg"
_SPGEMM = "@h opA opB $alpha.x @A:sp @B:sp $beta.x @C:sp computeType alg @descr:spgemm"
_SPMM = "@h opA opB $alpha.x @A:sp @B:dn $beta.x @C:dn computeType alg"
_SPMV = "@h opA $alpha.x @A:sp @X:vec $beta.x @Y:vec computeType alg"
_SPSM = "@h opA opB $alpha.x @A:sp @B:dn @C:dn computeType alg @descr:spsm"
_SPSV = "@h opA $alpha.x @A:sp @X:vec @Y:vec computeType alg @descr:spsv"

#: Of matrices that descriptors describe, in any format and type.
_GENERIC = (
    ("cusparseSpMatGetSize", "", "@sp >rows.l >cols.l >nnz.l"),
    ("cusparseSDDMM", "", f"{_SDDMM} *buffer"),
    ("cusparseSDDMM_bufferSize", "", f"{_SDDMM} >bufferSize.z"),
    ("cusparseSDDMM_preprocess", "", f"{_SDDMM} *buffer"),
    ("cusparseSpGEMM_workEstimation", "", f"{_SPGEMM} <bufferSize.z *buffer", LOSES),
    ("cusparseSpGEMM_compute", "", f"{_SPGEMM} <bufferSize.z *buffer", LOSES),
    ("cusparseSpGEMM_copy", "", _SPGEMM, LOSES),
    ("cusparseSpMM", "", f"{_SPMM} *buffer"),
    ("cusparseSpMM_bufferSize", "", f"{_SPMM} >bufferSize.z"),
    ("cusparseSpMV", "", f"{_SPMV} *buffer"),
    ("cusparseSpMV_bufferSize", "", f"{_SPMV} >bufferSize.z"),
    ("cusparseSpSM_analysis", "", f"{_SPSM} *buffer", LOSES),
    ("cusparseSpSM_bufferSize", "", f"{_SPSM} >bufferSize.z", LOSES),
    ("cusparseSpSM_solve", "", _SPSM),
    ("cusparseSpSV_analysis", "", f"{_SPSV} *buffer", LOSES),
    ("cusparseSpSV_bufferSize", "", f"{_SPSV} >bufferSize.z", LOSES),
    ("cusparseSpSV_solve", "", _SPSV),
)

#: Of 32-bit indices alone.
_INDICES = (
    ("cusparseCreateIdentityPermutation", "", "@h n *p"),
    ("cusparseXcoo2csr", "", "@h *rowInd nnz m *rowPtr idxBase"),
    ("cusparseXcoosort_bufferSizeExt", "", "@h m n nnz *rows *cols >bytes.z"),
    ("cusparseXcoosortByRow", "", "@h m n nnz *rows *cols *P *buffer"),
    ("cusparseXcsrsort_bufferSizeExt", "", "@h m n nnz *rowPtr *colInd >bytes.z"),
    ("cusparseXcsrsort", "", "@h m n nnz @mat *rowPtr *colInd *P *buffer"),
    (
        "cusparseXcsrgeam2Nnz", "",
        "@h m n @descrA:mat nnzA *rowPtrA *colIndA @descrB:mat nnzB *rowPtrB *colIndB "
        "@descrC:mat *rowPtrC !nnz *buffer",
    ),
    ("cusparseXbsrsm2_zeroPivot", "", "@h @bsrsm2 !position"),
    ("cusparseXbsrsv2_zeroPivot", "", "@h @bsrsv2 !position"),
)  # fmt: skip

_BSR = "*values *rowPtr *colInd blockDim"
_BSRSV2 = f"@h dir transA mb nnzb @mat {_BSR} @info:bsrsv2"
_BSRSM2 = f"@h dir transA transXY mb n nnzb @mat {_BSR} @info:bsrsm2"
_GEAM2 = (
    "@h m n $alpha @descrA:mat nnzA *valuesA *rowPtrA *colIndA $beta @descrB:mat nnzB *valuesB "
    "*rowPtrB *colIndB @descrC:mat *valuesC *rowPtrC *colIndC"
)

#: Of matrices in blocks, and sums, whose names say the type.
_TYPED = (
    (
        "cusparse{}bsrmm", _ALL,
        f"@h dir transA transB mb n kb nnzb $alpha @mat {_BSR} *B ldb $beta *C ldc",
    ),
    ("cusparse{}bsrmv", _ALL, f"@h dir transA mb nb nnzb $alpha @mat {_BSR} *x $beta *y"),
    ("cusparse{}bsrsv2_bufferSize", _ALL, f"{_BSRSV2} >bytes"),
    ("cusparse{}bsrsv2_analysis", _ALL, f"{_BSRSV2} policy *buffer", LOSES),
    (
        "cusparse{}bsrsv2_solve", _ALL,
        f"@h dir transA mb nnzb $alpha @mat {_BSR} @info:bsrsv2 *f *x policy *buffer",
    ),
    ("cusparse{}bsrsm2_bufferSize", _ALL, f"{_BSRSM2} >bytes"),
    ("cusparse{}bsrsm2_analysis", _ALL, f"{_BSRSM2} policy *buffer", LOSES),
    (
        "cusparse{}bsrsm2_solve", _ALL,
        f"@h dir transA transXY mb n nnzb $alpha @mat {_BSR} @info:bsrsm2 *B ldb *X ldx policy "
        "*buffer",
    ),
    ("cusparse{}csrgeam2", _ALL, f"{_GEAM2} *buffer"),
    ("cusparse{}csrgeam2_bufferSizeExt", _ALL, f"{_GEAM2} >bytes.z"),
)  # fmt: skip

REGULAR = _LIBRARY.calls(*_SETTINGS, *_GENERIC, *_INDICES, *_TYPED)

#: By the name of a call: its routine, and the type of its matrices.
VARIANTS = variants(*_TYPED)

BY_HAND = handwritten(
    "cusparse", Mode.LOCAL, "goes with the calls that use the handle",
    "cusparseSetPointerMode", "cusparseSetStream",
)  # fmt: skip
