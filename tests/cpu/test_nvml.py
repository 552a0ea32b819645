"""What NVML measures of the whole GPU comes from the machine's own, which is a made-up one here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Server

#: It answers when its own functions, which the client library has as well, have been called.
MACHINE = """
#include <string.h>
static int ready;
extern "C" {
int nvmlInitWithFlags(unsigned) { return ready = 1, 0; }
int nvmlInit_v2() { return nvmlInitWithFlags(0); }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** gpu) {
  *gpu = &ready;
  return ready && strcmp(uuid, UUID) == 0 ? 0 : 6;
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* rates) {
  rates[0] = 70, rates[1] = 30;
  return gpu == &ready ? 0 : 2;
}
int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* c) { return *c = 40 + sensor, 0; }
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* mw) { return *mw = 350000, 0; }
int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* mhz) { return *mhz = 1000 + clock, 0; }
}
"""
CLIENT = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
gpu, value, rates = ctypes.c_void_p(), ctypes.c_uint(), (ctypes.c_uint * 2)()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
print(nvml.nvmlDeviceGetUtilizationRates(gpu, rates), *rates)
print(nvml.nvmlDeviceGetTemperature(gpu, 0, ctypes.byref(value)), value.value)
print(nvml.nvmlDeviceGetPowerUsage(gpu, ctypes.byref(value)), value.value)
print(nvml.nvmlDeviceGetClockInfo(gpu, 1, ctypes.byref(value)), value.value)
print(nvml.nvmlDeviceGetUtilizationRates(gpu, None))
"""


def run(server: Server, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = server.environment() | {"LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", CLIENT], env=environment, cwd=ROOT, text=True, capture_output=True
    )


def build(folder: Path, uuid: str) -> Path:
    source = folder / "nvml.cpp"
    source.write_text(MACHINE)
    command = ["g++", "-shared", "-fPIC", f'-DUUID="{uuid}"', str(source)]
    subprocess.run([*command, "-o", str(folder / "libnvidia-ml.so.1")], check=True)
    return folder


def test_the_machines_nvml_measures_the_servers_device(server: Server, tmp_path: Path) -> None:
    cpu_device = "GPU-6d6e656d-6f73-796e-652d-6370752d3030"
    done = run(server, build(tmp_path, cpu_device))
    assert done.stdout.splitlines() == ["0 70 30", "0 40", "0 350000", "0 1001", "2"]
    assert done.stderr == ""


@pytest.mark.parametrize("machine", ["another GPU", "no NVML"])
def test_without_it_the_call_is_refused_by_name(
    server: Server, tmp_path: Path, machine: str
) -> None:
    if machine == "another GPU":
        build(tmp_path, "GPU-0")
    done = run(server, tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["3", "3", "3", "3", "2"]
    assert [line.split()[1] for line in done.stderr.splitlines()] == [
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetClockInfo",
    ]  # fmt: skip
