"""What the CPU device says it is, against the vendor's headers where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mnemosyne.codegen.headers import STAND_INS, folders_of_wheels
from mnemosyne.server.devices import check_handlers
from mnemosyne.server.devices.cpu.functions import Function
from mnemosyne.server.devices.cpu.hopper import (
    ATTRIBUTE_COUNT,
    ATTRIBUTES,
    NAME,
    DeviceProp,
    attributes,
    properties,
)
from mnemosyne.server.errors import INVALID_CONFIGURATION, INVALID_VALUE, CallError

HEADERS = next(
    (f for f in folders_of_wheels() if (f / "driver_types.h").exists()), Path("no CUDA headers")
)
needs_headers = pytest.mark.skipif(
    not (HEADERS / "driver_types.h").exists() or shutil.which("g++") is None,
    reason="needs g++ and the CUDA 13 headers of the torch wheel",
)


def compile_and_run(source: str, folder: Path) -> str:
    path, program = folder / "probe.cpp", folder / "probe"
    path.write_text(source)
    (folder / "crt").mkdir()
    (folder / "crt/host_defines.h").write_text(STAND_INS["crt/host_defines.h"])
    command = ["g++", "-I", str(HEADERS), "-I", str(folder), str(path), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


@needs_headers
def test_cuda_device_prop_is_laid_out_as_in_the_header(tmp_path: Path) -> None:
    names = [name for name, _ in DeviceProp._fields_]
    lines = "".join(f'P("{n}", offsetof(cudaDeviceProp, {n}));' for n in names)
    source = (
        "#include <cstddef>\n#include <cstdio>\n#include <driver_types.h>\n"
        '#define P(n, v) printf("%s %zu\\n", n, size_t(v))\n'
        f'int main() {{ {lines} P("size", sizeof(cudaDeviceProp)); }}'
    )
    said = dict(line.split() for line in compile_and_run(source, tmp_path).splitlines())
    ours = {name: str(getattr(DeviceProp, name).offset) for name in names}
    assert said == {**ours, "size": str(len(properties(1 << 30)))}


@needs_headers
def test_every_attribute_of_the_header_is_answered() -> None:
    text = (HEADERS / "driver_types.h").read_text()
    declared = {
        int(number): name
        for name, number in re.findall(r"cudaDevAttr(\w+)\s*=\s*(\d+),", text)
        if not name.startswith("Reserved") or name.startswith("ReservedShared")
    }
    assert set(ATTRIBUTES) <= set(declared)
    assert max(declared) < ATTRIBUTE_COUNT
    assert [number for number, _ in attributes()] == list(range(1, ATTRIBUTE_COUNT))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [(1, 1024), (8, 49152), (10, 32), (16, 132), (75, 9), (76, 0), (97, 232448), (4, 64), (18, 0)],
)
def test_attributes_of_a_hopper(attribute: int, value: int) -> None:
    assert dict(attributes())[attribute] == value


def test_properties_of_a_hopper() -> None:
    prop = DeviceProp.from_buffer_copy(properties(3 << 30))
    assert prop.name == NAME.encode()
    assert (prop.major, prop.minor, prop.warpSize) == (9, 0, 32)
    assert prop.totalGlobalMem == 3 << 30
    assert list(prop.maxThreadsDim) == [1024, 1024, 64]


def kernel(registers: int = 32, shared: int = 0, threads: int | None = None) -> Any:
    return SimpleNamespace(
        name="k", params=((0, 8), (8, 4)), registers=registers, static_shared=shared, stack=0,
        max_threads=threads,
    )  # fmt: skip


def function(**facts: Any) -> Function:
    return Function.of(1, kernel(**facts), lambda launch: None)


@pytest.mark.parametrize(
    ("facts", "threads", "dynamic", "blocks"),
    [
        ({}, 128, 0, 16),  # by warps: 64 / 4
        ({}, 32, 0, 32),  # by block slots
        ({}, 1024, 0, 2),
        ({"registers": 255}, 256, 0, 1),  # by registers: 8 warps of 8192
        ({"registers": 64}, 256, 0, 4),
        ({"registers": 168}, 128, 0, 3),  # 5376 a warp, 3 in each partition
        ({"shared": 1024}, 32, 0, 32),
        ({}, 128, 100 << 10, 2),  # by shared memory: 233472 / 103424
        ({"shared": 40 << 10}, 128, 0, 5),
        ({}, 128, 300 << 10, 0),
        ({"threads": 256}, 512, 0, 0),
    ],
)
def test_occupancy(facts: dict[str, Any], threads: int, dynamic: int, blocks: int) -> None:
    assert function(**facts).occupancy(threads, dynamic) == blocks


@needs_headers
def test_occupancy_is_what_the_vendors_header_computes(tmp_path: Path) -> None:
    cases = [
        (registers, shared, threads, dynamic)
        for registers in (16, 32, 40, 72, 128, 168, 255)
        for shared in (0, 1000, 40000)
        for threads in (32, 96, 128, 250, 512, 1024)
        for dynamic in (0, 5000, 100000, 200000)
    ]
    text = ",".join(f"{{{','.join(map(str, case))}}}" for case in cases)
    source = f"""
