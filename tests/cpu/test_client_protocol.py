"""What the client library sends, and what it makes of a server that no real one would be."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ring import ERROR, ERROR_TEXT
from scripted import ScriptedServer
from test_client_library import PRELUDE

Scripted = Callable[..., ScriptedServer]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    started: list[ScriptedServer] = []

    def start(**answers: Callable[..., object]) -> ScriptedServer:
        started.append(ScriptedServer(tmp_path, answers))
        return started[-1]

    yield start
    for one in started:
        one.end()


BLAS = (
    PRELUDE
    + """
ADDRESS = 0x200000001000  # in the session's range; nothing is read there
handle, alpha, device = c_void_p(), c_float(2), c_void_p(ADDRESS)
assert cuda.cublasCreate_v2(byref(handle)) == 0
def gemm():
    size = (c_int(1),) * 3
    assert cuda.cublasSgemm_v2(
        handle, 0, 0, *size, byref(alpha), device, 1, device, 1, byref(alpha), device, 1) == 0
"""
)


def test_settings_of_a_blas_handle_travel_before_the_call_that_needs_them(
    scripted: Scripted,
) -> None:
    server = scripted()
    server.output(
        BLAS
        + """
stream = c_void_p()
assert cuda.cudaStreamCreate(byref(stream)) == 0
gemm()
for _ in range(3):  # as PyTorch does before each product
    assert cuda.cublasSetStream_v2(handle, stream) == 0
    assert cuda.cublasSetWorkspace_v2(handle, c_void_p(ADDRESS), SIZE(4096)) == 0
    gemm()
assert cuda.cublasSetSmCountTarget(handle, -1) == 7
assert cuda.cublasSetSmCountTarget(handle, 20) == 0
gemm()
assert cuda.cublasSetStream_v2(handle, stream) == 0
gemm()
"""
    )
    (stream,) = [fields[0] for name, fields in server.frames if "StreamCreate" in name]
    configured = [fields[1:] for name, fields in server.frames if name == "blas_configure"]
    assert configured == [
        [stream, 0, 0, 0x200000001000, 4096, 0],
        [stream, 0, 0, 0x200000001000, 4096, 20],
        [stream, 0, 0, 0, 0, 20],  # cublasSetStream takes the workspace away
    ]


LT = (
    PRELUDE
    + """
desc, layout, preference = c_void_p(), c_void_p(), c_void_p()
cuda.cublasLtMatmulDescCreate(byref(desc), 68, 0)
cuda.cublasLtMatrixLayoutCreate(byref(layout), 0, SIZE(1), SIZE(1), SIZE(1))
cuda.cublasLtMatmulPreferenceCreate(byref(preference))
results, count = ctypes.create_string_buffer(4096), c_int()
"""
)


def test_more_heuristics_than_before_are_asked_for_anew(scripted: Scripted) -> None:
    server = scripted(lt_heuristic=lambda fields: [[[bytes(64), 0, 1.0]] * fields[-1]])
    printed = server.output(
        LT
        + """
for requested in (1, 3, 1, 3, 2):
    assert cuda.cublasLtMatmulAlgoGetHeuristic(
        None, desc, *[layout] * 4, preference, requested, results, byref(count)) == 0
    print(count.value)
"""
    )
    assert printed.split() == ["1", "3", "1", "3", "2"]
    asked = [fields[-1] for name, fields in server.frames if name == "lt_heuristic"]
    assert asked == [1, 3, 2]


HOST, DEVICE = struct.pack("<f", 2), 0x200000001000


@pytest.mark.parametrize(
    ("mode", "alpha", "beta"),
    [
        (0, HOST, HOST),
        (1, DEVICE, DEVICE),
        (2, DEVICE, DEVICE),
        (3, DEVICE, bytes(4)),  # alpha a vector on the device, beta zero
        (4, DEVICE, HOST),  # alpha a vector on the device, beta on the host
    ],
)
def test_scalars_of_a_product_lie_where_the_pointer_mode_says(
    scripted: Scripted, mode: int, alpha: object, beta: object
) -> None:
    server = scripted()
    server.output(
        LT
        + f"""
mode, value, device = c_int({mode}), c_float(2), c_void_p({DEVICE})
cuda.cublasLtMatmulDescSetAttribute(desc, 2, byref(mode), SIZE(4))
alpha = byref(value) if {isinstance(alpha, bytes)} else device
beta = None if {mode} == 3 else byref(value) if {isinstance(beta, bytes)} else device
operands = device, layout, device, layout
assert cuda.cublasLtMatmul(
    None, desc, alpha, *operands, beta, *operands, None, None, SIZE(0), None) == 0
mode.value = 5
cuda.cublasLtMatmulDescSetAttribute(desc, 2, byref(mode), SIZE(4))
assert cuda.cublasLtMatmul(
    None, desc, alpha, *operands, beta, *operands, None, None, SIZE(0), None) == 7
