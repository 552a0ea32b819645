"""Compares the client library's functions and structures with the vendor's headers.

How this works: two small files are compiled, one that holds a pointer to each function as this
project declares it (read off the C++ sources) and one as the headers declare it, in C, because some
headers add overloads for C++. What the compiler made of both stands in their debug information.
Compared is the ABI: as many parameters, each of the same size and class (integer or enumeration,
floating point, pointer, structure), and where the fields of a structure lie. Needs gcc, no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from mnemosyne.api import Call, Mode, Spec
from mnemosyne.codegen.stubs import RETURN_SIZES

HEADERS = (
    "cuda.h", "cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cufft.h", "cufftXt.h",
    "cusolverDn.h", "cusolverSp.h", "cusparse.h", "cusparseLt.h", "nccl.h", "nvml.h", "nvrtc.h",
    "cupti.h", "cufile.h",
)  # fmt: skip

#: Structures of client_hook/structs.h as a C program spells them. Of the first two the front only.
STRUCTURES = {
    "cudaDeviceProp": "struct cudaDeviceProp",
    "cudaPointerAttributes": "struct cudaPointerAttributes",
    "cudaFuncAttributes": "struct cudaFuncAttributes",
    "cudaLaunchAttribute": "cudaLaunchAttribute",
    "cudaLaunchConfig_t": "cudaLaunchConfig_t",
    "cudaIpcMemHandle_t": "cudaIpcMemHandle_t",
    "cudaIpcEventHandle_t": "cudaIpcEventHandle_t",
    "CUlaunchConfig": "CUlaunchConfig",
    "cublasLtMatmulAlgo_t": "cublasLtMatmulAlgo_t",
    "cublasLtMatmulHeuristicResult_t": "cublasLtMatmulHeuristicResult_t",
    "cudnnConvolutionFwdAlgoPerf_t": "cudnnConvolutionFwdAlgoPerf_t",
    "ncclUniqueId": "ncclUniqueId",
}
_FRONTS = ("cudaDeviceProp", "cudaPointerAttributes")

#: What the headers include and the wheels lack: parts of the compiler and of CCCL, of which the
#: declarations need only this.
STAND_INS = {
    "crt/host_defines.h": """
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __host__
#define __device__
#define CUDARTAPI
#define CUDARTAPI_CDECL
""",
    "crt/host_config.h": "",
    "nv/target": "",
}

Shape = tuple[str, int]  # class and size in bytes
_VOID: Shape = ("void", 0)


@dataclass(frozen=True)
class Signature:
    """A function's ABI."""

    result: Shape
    parameters: tuple[Shape, ...]

    def __str__(self) -> str:
        words = [f"{kind}{size or ''}" for kind, size in (self.result, *self.parameters)]
        return f"{words[0]}({', '.join(words[1:])})"


@dataclass(frozen=True)
class Declared:
    """What one side declares: functions by name; fields by structure and name as offset, size."""

    functions: dict[str, Signature]
    structures: dict[str, dict[str, tuple[int, int]]]


@dataclass(frozen=True)
class Comparison:
    """``differences``: one line each. ``undeclared``: exported, but no header here knows them."""

    functions: int
    structures: int
    undeclared: list[str]
    differences: list[str]


def folders_of_wheels() -> list[Path]:
    """The include folders of the installed NVIDIA wheels."""
    nvidia = importlib.util.find_spec("nvidia")
    roots = nvidia.submodule_search_locations if nvidia else None
    return sorted(folder for root in roots or () for folder in Path(root).glob("*/include"))


def compare(spec: Spec, sources: Path, folders: list[Path]) -> Comparison:
    """``sources``: csrc. Raises subprocess.CalledProcessError when the compiler fails."""
    prototypes = our_prototypes(sources)
    exported = [call.name for call in spec.calls if call.mode is not Mode.NATIVE]
    theirs = _theirs(folders, exported)
    ours = _ours(sources, prototypes)
    differences = [*_differing(spec, ours.functions, theirs.functions), *_moved(ours, theirs)]
    undeclared = [name for name in exported if name not in theirs.functions]
    return Comparison(len(theirs.functions), len(ours.structures), undeclared, differences)


