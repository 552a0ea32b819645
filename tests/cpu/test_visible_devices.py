"""CUDA_VISIBLE_DEVICES, as natively: a program sees one device, and that is number 0."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT, Server

#: Device counts of runtime, driver and NVML, and codes of the first two.
COUNTS = """
import ctypes
def count(name):
    n = ctypes.c_int(7)
    code = getattr(ctypes.CDLL(None), name)(ctypes.byref(n))
    return code, n.value
print(*count("cudaGetDeviceCount"), *count("cuDeviceGetCount"), *count("nvmlDeviceGetCount_v2"))
"""
VISIBLE, HIDDEN = "0 1 0 1 0 1", "100 0 100 0 0 1"

#: What PyTorch counts by itself, through NVML, by the runtime, and whether it gets a tensor.
TORCH = """
import torch
print(torch.cuda._device_count_nvml(), torch.cuda.device_count(), torch.cuda.is_available())
try:
    print(torch.ones(3, device="cuda").sum().item())
except RuntimeError as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


def run(server: Server, code: str, visible: str) -> subprocess.CompletedProcess[str]:
    environment = server.environment() | {"CUDA_VISIBLE_DEVICES": visible}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, text=True, capture_output=True
    )


@pytest.fixture(scope="module")
def uuid(server: Server) -> str:
    code = """
import ctypes
uuid = (ctypes.c_ubyte * 16)()
assert ctypes.CDLL(None).cuDeviceGetUuid(uuid, 0) == 0
print(bytes(uuid).hex())
"""
    u = server.output(code)
    return f"GPU-{u[:8]}-{u[8:12]}-{u[12:16]}-{u[16:20]}-{u[20:]}"


@pytest.mark.parametrize(
    ("visible", "counts"),
    [
        ("0", VISIBLE),
        (" 0 , 1", VISIBLE),
        ("0,-1,0", VISIBLE),
        ("0,nothing", VISIBLE),
        ("0gpu", VISIBLE),
        ("UUID", VISIBLE),
        ("UUID,GPU-ffff", VISIBLE),
        ("UUID cut", VISIBLE),
        ("", HIDDEN),
        ("-1", HIDDEN),
        ("1", HIDDEN),
        ("1,0", HIDDEN),
        ("0,0", HIDDEN),
        ("0,1,0", HIDDEN),
        ("NoDevFiles", HIDDEN),
        ("GPU-ffff", HIDDEN),
        ("UUID,UUID", HIDDEN),
        ("UUID,UUID cut", HIDDEN),
        ("MIG-ffff", HIDDEN),
    ],
)
def test_the_variable_names_the_first_device_or_hides_it(
    server: Server, uuid: str, visible: str, counts: str
) -> None:
    visible = visible.replace("UUID cut", uuid[:9]).replace("UUID", uuid)
    done = run(server, COUNTS, visible)
    assert done.stdout.strip() == counts
    told = (
        f"mnemosyne: CUDA_VISIBLE_DEVICES='{visible}' hides the server's device, which is number 0 "
        f"here whichever GPU it is ({uuid}); unset it: the server chooses the GPU\n"
    )
    assert done.stderr == ("" if counts == VISIBLE else told)


@pytest.mark.parametrize("visible", ["", "-1", "1", "0,0", "GPU-ffff", "GPU-ffff,GPU-fffe"])
def test_torch_has_no_device_that_it_does_not_count(server: Server, visible: str) -> None:
    done = run(server, TORCH, visible)
    counts, tensor = done.stdout.splitlines()
    assert counts == "0 0 False"
    assert tensor == "RuntimeError No CUDA GPUs are available"


@pytest.mark.parametrize("visible", ["0,1", "UUID"])
def test_torch_uses_the_device_that_it_counts(server: Server, uuid: str, visible: str) -> None:
    done = run(server, TORCH, visible.replace("UUID", uuid))
    assert done.stdout.splitlines() == ["1 1 True", "3.0"]
    assert done.stderr == ""


def test_a_hidden_device_takes_no_slot_and_gives_no_memory(server: Server) -> None:
    code = """
import ctypes
p = ctypes.c_void_p()
cuda = ctypes.CDLL(None)
print(cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(4)), cuda.cuInit(0))
print(cuda.cuDeviceGet(ctypes.byref(p), 0))
"""
    assert run(server, code, "1").stdout.split() == ["100"] * 3
    assert server.sessions() == []
