"""Builds the fake cuBLAS, and tells a server's worker to take it."""

from __future__ import annotations

import re
from pathlib import Path

from fakecuda.build import SONAME, compile_cpp, cuda_headers
from mnemosyne.api import SPEC, Mode

SOURCE = Path(__file__).with_name("blas.cpp")
LANE = Path(__file__).parents[3] / "csrc/lane/cuda/blas.cpp"


def build_blas(folder: Path, driver: Path) -> dict[str, str]:
    """The environment of a server whose worker uses it: there, Python finds a sitecustomize.

    ``driver``: the folder of the fake driver.
    """
    routines = {c.name for c in SPEC.calls if c.lane and c.mode is Mode.ONCE}
    needed = set(re.findall(r"MNEMOSYNE_NEED\(\w+, (\w+)\)", LANE.read_text()))
    done = set(re.findall(r"^BLAS (\w+)\(", SOURCE.read_text(), re.MULTILINE))
    names = sorted((routines | needed) - done)
    (folder / "routines.inc").write_text("".join(f"SUCCEEDS({name})\n" for name in names))
    library = folder / "libfakeblas.so"
    includes = [f"-I{folder}", "-isystem", cuda_headers()]
    compile_cpp("-std=c++17", "-shared", "-fPIC", *includes, SOURCE, driver / SONAME, "-o", library)
    path = str(library)
    (folder / "sitecustomize.py").write_text(
        f"from mnemosyne import _native\n_native.load_libraries({path!r}, {path!r})\n"
    )
    return {"PYTHONPATH": str(folder)}