# Functions


def _differing(
    spec: Spec, ours: dict[str, Signature], theirs: dict[str, Signature]
) -> Iterator[str]:
    for call in spec.calls:
        header = theirs.get(call.name)
        if header is None:
            continue
        if call.mode in (Mode.REFUSED, Mode.FORWARD):
            if not _fits(call, header):
                yield f"{call.name}: {header} in the header, which the common stub does not fit"
        elif call.name not in ours:
            yield f"{call.name}: exported, but no source defines it"
        elif ours[call.name] != header:
            yield f"{call.name}: {ours[call.name]} here, {header} in the header"


def _fits(call: Call, header: Signature) -> bool:
    """Whether the common stub of all such calls can stand for it; see refused.cpp, forwards.cpp."""
    if call.mode is Mode.REFUSED:  # a structure of eight bytes begins with the code
        one_code = header.result in (("integer", 4), ("struct", 8), _VOID)
        return one_code or (header.result == ("integer", 8) and call.name in RETURN_SIZES)
    in_registers = all(kind in ("integer", "pointer") for kind, _ in header.parameters)
    return len(header.parameters) <= 2 and in_registers and header.result[0] != "struct"


def _moved(ours: Declared, theirs: Declared) -> Iterator[str]:
    for name, fields in ours.structures.items():
        for field, place in fields.items():
            header = theirs.structures[name].get(field)
            if header != place and not (field == "" and name in _FRONTS):
                yield f"{name}.{field}: {place} here, {header} in the header (offset, size)"


_PROTOTYPE = re.compile(r"^MNEMOSYNE_API\s+([\w\s*]+?)\b(\w+)\(([^)]*)\)", re.MULTILINE)
_FUNCTION_POINTER = re.compile(r"using (\w+) = [^;]*\(\*\)")


def our_prototypes(sources: Path) -> set[str]:
    """Every declaration of an exported function; all pointers are void*: 'int f(int, void*)'."""
    found = set()
    generated = [sources / "generated" / name for name in ("stubs.cpp", "libraries.cpp")]
    for path in [*sources.glob("client_hook/*.cpp"), *generated]:
        text = path.read_text()
        pointers = set(_FUNCTION_POINTER.findall(text))
        for result, name, parameters in _PROTOTYPE.findall(text):
            types = [_plain(p, pointers) for p in parameters.split(",") if p.strip()]
            found.add(f"{_plain(result + ' _', pointers)} {name}({', '.join(types)})")
    return found


_WORDS_OF_TYPES = {"unsigned", "signed", "char", "short", "int", "long", "float", "double", "void"}


def _plain(parameter: str, pointers: set[str]) -> str:
    """A parameter's type without its name."""
    if "*" in parameter:
        return "void*"
    words = [word for word in parameter.split() if word != "const"]
    if len(words) > 1 and words[-1] not in _WORDS_OF_TYPES:
        words.pop()
    return "void*" if words[0] in pointers else " ".join(words)


def _ours(sources: Path, prototypes: Iterable[str]) -> Declared:
    """The compiler refuses two declarations of one function that differ."""
    lines = [
        f'#include "{sources.resolve()}/client_hook/structs.h"',
        "using namespace mnemosyne;",
        'extern "C" {',
    ]
    lines += [f"{prototype};" for prototype in prototypes]
    names = {prototype[: prototype.index("(")].split()[-1] for prototype in prototypes}
    lines += [f"decltype({name})* f_{name};" for name in names]
    lines += [f"mnemosyne::{name} s_{name};" for name in STRUCTURES]
    return _declared("\n".join([*lines, "}"]), ["g++", "-std=c++17", "-x", "c++"], [])