#include <climits>
#include <cstdio>
#include <cuda_occupancy.h>
int cases[][4] = {{{text}}};
int main() {{
  cudaOccDeviceProp p; p.computeMajor = 9; p.computeMinor = 0; p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiprocessor = 2048; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
  p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = 233472;
  p.numSms = 132; p.sharedMemPerBlockOptin = 232448; p.reservedSharedMemPerBlock = 1024;
  for (auto& c : cases) {{
    cudaOccFuncAttributes a; a.maxThreadsPerBlock = 1024; a.numRegs = c[0];
    a.sharedSizeBytes = c[1]; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = 232448 - c[1];
    a.numBlockBarriers = 0;
    cudaOccDeviceState s; cudaOccResult r;
    int e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, c[2], c[3]);
    printf("%d\\n", e ? -1 : r.activeBlocksPerMultiprocessor);
  }}
}}"""
    said = [int(line) for line in compile_and_run(source, tmp_path).split()]
    ours = []
    for registers, shared, threads, dynamic in cases:
        one = function(registers=registers, shared=shared)
        one.info.maxThreadsPerBlock = 1024
        ours.append(one.occupancy(threads, dynamic))
    assert ours == said


def test_function_attributes_come_in_the_order_of_the_reply() -> None:
    one = function(registers=40, shared=1000, threads=256)
    assert one.info.as_list() == [1000, 0, 0, 256, 40, 90, 90, 49152 - 1000, *[0] * 6]
    assert one.arg_bytes == 12
    assert function(registers=255).info.maxThreadsPerBlock == 256


def test_dynamic_shared_memory_may_be_raised_to_the_limit_and_no_further() -> None:
    one = function(shared=1000)
    one.check_launch((1, 1, 1), (32, 1, 1), 48152)
    with pytest.raises(CallError) as refused:
        one.check_launch((1, 1, 1), (32, 1, 1), 48153)
    assert refused.value.code == INVALID_VALUE
    one.set_attribute(8, 232448 - 1000)
    one.check_launch((1, 1, 1), (32, 1, 1), 200000)
    with pytest.raises(CallError):
        one.set_attribute(8, 232448)


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 1), (1, 1, 65)),
        ((1, 1, 1), (1024, 2, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((2**31, 1, 1), (1, 1, 1)),
        ((-1, 1, 1), (1, 1, 1)),
    ],
)
def test_impossible_launches(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    with pytest.raises(CallError) as refused:
        function().check_launch(grid, block, 0)
    assert refused.value.code == INVALID_CONFIGURATION


def test_a_message_without_a_handler_is_named_at_start_up() -> None:
    with pytest.raises(LookupError, match="malloc"):
        check_handlers("cpu", ["free"])
    with pytest.raises(LookupError, match="nonsense"):
        check_handlers("cpu", ["nonsense"])


def test_the_null_device_has_every_handler() -> None:
    from mnemosyne.server.devices import create

    device = create("null", 1)
    assert "executes nothing" in device.describe(0).device
