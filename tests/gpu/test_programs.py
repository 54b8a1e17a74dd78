"""Programs on a GPU: each is called several times in eager and compiled, and results, random numbers and exceptions agree.

They run where PyTorch has a GPU, and are skipped elsewhere: `make gpu`.
"""
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CALLS = 5
PROGRAMS = {}


def program(fn):
    """Registers maker() -> (function, arguments of call i)."""
    PROGRAMS[fn.__name__] = fn
    return fn


def tensor(i, *shape, device="cuda", dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * i + sum(shape))
    return torch.randn(*shape, generator=generator).to(device=device, dtype=dtype)


def layers():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)).cuda()


@program
def pointwise():
    return lambda x, y: (x * y + 1).relu().tanh() - y.mean(0), lambda i: (tensor(i, 8, 16), tensor(i + 50, 8, 16))


@program
def module():
    model = layers().eval()
    return lambda x: model(x).softmax(-1), lambda i: (tensor(i, 4, 16),)


@program
def module_in_half_precision():
    model = layers().eval().half()
    return model, lambda i: (tensor(i, 4, 16, dtype=torch.float16),)


@program
def autocast():
    model = layers().eval()

    def run(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x), x @ x.mT
    return run, lambda i: (tensor(i, 4, 16),)


@program
def attention():
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), lambda i: tuple(
        tensor(i + 10 * j, 2, 4, 16, 32) for j in range(3))


@program
def convolution():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).cuda().eval()
    return model, lambda i: (tensor(i, 2, 3, 16, 16),)


@program
def dropout():
    return lambda x: F.dropout(x, 0.5, training=True) + torch.rand_like(x), lambda i: (tensor(i, 8, 16),)


@program
def random_factories():
    return lambda x: x + torch.rand(4, device="cuda") + torch.randn(4, device=x.device) * torch.randint(3, (4,), device="cuda"), lambda i: (tensor(i, 4),)


@program
def factories():
    return lambda x: x + torch.arange(4, device="cuda") + torch.zeros(4, device=x.device) + torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda"), \
        lambda i: (tensor(i, 4),)


@program
def device_of_an_argument():
    return lambda x: (x * 2 if x.is_cuda else x * 3) + (1 if x.device.type == "cuda" else 5) + x.get_device(), \
        lambda i: (tensor(i, 4, device="cuda" if i % 2 else "cpu"),)


@program
def moves():
    return lambda x: (x.cpu() + 1).cuda() * x.to("cuda", non_blocking=True) + x.to("cpu").sum().item(), lambda i: (tensor(i, 4),)


@program
def numbers_in_host_memory():
    scale = torch.tensor(2.5)
    return lambda x: x * scale + torch.tensor(0.5), lambda i: (tensor(i, 4),)


@program
def mixed_devices_raise():
    return lambda x, y: x + y, lambda i: (tensor(i, 4), tensor(i, 4, device="cpu" if i == 3 else "cuda"))


@program
def branch_on_data():
    def run(x):
        if x.sum() > 0:
            return x.exp()
        return x - 1
    return run, lambda i: (tensor(i, 4),)


@program
def size_by_data():
    return lambda x: (x[x > 0].cumsum(0), x.nonzero().sum(0)), lambda i: (tensor(i, 16),)


@program
def in_place():
    def run(x):
        x.mul_(2).add_(1)
        y = x.clone()
        y[0] = 7
        return x, y
    return run, lambda i: (tensor(i, 4, 4),)


@program
def buffer_that_counts():
    counter = torch.zeros((), device="cuda")

    def run(x):
        counter.add_(1)
        return x * counter
    return run, lambda i: (tensor(i, 4),)


@program
def views_of_arguments():
    return lambda x: (x.t(), x[0], x.view(-1), x), lambda i: (tensor(i, 4, 4),)


