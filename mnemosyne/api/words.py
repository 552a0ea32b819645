"""Short constructors for fields, so that a call is one line of the specification."""

from mnemosyne.api.spec import Call, Field, Kind, Mode


def I32(name: str) -> Field:
    return Field(name, Kind.INT, "int")


def U32(name: str) -> Field:
    return Field(name, Kind.INT, "unsigned int")


def I64(name: str) -> Field:
    return Field(name, Kind.INT, "long long")


def SIZE(name: str) -> Field:
    return Field(name, Kind.INT, "size_t")


def F32(name: str) -> Field:
    return Field(name, Kind.REAL, "float")


def F64(name: str) -> Field:
    return Field(name, Kind.REAL, "double")


def PTR(name: str) -> Field:
    return Field(name, Kind.PTR, "void*")


def STREAM(name: str = "stream") -> Field:
    return Field(name, Kind.STREAM, "cudaStream_t")


def EVENT(name: str = "event") -> Field:
    return Field(name, Kind.EVENT, "cudaEvent_t")


def BLAS(name: str = "handle") -> Field:
    return Field(name, Kind.BLAS, "cublasHandle_t")


def CUDNN(name: str = "handle") -> Field:
    return Field(name, Kind.CUDNN, "cudnnHandle_t")


def HANDLE(name: str, of: str, ctype: str = "void*") -> Field:
    return Field(name, Kind.HANDLE, ctype, of=of)


def SCRATCH(name: str, size: str) -> Field:
    """Host memory that only the library uses."""
    return Field(name, Kind.SCRATCH, "void*", size=size)


def FUNCTION(name: str = "function") -> Field:
    return Field(name, Kind.FUNCTION, "uint64_t")


def SCALAR(name: str, size: str) -> Field:
    """A scalar in host or device memory, as the handle's pointer mode says."""
    return Field(name, Kind.SCALAR, "void*", size=size)


def RESULT(name: str, size: str) -> Field:
    """Where a scalar goes: host or device memory, as the handle's pointer mode says."""
    return Field(name, Kind.RESULT, "void*", size=size)


def BYTES(name: str, size: str = "") -> Field:
    return Field(name, Kind.BYTES, "void*", size=size)


def TEXT(name: str) -> Field:
    return Field(name, Kind.TEXT, "char*")


def LIST(name: str) -> Field:
    return Field(name, Kind.LIST, "")


def handwritten(library: str, mode: Mode, reason: str, *names: str) -> list[Call]:
    """Calls whose stubs are written by hand (or refuse), for one common reason."""
    return [Call(name, library, mode, reason=reason) for name in names]


def without_setting(setting: str) -> str:
    """Why calls are refused that PyTorch makes only with this setting of its allocator."""
    return (
        f"memory comes from the session's arena; remove {setting} from PYTORCH_CUDA_ALLOC_CONF "
        "and PYTORCH_ALLOC_CONF"
    )
