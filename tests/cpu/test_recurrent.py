"""cuDNN's recurrent layers as programs meet them: dropout, autocast, mistakes, neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable

from conftest import Nursery, Server
from test_cudnn_calls import PRELUDE

#: A second layer that adds nothing: what is dropped between the two is what comes out.
DROPS = """
import torch
from torch import nn
SHARE, WIDTH = 0.25, 64
layer = nn.RNN(WIDTH, WIDTH, num_layers=2, nonlinearity="relu", dropout=SHARE).cuda()
with torch.no_grad():
    for name, weight in layer.named_parameters():
        weight.copy_(torch.eye(WIDTH) if "weight_ih" in name else torch.zeros_like(weight))
x = torch.ones(20, 8, WIDTH, device="cuda", requires_grad=True)

def run():
    y, _ = layer(x)
    return y
"""


def test_dropout_keeps_its_share_and_the_mean_and_gradients_know_it(
    server: Server, nursery: Nursery
) -> None:
    code = (
        DROPS
        + """
torch.manual_seed(3)
y = run()
y.sum().backward()
kept = y != 0
share, count = kept.float().mean().item(), y.numel()
print(abs(share - (1 - SHARE)) < 5 * (SHARE * (1 - SHARE) / count) ** 0.5)
print(torch.allclose(y[kept], torch.tensor(1 / (1 - SHARE), device="cuda")))
print(torch.equal(x.grad, y.detach()))
other = run()
torch.manual_seed(3)
print(torch.equal(y, other), torch.equal(y, run()))
print(layer.eval()(x)[0].eq(1).all().item())
"""
    )
    assert nursery.output(server, code).split() == ["True"] * 3 + ["False", "True"] + ["True"]


def test_dropout_drops_what_is_packed(server: Server, nursery: Nursery) -> None:
    code = (
        DROPS
        + """
packed = nn.utils.rnn.pack_padded_sequence(x, [20, 18, 15, 15, 9, 4, 2, 1])
y = layer(packed)[0].data
y.sum().backward()
padded = nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0]
print(tuple(y.shape), y.unique().tolist() == [0.0, torch.tensor(1 / (1 - SHARE)).item()])
print(torch.equal((x.grad != 0).sum(), (y != 0).sum()), x.grad[1:, 7].eq(0).all().item())
"""
    )
    assert nursery.output(server, code).splitlines() == ["(84, 64) True", "True True"]


def test_gradients_under_dropout_are_those_of_what_was_computed(
    server: Server, nursery: Nursery
) -> None:
    """With the same seed the same is dropped, so differences tell the gradient."""
    code = """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.LSTM(4, 6, num_layers=3, bidirectional=True, dropout=0.4).cuda().double()
leaves = [torch.randn(5, 3, 4, device="cuda").double(), *layer.parameters()]
ways = [torch.randn_like(leaf) for leaf in leaves]
weight = torch.randn(5, 3, 12, device="cuda").double()

def loss(step):
    with torch.no_grad():
        for leaf, way in zip(leaves, ways):
            leaf.add_(way, alpha=step)
    torch.manual_seed(7)
    total = (layer(leaves[0])[0] * weight).sum()
    with torch.no_grad():
        for leaf, way in zip(leaves, ways):
            leaf.sub_(way, alpha=step)
    return total

leaves[0].requires_grad_()
torch.manual_seed(7)
(layer(leaves[0])[0] * weight).sum().backward()
slope = sum((leaf.grad * way).sum() for leaf, way in zip(leaves, ways)).item()
with torch.no_grad():
    difference = ((loss(1e-6) - loss(-1e-6)) / 2e-6).item()
print(abs(slope - difference) / abs(difference))
"""
    assert float(nursery.output(server, code)) < 1e-6


def test_layers_under_autocast_compute_in_float16_and_train(
    server: Server, nursery: Nursery
) -> None:
    """PyTorch takes float16 for cuDNN's layers, whatever autocast was asked for."""
    code = """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.GRU(8, 8, num_layers=2)
x = torch.randn(6, 4, 8)
wanted, _ = layer(x)
wanted.sum().backward()
gradients = [p.grad.clone() for p in layer.parameters()]
layer.zero_grad()
layer.cuda()
with torch.autocast("cuda"):
    y, _ = layer(x.cuda())
y.sum().backward()
torch.testing.assert_close(y.float().cpu(), wanted, rtol=4e-3, atol=4e-3)
for p, gradient in zip(layer.parameters(), gradients):
    error = (p.grad.cpu() - gradient).norm() / gradient.norm()
    assert p.grad.dtype is torch.float32 and error < 1e-2, error
print(y.dtype)
"""
    assert nursery.output(server, code) == "torch.float16"


TRAIN = """
import json, torch
from torch import nn
torch.set_num_threads(1)

def train(device):
    torch.manual_seed(0)
    layer = {layer}.to(device)
    head = nn.Linear({width}, 1).to(device)
    params = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-2)
    x = torch.randn(9, 6, 10)
    losses = []
    for _ in range(8):
        loss = (head(layer(x.to(device))[0]) - x.to(device).sum(-1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

print(json.dumps([train("cuda"), train("cpu")]))
"""
LAYERS = {
    "nn.LSTM(10, 12, num_layers=2, bidirectional=True)": 24,
    "nn.GRU(10, 7, batch_first=True)": 7,
    "nn.LSTM(10, 12, proj_size=5)": 5,
}


