"""Operations of PyTorch that call other libraries, or other parts of CUDA."""

import torch
from case import Setting, Skip, case, need, pick, randn, with_grads
from torch import linalg

SINGLE, BATCHED = (24, 24), (5, 8, 8)


def square(shape, dtype=torch.float32):
    """Well conditioned."""
    return randn(*shape, dtype=dtype) + 8 * torch.eye(shape[-1], device=Setting.device, dtype=dtype)


def symmetric(shape, dtype=torch.float32):
    x = square(shape, dtype)
    return x @ x.mT


LINALG = {
    "solve": lambda s, d: [linalg.solve(square(s, d), randn(*s, dtype=d))],
    "inv": lambda s, d: [linalg.inv(square(s, d))],
    "det": lambda s, d: [linalg.det(square(s, d)), *linalg.slogdet(square(s, d))],
    "lu": lambda s, d: list(linalg.lu(square(s, d))),
    "lu_factor, lu_solve": lambda s, d: [
        linalg.lu_solve(*linalg.lu_factor(square(s, d)), randn(*s, dtype=d))],
    "qr": lambda s, d: list(linalg.qr(square(s, d))),
    "svd": lambda s, d: list(linalg.svd(square(s, d))),
    "svdvals": lambda s, d: [linalg.svdvals(square(s, d))],
    "eigh": lambda s, d: list(linalg.eigh(symmetric(s, d))),
    "eig": lambda s, d: list(linalg.eig(square(s, d))),
    "lstsq": lambda s, d: [linalg.lstsq(square(s, d), randn(*s, dtype=d)).solution],
    "cholesky": lambda s, d: [linalg.cholesky(symmetric(s, d))],
    "cholesky_solve": lambda s, d: [
        torch.cholesky_solve(randn(*s, dtype=d), linalg.cholesky(symmetric(s, d)))],
    "cholesky_inverse": lambda s, d: [torch.cholesky_inverse(linalg.cholesky(symmetric(s, d)))],
    "solve_triangular": lambda s, d: [
        linalg.solve_triangular(square(s, d).triu(), randn(*s, dtype=d), upper=True)],
    "pinv": lambda s, d: [linalg.pinv(square(s, d))],
    "matrix_exp": lambda s, d: [linalg.matrix_exp(square(s, d) / 16)],
    "matrix_norm": lambda s, d: [linalg.matrix_norm(square(s, d), 2)],
    "ldl": lambda s, d: list(linalg.ldl_factor(symmetric(s, d))),
    "householder": lambda s, d: [linalg.householder_product(*torch.geqrf(square(s, d)))],
}
for name, function in LINALG.items():
    case(f"linalg.{name}", SINGLE, torch.float32)(function)
    case(f"linalg.{name} batched", BATCHED, torch.float32)(function)
for name in ("solve", "qr", "eigh", "cholesky"):
    case(f"linalg.{name} fp64", SINGLE, torch.float64)(LINALG[name])
    case(f"linalg.{name} complex", SINGLE, torch.complex64)(LINALG[name])


def magma(name):
    torch.backends.cuda.preferred_linalg_library("magma")
    try:
        return LINALG[name](SINGLE, torch.float32)
    finally:
        torch.backends.cuda.preferred_linalg_library("default")


for name in ("solve", "inv", "qr", "svd", "eigh", "cholesky"):
    case(f"linalg.{name} with MAGMA", name)(magma)


@case("linalg gradients")
def gradients():
    found = with_grads(linalg.solve, square(SINGLE), randn(*SINGLE))
    found += with_grads(linalg.cholesky, symmetric(SINGLE))
    return found + with_grads(linalg.inv, square(BATCHED))


FFT = {
    "fft": lambda: [torch.fft.fft(randn(4, 60))],
    "fft of an odd length": lambda: [torch.fft.fft(randn(4, 61, dtype=torch.complex64))],
    "rfft, irfft": lambda: [torch.fft.rfft(randn(4, 64)), torch.fft.irfft(torch.fft.rfft(randn(4, 64)))],
    "fft2": lambda: [torch.fft.fft2(randn(2, 16, 24))],
    "fftn fp64": lambda: [torch.fft.fftn(randn(8, 8, 8, dtype=torch.float64))],
    "rfft fp16": lambda: [torch.fft.rfft(randn(4, 64, dtype=torch.float16))],
    "fft backward": lambda: with_grads(lambda x: torch.view_as_real(torch.fft.rfft(x)), randn(4, 64)),
    "stft, istft": lambda: [stft(), torch.istft(stft(), 64, window=torch.hann_window(64, device=Setting.device))],
}