"""
    )
    (sent,) = [fields for name, fields in server.frames if name == "lt_matmul"]
    assert (sent[2], sent[7]) == (alpha, beta)


#: Three threads ask for errors while a fourth plays the server, which has the next one ready as
#: soon as one was taken. Counts the errors that came with the sentence of another.
ASK = """
#include <fcntl.h>
#include <sys/mman.h>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
extern "C" int cudaGetLastError();
extern "C" const char* cudaGetErrorString(int);
extern "C" int ask(const char* channel, size_t size, size_t error_at, size_t text_at, int count) {
  int fd = open(channel, O_RDWR);
  char* page = static_cast<char*>(mmap(nullptr, size, PROT_WRITE, MAP_SHARED, fd, 0));
  auto* error = reinterpret_cast<std::atomic<int>*>(page + error_at);
  std::atomic<int> told{0}, wrong{0};
  auto work = [&] {
    while (told < count) {
      int code = cudaGetLastError();
      if (!code) {
        std::this_thread::yield();
        continue;
      }
      char expected[64];
      snprintf(expected, sizeof expected, "mnemosyne: %d", code);
      wrong += strcmp(cudaGetErrorString(code), expected) != 0;
      ++told;
    }
  };
  std::thread first(work), second(work), third(work);
  for (int code = 10000; code < 10000 + count; ++code) {
    while (*error) std::this_thread::yield();
    sprintf(page + text_at, "%d", code);
    *error = code;
  }
  first.join(), second.join(), third.join();
  return wrong;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_each_late_error_is_told_with_its_own_sentence(scripted: Scripted, tmp_path: Path) -> None:
    source, library = tmp_path / "ask.cpp", tmp_path / "ask.so"
    source.write_text(ASK)
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    server = scripted()
    channel, size = f"/proc/{os.getpid()}/fd/{server.channel}", os.fstat(server.channel).st_size
    printed = server.output(
        PRELUDE
        + f"""
assert cuda.cudaDeviceSynchronize() == 0
ask = ctypes.CDLL({str(library)!r}).ask
print(ask({channel.encode()!r}, SIZE({size}), SIZE({ERROR}), SIZE({ERROR_TEXT}), 20_000))
"""
    )
    assert printed == "0"


def test_a_handle_whose_frame_was_not_sent_does_not_exist(scripted: Scripted) -> None:
    server = scripted()
    client = server.python(
        PRELUDE
        + """
stream = c_void_p()
assert cuda.cudaDeviceSynchronize() == 0
print("ready", flush=True)
input()
code = cuda.cudaStreamCreate(byref(stream))
print(code, cuda.cudaStreamQuery(stream), cuda.cudaStreamQuery(None))
"""
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n", client.communicate()[1]
    server.close()
    assert client.communicate("\n", timeout=20)[0] == "46 400 46\n"


UNAVAILABLE = "CUDA-capable device(s) is/are busy or unavailable"
GONE = "the server is gone; start it again, then this program"


def test_calls_that_wait_for_nothing_find_out_that_the_server_was_killed(
    scripted: Scripted,
) -> None:
    """Nobody marks the channel; the ring has room for all that the client posts meanwhile."""
    server = scripted()
    client = server.python(
        PRELUDE
        + """
import time
cuda.cudaGetErrorString.restype = ctypes.c_char_p
event = c_void_p()
assert cuda.cudaEventCreate(byref(event)) == 0 and cuda.cudaDeviceSynchronize() == 0
print("ready", flush=True)
input()
started, posts, code = time.monotonic(), 0, 0
while not code:
    code, posts = cuda.cudaEventRecord(event, None), posts + 1
    time.sleep(0.001)
print(posts < 10_000, time.monotonic() - started < 2, code)
print(cuda.cudaGetErrorString(code).decode())
"""
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n", client.communicate()[1]
    server.hang_up()
    output, errors = client.communicate("\n", timeout=20)
    assert output.splitlines() == ["True True 46", f"{UNAVAILABLE}: mnemosyne: {GONE}"], errors


def test_polling_an_event_ends_when_the_server_is_gone(scripted: Scripted) -> None:
    release = threading.Event()
    server = scripted(event_record=lambda fields: [release.wait()])
    client = server.python(
        PRELUDE
        + """
event = c_void_p()
assert cuda.cudaEventCreate(byref(event)) == 0 and cuda.cudaEventRecord(event, None) == 0
print(cuda.cudaEventQuery(event), flush=True)
while (code := cuda.cudaEventQuery(event)) == 600: pass
print(code)
"""
    )
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "600\n", client.communicate()[1]
        server.hang_up()
        assert client.communicate(timeout=20)[0] == "46\n"
    finally:
        release.set()


@pytest.mark.parametrize(("at", "value"), [(0, 0), (4, 99)], ids=["magic", "layout"])
def test_a_channel_of_another_version_is_refused_in_one_sentence(
    scripted: Scripted, at: int, value: int
) -> None:
    server = scripted()
    with mmap.mmap(server.channel, os.fstat(server.channel).st_size) as channel:
        struct.pack_into("<I", channel, at, value)
    printed = server.output(
        PRELUDE
        + """
cuda.cudaGetErrorString.restype = ctypes.c_char_p
code = cuda.cudaMalloc(byref(c_void_p()), SIZE(4))
print(code, cuda.cudaGetErrorString(code).decode())
"""
    )
    assert printed == (
        f"46 {UNAVAILABLE}: mnemosyne: the server's channel is laid out in another way; use the "
        "same version of mnemosyne for the server and its clients"
    )


def test_a_client_tells_the_versions_of_the_libraries_it_has_loaded(scripted: Scripted) -> None:
    server = scripted()
    printed = server.output(
        "import torch; print(torch.version.cuda, torch.backends.cudnn.version());"
        "torch.cuda.is_available()"
    )
    assert server.hello is not None
    cuda, cudnn = printed.split()
    versions = dict(server.hello.libraries)
    assert set(versions) == {"cudart", "cublasLt", "cudnn"}
    major, minor = map(int, cuda.split("."))
    assert versions["cudart"] == 1000 * major + 10 * minor
    assert versions["cublasLt"] // 10000 == major
    assert versions["cudnn"] == int(cudnn)


def test_a_client_without_cuda_libraries_names_none(scripted: Scripted) -> None:
    server = scripted()
    server.output(PRELUDE + "print(cuda.cuInit(0))")
    assert server.hello is not None
    assert server.hello.libraries == []
