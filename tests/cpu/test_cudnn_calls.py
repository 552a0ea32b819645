"""cuDNN as programs meet it: through the client library alone, and from PyTorch."""

from __future__ import annotations

from conftest import Server

#: An addition of two tensors of 64 floats, as cuDNN's backend API describes it.
PRELUDE = """
import ctypes, struct
from ctypes import byref, c_int64, c_size_t, c_void_p, create_string_buffer
cuda = ctypes.CDLL(None)
BAD_PARAM, NOT_FINALIZED, NOT_SUPPORTED = 2000, 2004, 3000

def malloc():
    p = c_void_p()
    assert cuda.cudaMalloc(byref(p), c_size_t(4096)) == 0
    return p.value

def create(kind):
    d = c_void_p()
    assert cuda.cudnnBackendCreateDescriptor(kind, byref(d)) == 0
    return d

def put(d, name, kind, form, *values):
    data = struct.pack("<%d%s" % (len(values), form), *values)
    return cuda.cudnnBackendSetAttribute(d, name, kind, c_int64(len(values)), data)

def final(kind, *attributes):
    d = create(kind)
    for attribute in attributes:
        assert put(d, *attribute) == 0
    code = cuda.cudnnBackendFinalize(d)
    assert code == 0, code
    return d

def tensor(number):
    return final(17, (900, 3, "q", 16), (901, 1, "i", 0), (902, 3, "q", 1, 64),
                 (903, 3, "q", 64, 1), (906, 3, "q", number))

def last_error():
    text = create_string_buffer(300)
    cuda.cudnnGetLastErrorString(text, c_size_t(300))
    return text.value.decode()

def graph_of(*operations):
    return final(15, (800, 0, "Q", handle.value), (801, 15, "Q", *(o.value for o in operations)))

def addition():
    how = final(0, (0, 14, "i", 0), (1, 1, "i", 0))
    x, b, y = (tensor(n).value for n in (1, 2, 3))
    return final(13, (750, 15, "Q", how.value), (751, 15, "Q", x), (752, 15, "Q", b),
                 (753, 15, "Q", y))

def plan_of(graph):
    engine = final(2, (1300, 15, "Q", graph.value), (1301, 3, "q", 0))
    config = final(3, (300, 15, "Q", engine.value))
    return final(5, (400, 0, "Q", handle.value), (401, 15, "Q", config.value))

def pack(*pointers):
    return final(16, (1000, 3, "q", 1, 2, 3), (1001, 6, "Q", *pointers), (1003, 6, "Q", 0))

handle = c_void_p()
assert cuda.cudnnCreate(byref(handle)) == 0
"""


def output(server: Server, code: str) -> list[str]:
    return server.output(PRELUDE + code).split("\n")


def test_a_plan_waits_the_first_time_and_not_again(server: Server) -> None:
    """An address that is nobody's fails at the call; then later, or if the server is quick."""
    code = """
a, b = malloc(), malloc()
first, second = (plan_of(graph_of(addition())) for _ in range(2))
print(cuda.cudnnBackendExecute(handle, first, pack(a, a, 4096)))
print(cuda.cudnnBackendExecute(handle, first, pack(a, a, b)))
print(cuda.cudaDeviceSynchronize())
print(cuda.cudnnBackendExecute(handle, second, pack(a, a, 4096)))
print(cuda.cudaDeviceSynchronize())
"""
    codes = output(server, code)
    assert codes[:3] == ["5000", "0", "0"]
    assert codes[3:] in (["0", "700"], ["4000", "0"])


def test_what_a_device_cannot_compute_is_said_by_name(server: Server) -> None:
    code = """
norm = final(29, (2000, 27, "i", 0))
heuristic = create(4)
put(heuristic, 200, 8, "i", 3)
put(heuristic, 201, 15, "Q", graph_of(norm).value)
print(cuda.cudnnBackendFinalize(heuristic), last_error())
"""
    (line,) = output(server, code)
    assert line.startswith("3000 cudnn_heuristic: cuDNN operation 29 (NORM_FORWARD)")