def _theirs(folders: list[Path], names: list[str]) -> Declared:
    present = [h for h in HEADERS if any((folder / h).exists() for folder in folders)]
    includes = "".join(f"#include <{header}>\n" for header in ["stdalign.h", *present])
    # A name may be a macro for a newer version of the call.
    includes += "".join(f"#undef {name}\n" for name in names)
    structures = "".join(f"{spelled} s_{name};\n" for name, spelled in STRUCTURES.items())

    def source(names: Iterable[str]) -> str:
        return includes + "".join(f"__typeof__({n})* f_{n};\n" for n in names) + structures

    said = _compile(source(names), [*_C, "-fsyntax-only"], folders, check=False)
    unknown = set(re.findall(r"error: .(\w+). undeclared", said))
    return _declared(source(n for n in names if n not in unknown), _C, folders)


_C = ["gcc", "-std=gnu11", "-x", "c", "-fmax-errors=0"]


def _declared(source: str, compiler: list[str], folders: list[Path]) -> Declared:
    with tempfile.NamedTemporaryFile(suffix=".o") as built:
        _compile(source, [*compiler, "-g", "-c", "-o", built.name], folders)
        units = ELFFile(built).get_dwarf_info().iter_CUs()
        dies = [die for unit in units for die in unit.get_top_DIE().iter_children()]
        variables = {_name(die): _type(die) for die in dies if die.tag == "DW_TAG_variable"}
        functions = {n[2:]: _signature(t) for n, t in variables.items() if n.startswith("f_")}
        structures = {n[2:]: _fields(t) for n, t in variables.items() if n.startswith("s_")}
    return Declared(functions, structures)


def _compile(source: str, command: list[str], folders: list[Path], check: bool = True) -> str:
    """What the compiler said."""
    with tempfile.TemporaryDirectory() as stand_ins:
        for name, text in STAND_INS.items():
            path = Path(stand_ins, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        includes = [f"-I{folder}" for folder in folders]
        done = subprocess.run(
            [*command, "-w", *includes, "-idirafter", stand_ins, "-"],
            input=source, text=True, capture_output=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command[0], stderr=done.stderr)
    return done.stderr


# Debug information


def _name(die: Any) -> str:
    name = die.attributes.get("DW_AT_name")
    return name.value.decode() if name else ""


_ALIASES = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type")


def _type(die: Any) -> Any:
    """The type that a declaration names, without its aliases; None is void."""
    found = die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None
    return _type(found) if found is not None and found.tag in _ALIASES else found


_CLASSES = {
    "DW_TAG_pointer_type": "pointer",
    "DW_TAG_enumeration_type": "integer",
    "DW_TAG_structure_type": "struct",
    "DW_TAG_union_type": "struct",
    "DW_TAG_array_type": "array",
}
_FLOAT = 4  # DW_ATE_float


def _shape(die: Any) -> Shape:
    if die is None:
        return _VOID
    if die.tag == "DW_TAG_base_type":
        kind = "float" if die.attributes["DW_AT_encoding"].value == _FLOAT else "integer"
    else:
        kind = _CLASSES[die.tag]
    return kind, _size(die)


def _size(die: Any) -> int:
    if die.tag != "DW_TAG_array_type":
        return int(die.attributes["DW_AT_byte_size"].value)
    count = 1
    for bound in die.iter_children():
        count *= bound.attributes["DW_AT_upper_bound"].value + 1
    return count * _size(_type(die))


def _signature(pointer: Any) -> Signature:
    function = _type(pointer)
    parameters = [c for c in function.iter_children() if c.tag == "DW_TAG_formal_parameter"]
    return Signature(_shape(_type(function)), tuple(_shape(_type(p)) for p in parameters))


def _fields(structure: Any) -> dict[str, tuple[int, int]]:
    """Offset and size of each field in bytes; the whole is called \"\"."""
    members = [c for c in structure.iter_children() if c.tag == "DW_TAG_member"]
    fields = {
        _name(m): (int(m.attributes["DW_AT_data_member_location"].value), _size(_type(m)))
        for m in members
    }
    return {**fields, "": (0, _size(structure))}