def stft():
    window = torch.hann_window(64, device=Setting.device)
    return torch.stft(randn(2, 512), 64, window=window, return_complex=True)


def transform(name):
    if name == "rfft fp16" and Setting.device == "cpu":
        raise Skip("the CPU has none")
    return FFT[name]()


for name in FFT:
    case(f"fft.{name}", name)(transform)


def sparse():
    return randn(32, 48).relu().sub(0.5).relu()


SPARSE = {
    "coo @ dense": lambda: [torch.sparse.mm(sparse().to_sparse(), randn(48, 8))],
    "csr @ dense": lambda: [sparse().to_sparse_csr() @ randn(48, 8)],
    "csr @ vector": lambda: [sparse().to_sparse_csr() @ randn(48)],
    "csr @ csr": lambda: [(sparse().to_sparse_csr() @ sparse().t().to_sparse_csr()).to_dense()],
    "coo @ coo": lambda: [torch.sparse.mm(sparse().to_sparse(), sparse().t().to_sparse()).to_dense()],
    "sampled_addmm": lambda: [torch.sparse.sampled_addmm(sparse().to_sparse_csr(), randn(32, 8), randn(8, 48)).to_dense()],
    "coalesce, add": lambda: [(sparse().to_sparse() + sparse().to_sparse()).coalesce().to_dense()],
    "csr add": lambda: [(sparse().to_sparse_csr() + sparse().to_sparse_csr()).to_dense()],
    "softmax": lambda: [torch.sparse.softmax(sparse().to_sparse(), 1).to_dense()],
    "bsr @ dense": lambda: [sparse().to_sparse_bsr((16, 16)) @ randn(48, 16)],
    "gradient": lambda: with_grads(lambda d: torch.sparse.mm(sparse().to_sparse(), d), randn(48, 8)),
    "embedding": lambda: embedding(),
    "triangular solve": lambda: [torch.triangular_solve(randn(32, 2), (torch.eye(32) + torch.ones(32, 32).triu() * 0.1).to(Setting.device).to_sparse_csr(), upper=True).solution],
}


def embedding():
    layer = torch.nn.Embedding(30, 8, sparse=True).to(Setting.device)
    layer(torch.arange(0, 30, 3, device=Setting.device)).square().sum().backward()
    optimizer = torch.optim.SparseAdam(layer.parameters())
    optimizer.step()
    return [layer.weight, layer.weight.grad.to_dense()]


for name, function in SPARSE.items():
    case(f"sparse: {name}")(function)


@case("semi-structured sparsity")
def semi_structured():
    if Setting.device == "cpu":
        raise Skip("a GPU's")
    from torch.sparse import to_sparse_semi_structured

    dense = torch.tensor([0, 0, 1, 1], dtype=torch.float16).tile(128, 32).cuda()
    weight = (dense * randn(128, 128, dtype=torch.float16)).contiguous()
    return [to_sparse_semi_structured(weight) @ randn(128, 64, dtype=torch.float16)]


JITERATED = (
    "bessel_j0", "bessel_j1", "bessel_y0", "modified_bessel_i0", "modified_bessel_k1", "airy_ai",
    "scaled_modified_bessel_k0", "spherical_bessel_j0", "i1e", "ndtri", "log_ndtr", "erfcx",
)  # fmt: skip
for name in JITERATED:
    case(f"special.{name}", name)(
        lambda name: [getattr(torch.special, name)(torch.linspace(0.1, 0.9, 1000).to(Setting.device))]
    )
for name in ("gcd", "lcm"):
    case(name, name)(
        lambda name: [getattr(torch, name)(torch.arange(1, 100).to(Setting.device), torch.tensor(36).to(Setting.device))]
    )
for name in ("zeta", "chebyshev_polynomial_t", "hermite_polynomial_h"):
    case(f"special.{name}", name)(
        lambda name: [getattr(torch.special, name)(torch.linspace(1.5, 4, 1000).to(Setting.device), torch.tensor(3.0).to(Setting.device))]
    )


@case("complex functions")
def complex_functions():
    x = randn(1000, dtype=torch.complex64)
    return [x.exp(), x.tanh(), x.abs(), x.prod(), x.sigmoid(), x.reciprocal(), x.sum()]


@case("jiterator: a kernel of the program's own")
def jiterator():
    if Setting.device == "cpu":
        raise Skip("a GPU's")
    source = "template <typename T> T mine(T x, T y, T alpha) { return alpha * x * x + y; }"
    mine = torch.cuda.jiterator._create_jit_fn(source, alpha=2.0)
    return [mine(randn(100), randn(100)), mine(randn(100), randn(100), alpha=3.0)]