def test_engines_answer_what_programs_ask_them(server: Server) -> None:
    code = """
graph = graph_of(addition())
heuristic = final(4, (200, 8, "i", 3), (201, 15, "Q", graph.value))
def get(d, name, kind, room, out):
    count = c_int64(-1)
    code = cuda.cudnnBackendGetAttribute(d, name, kind, c_int64(room), byref(count), out)
    return code, count.value
print(get(heuristic, 202, 15, 0, None))
config, engine, index, notes = create(3), create(2), c_int64(-1), (ctypes.c_int * 5)()
print(get(heuristic, 202, 15, 1, byref(config)), get(config, 300, 15, 1, byref(engine)))
print(get(engine, 1301, 3, 1, byref(index)), index.value, get(engine, 1303, 11, 5, notes))
print(get(engine, 1301, 23, 1, byref(index)), get(engine, 1306, 23, 1, byref(index)))
plan, size = final(5, (400, 0, "Q", handle.value), (401, 15, "Q", config.value)), c_int64(-1)
print(get(plan, 402, 3, 1, byref(size)), size.value)
"""
    assert output(server, code) == [
        "(0, 1)", "(0, 1) (0, 1)", "(0, 1) 0 (0, 0)", "(2010, 0) (3000, 0)", "(0, 1) 0",
    ]  # fmt: skip


def test_mistakes_are_told_at_the_call(server: Server) -> None:
    code = """
open_, done = create(17), tensor(1)
print(cuda.cudnnBackendCreateDescriptor(17, None), put(done, 906, 3, "q", 5),
      put(create(13), 751, 15, "Q", open_.value), cuda.cudnnBackendFinalize(None),
      cuda.cudnnBackendFinalize(done), cuda.cudnnBackendExecute(handle, done, done),
      cuda.cudnnBackendFinalize(create(5)), cuda.cudnnBackendFinalize(create(4)))
out = c_int64()
print(cuda.cudnnBackendGetAttribute(open_, 906, 3, c_int64(1), None, byref(out)),
      cuda.cudnnSetStream(c_void_p(5), None), cuda.cudnnSetStream(handle, c_void_p(77)),
      cuda.cudnnGetStream(handle, None), cuda.cudnnDestroy(c_void_p(5)),
      cuda.cudnnDestroy(handle), cuda.cudnnDestroy(handle))
"""
    assert output(server, code) == [
        "2000 2000 2004 2000 2000 2000 2000 2000", "2004 2000 2000 2000 1001 0 1001",
    ]  # fmt: skip


def test_many_plans_come_and_go(server: Server) -> None:
    code = """
a = malloc()
for _ in range(300):
    plan = plan_of(graph_of(addition()))
    assert cuda.cudnnBackendExecute(handle, plan, pack(a, a, a)) == 0
    assert cuda.cudnnBackendDestroyDescriptor(plan) == 0
print(cuda.cudaDeviceSynchronize())
"""
    assert output(server, code) == ["0"]


def test_streams_of_a_program_are_those_of_its_convolutions(server: Server) -> None:
    code = """
import torch, torch.nn.functional as F
x, w = torch.ones(1, 1, 4, 4, device="cuda"), torch.ones(1, 1, 2, 2, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = F.conv2d(x, w)
torch.cuda.current_stream().wait_stream(side)
print(y.sum().item())
"""
    assert server.output(code) == "36.0"


def test_what_is_not_offered_says_so_and_the_program_goes_on(server: Server) -> None:
    code = """
import torch
print(cuda.cuLinkComplete(handle))
print(torch.nn.Conv1d(1, 1, 2, bias=False).cuda()(torch.zeros(1, 1, 4, device="cuda")).tolist())
"""
    done = server.run(PRELUDE + code)
    assert done.stdout.split("\n")[:2] == ["801", "[[[0.0, 0.0, 0.0]]]"]
    assert "cuLinkComplete is not supported" in done.stderr