def test_clients_train_different_layers_at_once_as_torch_does(
    server: Server, nursery: Nursery
) -> None:
    codes = [TRAIN.format(layer=layer, width=n) for layer, n in LAYERS.items()]
    for program in [nursery.start(server, code) for code in codes]:
        here, there = json.loads(program.finish())
        assert max(abs(a - b) / b for a, b in zip(here, there, strict=True)) < 1e-4
        assert here[-1] < here[0]


#: An LSTM of 6 in and 5 out, its data and its spaces, as cuDNN's API takes them.
CALLS = (
    PRELUDE
    + """
def created(name):
    d = c_void_p()
    assert getattr(cuda, "cudnnCreate%sDescriptor" % name)(byref(d)) == 0
    return d

def network(*changes, drop=None):
    values = [0, 2, 2, 0, 0, 0, 0, 0, 6, 5, 5, 1]
    for at, value in changes:
        values[at] = value
    d = created("RNN")
    return cuda.cudnnSetRNNDescriptor_v8(d, *values, drop, 0), d

def data(vector, lengths=(7, 7, 7), longest=7, fill=None):
    d = created("RNNData")
    array = (ctypes.c_int * len(lengths))(*lengths)
    return cuda.cudnnSetRNNDataDescriptor(d, 0, 0, longest, len(lengths), vector, array, fill), d

def weight_size(rnn):
    size = c_size_t()
    return cuda.cudnnGetRNNWeightSpaceSize(handle, rnn, byref(size)), size.value

def params(rnn, layer, size, space, linear, by=None):
    m, b = c_void_p(), c_void_p()
    code = cuda.cudnnGetRNNWeightParams(by or handle, rnn, layer, c_size_t(size), c_void_p(space),
                                        linear, matrix_desc, byref(m), bias_desc, byref(b))
    return code, m.value and m.value - space, b.value and b.value - space

def forward(rnn, x, y, size, space, room=(0, 0)):
    return cuda.cudnnRNNForward(
        handle, rnn, 0, None, x, c_void_p(p), y, c_void_p(p + 2048), None, None, None, None, None,
        None, c_size_t(size), c_void_p(space), c_size_t(room[0]), c_void_p(room[1]), c_size_t(0),
        None)

matrix_desc, bias_desc = created("Tensor"), created("Tensor")
p, space = malloc(), malloc()
"""
)


def test_mistakes_are_told_in_cudnns_words(server: Server) -> None:
    code = """
rnn, (_, x), (_, y) = network()[1], data(6), data(5)
size = weight_size(rnn)[1]
print(network((8, 0))[0], network((10, 6))[0], data(6, (7, 8, 7))[0], data(0)[0])
print(weight_size(created("RNN"))[0], weight_size(None)[0])
print(forward(rnn, x, y, size, space), forward(rnn, x, created("RNNData"), size, space),
      forward(rnn, x, data(4)[1], size, space), forward(rnn, x, y, size - 4, space),
      forward(rnn, x, y, size, 4104), forward(rnn, x, y, size, space, (64, 4096)))
print(params(rnn, 1, size, space, 0)[0], params(rnn, 0, size - 4, space, 0)[0],
      params(rnn, 0, size, space, 9)[0], params(rnn, 0, size, space, 8))
print(cuda.cudnnRestoreDropoutDescriptor(created("Dropout"), handle, ctypes.c_float(0.5), None,
                                         c_size_t(16), ctypes.c_ulonglong(0)),
      cuda.cudnnSetDropoutDescriptor(created("Dropout"), handle, ctypes.c_float(2), None,
                                     c_size_t(0), ctypes.c_ulonglong(0)))
print(cuda.cudaDeviceSynchronize())
"""
    assert server.output(CALLS + code).splitlines() == [
        "2000 2000 2000 2000",
        "2000 2000",
        "0 2000 2000 2000 5000 5000",
        "2000 2000 2000 (0, None, None)",
        "2000 2000",
        "0",
    ]


def test_settings_that_a_device_has_not_are_refused_by_name(server: Server) -> None:
    code = """
print(weight_size(network((2, 0))[1])[0], last_error())
print(weight_size(network((4, 1))[1])[0], last_error())
"""
    done = server.run(CALLS + code)
    first, second = done.stdout.splitlines()
    assert first == "3000 cudnn_rnn_weight_space: cuDNN RNN bias mode 0"
    assert second == "3000 cudnn_rnn_weight_space: cuDNN RNN input mode 1"
    assert done.stderr.count("bias mode 0") == 1


def test_where_weights_lie_is_asked_for_once(own_server: Callable[..., Server]) -> None:
    """PyTorch asks a thousand times an iteration: the second time nobody has to answer."""
    code = """
rnn, again = network()[1], network()[1]
size = weight_size(rnn)[1]
first = [params(rnn, 0, size, space, linear) for linear in range(8)]
print("asked", flush=True)
input()
print([params(again, 0, size, space, linear) for linear in range(8)] == first)
print(weight_size(again) == (0, size), first[0], first[1], params(again, 0, size, p, 1)[1])
print(params(network((8, 7))[1], 0, size, space, 0)[0] != 0)
"""
    server = own_server("--clients", "1")
    program = server.python(CALLS + code)
    assert program.stdout is not None
    assert program.stdout.readline() == "asked\n"
    server.stop()
    printed, _ = program.communicate("\n", timeout=60)
    assert printed.splitlines() == [
        "True", "True (0, 0, 880) (0, 120, 900) 120", "True",
    ]  # fmt: skip