def small():
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    )
    return model.to(Setting.device)


@case("torch.compile of a small model", {})
@case("torch.compile, reduce-overhead", {"mode": "reduce-overhead"})
def compiled(settings):
    if Setting.device == "cuda":
        need("triton")
    model, x = small(), randn(8, 16)
    fast = torch.compile(model, **settings)

    def step():
        model.zero_grad()
        out = fast(x).clone()
        out.square().sum().backward()
        return [out, *(p.grad for p in model.parameters())]

    return step


@case("torch.compile, eager backend")
def compiled_eagerly():
    model, x = small(), randn(8, 16)
    return [torch.compile(model, backend="aot_eager")(x)]


def needs_graphs():
    if Setting.device == "cpu":
        raise Skip("the CPU has no graphs")


@case("CUDA graph")
def graph():
    needs_graphs()
    x = randn(64, 64)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (x @ x).relu()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        y = (x @ x).relu() + 1
    found = []
    for i in range(3):
        x.copy_(torch.full((64, 64), float(i)))
        recorded.replay()
        found.append(y.clone())
    return found


@case("CUDA graph of a whole step")
def graph_of_step():
    needs_graphs()
    model, x, y = small(), randn(8, 16), randn(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = step()

    def replay():
        recorded.replay()
        return [loss.clone()]

    return replay


@case("make_graphed_callables")
def graphed():
    needs_graphs()
    model, x = small(), randn(8, 16, )
    fast = torch.cuda.make_graphed_callables(model, (x.clone().requires_grad_(),))

    def step():
        model.zero_grad()
        out = fast(x.clone().requires_grad_())
        out.square().sum().backward()
        return [out.clone(), *(p.grad.clone() for p in model.parameters())]

    return step


def double(given, back):
    back.put((given.get() * 2).cpu().numpy().tobytes())


@case("a CUDA tensor given to another process")
def ipc():
    import torch.multiprocessing as processes

    spawn = processes.get_context("spawn")
    given, back = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=double, args=(given, back), daemon=True)
    child.start()
    try:
        x = torch.arange(1000, dtype=torch.float32).to(Setting.device)
        processes.reductions.reduce_tensor(x)  # fails here, not in the queue's thread
        given.put(x)
        found = torch.frombuffer(bytearray(back.get(timeout=40)), dtype=torch.float32)
    finally:
        child.join(5)
        child.kill()
    return [found]


@case("share_memory between processes on the host")
def shared():
    import torch.multiprocessing as processes

    spawn = processes.get_context("spawn")
    given, back = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=double, args=(given, back), daemon=True)
    child.start()
    given.put(torch.arange(100, dtype=torch.float32).share_memory_())
    return [torch.frombuffer(bytearray(back.get(timeout=40)), dtype=torch.float32)]


@case("deterministic algorithms")
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        x, where = randn(100, 8), torch.arange(100, device=Setting.device) % 7
        zeros = torch.zeros(7, 8, device=Setting.device)
        return [zeros.index_add(0, where, x), x.cumsum(0), x @ x.t()]
    finally:
        torch.use_deterministic_algorithms(False)


@case("random numbers")
def random():
    if Setting.device == "cpu":
        raise Skip("a CPU draws others than a GPU")
    generator = torch.Generator("cuda").manual_seed(3)
    like = {"device": "cuda", "generator": generator}
    found = [torch.rand(100, **like), torch.randn(101, **like), torch.randperm(1000, **like)]
    state = torch.cuda.get_rng_state()
    found += [torch.rand(10, device="cuda")]
    torch.cuda.set_rng_state(state)
    found += [torch.rand(10, device="cuda"), torch.multinomial(torch.rand(50, **like), 9, generator=generator)]
    return [*found, torch.bernoulli(torch.rand(50, **like), generator=generator),
            torch.empty(50, device="cuda").exponential_(generator=generator), torch.poisson(torch.rand(50, **like) * 9, generator=generator)]


@case("torch.profiler with CUDA activities")
def profiled():
    if Setting.device == "cpu":
        raise Skip("a GPU's")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        x = randn(64, 64) @ randn(64, 64)
        torch.cuda.synchronize()
    assert any("mm" in event.key for event in found.key_averages())
    return [x]


@case("NCCL, one process")
def nccl():
    if Setting.device == "cpu":
        raise Skip("a GPU's")
    import tempfile

    import torch.distributed as distributed

    with tempfile.NamedTemporaryFile() as file:
        distributed.init_process_group("nccl", f"file://{file.name}", rank=0, world_size=1)
        x = randn(100)
        distributed.all_reduce(x)
        distributed.destroy_process_group()
    return [x]