#: Convolutions in every direction, on both devices, by cuDNN's older API.
OLDER = """
import os
os.environ["TORCH_CUDNN_V8_API_DISABLED"] = "1"
import torch, torch.nn.functional as F
def randn(device, *sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(device)
def convolutions(device, size=9, **layout):
    x = randn(device, 2, 4, size, size).to(**layout).requires_grad_()
    w = randn(device, 6, 2, 3, 3).to(**layout).requires_grad_()
    y = F.conv2d(x, w, stride=2, padding=1, groups=2)
    z = F.conv_transpose2d(y, w, stride=2, padding=1, groups=2)
    z.square().sum().backward()
    return [t.detach().cpu() for t in (y, z, x.grad, w.grad)]
def fused(device):
    x, w, b = randn(device, 2, 4, 9, 8), randn(device, 6, 4, 3, 3), randn(device, 6)
    z, moves = randn(device, 2, 6, 9, 8), ([1, 1], [1, 1], [1, 1], 1)
    if device == "cpu":
        y = F.conv2d(x, w, b, padding=1)
        return [y.relu(), (y + z / 2).relu()]
    return [torch.cudnn_convolution_relu(x, w, b, *moves).cpu(),
            torch.cudnn_convolution_add_relu(x, w, z, 0.5, b, *moves).cpu()]
def volumes(device):
    return [F.conv3d(randn(device, 1, 2, 4, 5, 6), randn(device, 3, 2, 2, 2, 2)).cpu()]
def same(case, **options):
    for got, wanted in zip(case("cuda", **options), case("cpu", **options), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
"""


def test_the_older_convolutions_are_those_of_torch(server: Server) -> None:
    code = """
same(convolutions); same(convolutions, memory_format=torch.channels_last)
same(fused); same(volumes)
torch.backends.cudnn.benchmark = True
same(convolutions, size=11)
torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
same(convolutions, size=13)
print("all")
"""
    done = server.run(OLDER + code)
    assert done.stdout == "all\n", done.stderr
    assert done.stderr == ""


def test_pooling_reaches_the_server_by_its_descriptor(server: Server) -> None:
    code = """
x, y, window, image, out = malloc(), malloc(), c_void_p(), c_void_p(), c_void_p()
def ints(*values): return (ctypes.c_int * len(values))(*values)
one, nothing = ctypes.c_float(1), ctypes.c_float(0)
print(cuda.cudaMemcpy(c_void_p(x), struct.pack("<4f", 1, 5, 3, 2), c_size_t(16), 1))
print(cuda.cudnnCreatePoolingDescriptor(byref(window)),
      cuda.cudnnSetPooling2dDescriptor(window, 0, 1, 2, 2, 0, 0, 2, 2),
      cuda.cudnnCreateTensorDescriptor(byref(image)), cuda.cudnnCreateTensorDescriptor(byref(out)),
      cuda.cudnnSetTensorNdDescriptor(image, 0, 4, ints(1, 1, 2, 2), ints(4, 4, 2, 1)),
      cuda.cudnnSetTensorNdDescriptor(out, 0, 4, ints(1, 1, 1, 1), ints(1, 1, 1, 1)))
def pool(window=window):
    return cuda.cudnnPoolingForward(
        handle, window, byref(one), image, c_void_p(x), byref(nothing), out, c_void_p(y))
back = ctypes.c_float()
print(pool(), pool(None), cuda.cudaMemcpy(byref(back), c_void_p(y), c_size_t(4), 2), back.value)
print(cuda.cudnnDestroyPoolingDescriptor(window), cuda.cudnnSetPooling2dDescriptor(None, *[0] * 8))
"""
    assert output(server, code) == ["0", "0 0 0 0 0 0", "0 2000 0 5.0", "0 2000"]