@program
def stream_inside():
    side = torch.cuda.Stream()

    def run(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return y + x
    return run, lambda i: (tensor(i, 1024),)


@program
def event_inside():
    def run(x):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        y = x @ x
        end.record()
        torch.cuda.synchronize()
        return y, start.elapsed_time(end) >= 0
    return run, lambda i: (tensor(i, 64, 64),)


@program
def memory_questions():
    return lambda x: (x * 2, torch.cuda.is_available(), torch.cuda.device_count() > 0, torch.cuda.current_device(), torch.cuda.memory_allocated() > 0), \
        lambda i: (tensor(i, 4),)


@program
def device_context():
    def run(x):
        with torch.cuda.device(0), torch.device("cuda"):
            return x + torch.ones(4) + torch.zeros(4, device=f"cuda:{torch.cuda.current_device()}")
    return run, lambda i: (tensor(i, 4),)


@program
def pinned_memory():
    return lambda x: x.pin_memory().to("cuda", non_blocking=True) + 1, lambda i: (tensor(i, 4, device="cpu"),)


@program
def numpy_on_the_way():
    return lambda x: torch.from_numpy(x.cpu().numpy() * 2).cuda(), lambda i: (tensor(i, 4),)


@program
def sparse():
    return lambda x: (x.relu().to_sparse() @ x).to_dense() if x.dim() == 2 else x, lambda i: (tensor(i, 4, 4),)


@program
def complex_numbers():
    return lambda x: torch.fft.ifft(torch.fft.fft(x) * 2j).abs(), lambda i: (tensor(i, 16),)


@program
def recurrent():
    torch.manual_seed(5)
    model = nn.LSTM(8, 16, 2).cuda().eval()
    return lambda x: model(x)[0], lambda i: (tensor(i, 5, 2, 8),)


@program
def other_sizes():
    model = layers().eval()
    return lambda x: model(x).sum(0), lambda i: (tensor(i, 2 + i, 16),)


@program
def linear_algebra():
    return lambda x: torch.linalg.solve(x @ x.mT + 4 * torch.eye(4, device="cuda"), x), lambda i: (tensor(i, 4, 4),)


@torch.jit.script
def scripted_part(x, y):
    return (x + 1).relu() * 2 + y.abs()


@program
def scripted_functions():
    """TorchScript makes kernels of its own for them from the second call on."""
    return lambda x, y: (scripted_part(x, y) - y).tanh() + scripted_part(y.mT, x.mT).sum(0), lambda i: (tensor(i, 8, 8), tensor(i + 50, 8, 8))


@program
def choices_by_data():
    """An assertion in a kernel that did not hold would end all work on the device."""
    def run(x):
        total, size = x.sum() + 2, x.abs().amax()
        return x * min(total, 3), x + max(size, 1), [x * n for n in range(int(size * 3))]
    return run, lambda i: (tensor(i, 2, 3) * (i % 3),)


@program
def printing():
    return lambda x: (repr(x), str(x.device), f"{x.sum().item():.3f}"), lambda i: (tensor(i, 3),)


def run_one(fn, arguments):
    """Result (or exception), arguments after the call, and the states of the random number generators."""
    try:
        result = fn(*arguments)
    except Exception as error:
        result = type(error).__name__, str(error)
    return result, arguments, [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.device == b.device and a.stride() == b.stride() and a.requires_grad == b.requires_grad and a.layout == b.layout and \
            torch.equal(a.to_dense() if a.is_sparse else a, b.to_dense() if b.is_sparse else b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def calls(make, compiled, grad, **options):
    torch.manual_seed(0)
    fn, arguments = make()
    run = kintsugi.compile(fn, **options) if compiled else fn
    out = []
    for i in range(CALLS):
        with torch.set_grad_enabled(grad):
            out.append(run_one(run, arguments(i)))
    return out, run


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    with kintsugi.config.patch(kernels=True):
        yield
    kintsugi.reset()


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "gradients"])
@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"backend": lambda gm, examples: gm}, {"mode": "reduce-overhead"}],
                         ids=["default", "eager", "custom", "reduce-overhead"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, options, grad):
    expected, _ = calls(PROGRAMS[name], False, grad)
    got, run = calls(PROGRAMS[name], True, grad, **options)
    for i, (a, b) in enumerate(zip(expected, got)):
        assert same(a, b), f"call {i}: {a} against {b}"
    stats = kintsugi.stats(run)
    assert stats["replays"] > 0 or stats["recordings"] > 0, stats


def train(compiled, **options):
    torch.manual_seed(0)
    model = layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda")

    def step(x, y):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    run = kintsugi.compile(step, **options) if compiled else step
    losses = [run(tensor(i, 4, 16), torch.arange(4, device="cuda")) for i in range(CALLS)]
    return losses, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}], ids=["default", "reduce-overhead"])
def test_training_step(options):
    assert same(train(False), train(True, **options))


def test_on_another_stream():
    fn, arguments = pointwise()
    run = kintsugi.compile(fn)
    for i in range(CALLS):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            got = run(*arguments(i))
        torch.cuda.current_stream().wait_stream(stream)
        assert same(got, fn(*arguments(i)))


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}], ids=["default", "reduce-overhead"])
def test_inside_the_programs_own_capture(options):
    """torch.cuda.graph() around compiled calls holds what the calls do."""
    fn, arguments = module()
    run = kintsugi.compile(fn, **options)
    with torch.no_grad():
        for i in range(CALLS):
            run(*arguments(i))
        torch.cuda.synchronize()
        x = arguments(0)[0].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        for i in range(3):
            x.copy_(arguments(i)[0])
            graph.replay()
            assert same(y, fn(x))


def launched_and_dropped():
    """Compiled functions come and go; what they captured goes with them, and others are captured."""
    from kintsugi import _cuda_graphs

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cuda_graphs.Graph, "pays", lambda self, inputs: True)
        device = _cuda_graphs.device_of(torch.zeros(1, device="cuda"))
        for n in range(4):
            model, before = layers(), device.launches
            run = kintsugi.compile(model, mode="reduce-overhead")
            for i in range(6):
                x = tensor(i, 4, 16)
                assert same(run(x), model(x))
            assert device.launches >= before + 3, [e for e in kintsugi._kintsugi.events() if e["event"] == "fallback"]
            kintsugi.reset()
            del run
    print("dropped")


def capture_that_fails():
    """Prints whether random numbers go on as if nothing had happened; in a process of its own, as nothing is captured after it."""
    from kintsugi import _cuda_graphs

    x = torch.ones(2, device="cuda")
    device = _cuda_graphs.device_of(x)
    torch.manual_seed(3)
    expected = torch.rand(4, device="cuda"), torch.rand(4, device="cuda")
    torch.manual_seed(3)
    first = torch.rand(4, device="cuda")
    try:
        device.capture(lambda: x.sum().item())
    except Exception as error:
        print(type(error).__name__)
    print(same(expected, (first, torch.rand(4, device="cuda"))), device.broken is not None)


def in_own_process(name):
    """What it prints: after a capture that the driver ended, nothing is captured in a process any more."""
    code = f"import test_programs as t; t.{name}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent,
                          env={**os.environ, "KINTSUGI_KERNELS": "1"})
    return done.stdout.split(), done.stdout + done.stderr


def test_graphs_are_launched_and_dropped():
    said, everything = in_own_process("launched_and_dropped")
    assert said[-1:] == ["dropped"], everything


def test_random_numbers_after_a_capture_that_fails():
    """PyTorch leaves its generator in the middle of a capture that failed; the next draw would raise."""
    said, everything = in_own_process("capture_that_fails")
    assert said[-2:] == ["True", "True"], everything
