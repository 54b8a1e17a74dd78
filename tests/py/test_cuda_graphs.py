"""kintsugi._cuda_graphs with a device made of the CPU: a captured graph does its operators again on the tensors it was captured with.

The same on a GPU: tests/gpu.
"""
import contextlib
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi
from kintsugi import _cuda_graphs, _launch
from kintsugi._engine import engine


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.done = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        if torch.Tag.data_dependent_output in op.tags:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.done.append((op, args, kwargs or {}, result))
        return result


class Replay:
    def __init__(self, done):
        self.done = done

    def replay(self):
        for op, args, kwargs, result in self.done:
            again = op(*args, **kwargs)
            writes = any(argument.alias_info is not None for argument in op._schema.arguments)
            if not writes:  # views and in-place operators work on the same memory again
                for old, new in zip(_tensors(result), _tensors(again)):
                    old.copy_(new)


def _tensors(value):
    return [part for part in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(part, torch.Tensor)]


class Simulated:
    """What _cuda_graphs.Device is for a GPU."""

    capturing = False

    def __init__(self):
        self.lock, self.launches, self.captures = threading.RLock(), 0, 0

    def is_capturing(self):
        return self.capturing

    def has(self, tensor):
        return tensor.device.type == "cpu"

    def random_state(self):
        return torch.get_rng_state()

    def capture(self, run):
        with Recorder() as recorder:
            results = run()
        self.captures += 1
        return Replay(recorder.done), results

    def enter_launch(self):
        self.launches += 1

    def leave_launch(self):
        pass

    def wait(self):
        pass


@pytest.fixture
def device(monkeypatch):
    simulated = Simulated()
    monkeypatch.setattr(_cuda_graphs, "device_of", lambda tensor: simulated)
    monkeypatch.setattr(_cuda_graphs.Graph, "pays", lambda self, inputs: True)
    kintsugi.reset()
    yield simulated
    kintsugi.reset()


def compiled(fn):
    return kintsugi.compile(fn, backend=_cuda_graphs.backend)


def reasons():
    return [e["reason"] for e in engine.events() if e["event"] == "fallback" and "CUDA graph" in e["reason"]]


def same(a, b):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) and a.stride() == b.stride() if isinstance(a, torch.Tensor) else a == b


def check(fn, device, calls=6, launches=None, make=lambda i: (torch.randn(4, 8, generator=torch.Generator().manual_seed(i)),), grad=False):
    run = compiled(fn)
    reasons()
    with torch.set_grad_enabled(grad):
        kept = []
        for i in range(calls):
            torch.manual_seed(i)
            expected = fn(*make(i))
            torch.manual_seed(i)
            got = run(*make(i))
            assert same(expected, got), i
            kept.append((expected, got))
        assert all(same(a, b) for a, b in kept), "a later launch changed earlier results"
    if launches is not None:
        assert device.launches >= launches, (device.launches, reasons())
    return run


def test_calls_are_launched_as_one(device):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).eval()
    check(lambda x: model(x).softmax(-1) + x, device, launches=4)
    assert device.captures <= 2 and not reasons()  # 2: an argument came back to its first address


def test_weights_are_read_where_they_are(device):
    model = nn.Linear(8, 8)
    run = check(model, device, launches=4)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(2):
            run(x)
        captures = device.captures
        model.weight.mul_(2)
        assert same(run(x), model(x)) and device.captures == captures
        model.weight.data = torch.randn(8, 8)  # another address
        assert same(run(x), model(x)) and device.captures == captures + 1
        model.weight.data = torch.randn(8, 8).t()  # ... and other strides
        assert same(run(x), model(x))
        model.weight = nn.Parameter(torch.randn(8, 8))
        for _ in range(3):
            assert same(run(x), model(x))


def test_results_that_share_memory_still_do(device):
    def fn(x):
        y = x * 2
        return y, y[0], y.t(), x, *(y + 1).chunk(2, 1)

    run = check(fn, device, launches=3)
    x = torch.randn(4, 8)
    with torch.no_grad():
        y, row, turned, given, *_ = run(x)
    y.zero_()
    assert not row.any() and not turned.any() and given is x


def test_temporary_tensors_may_be_written(device):
    check(lambda x: F.relu((x + 1).mul_(2), inplace=True).clone(), device, launches=3)


@torch.jit.script
def scripted(x):
    return x.sin() + x.cos()


DECLINED = {
    "calls scripted, which is TorchScript": lambda x: scripted(x) + x,
    "writes to an argument": lambda x: (x.add_(1), x * 2)[1],
    "draws random numbers": lambda x: x + torch.rand_like(x),
    "works on a tensor on meta": lambda x: (x * 2, torch.empty(3, device="meta").relu().shape[0] + x),
    "depends on data": lambda x: x[x > 0].sum() + x,
    "is a view of an argument": lambda x: (x[0], x + 1),
}


@pytest.mark.parametrize("why", DECLINED)
def test_declined(device, why):
    for _ in range(3):  # where TorchScript makes kernels, its first calls have other last digits
        DECLINED[why](torch.randn(4, 8))
    check(DECLINED[why], device)
    assert device.captures == 0 or why == "depends on data"
    assert any(why in reason for reason in reasons()) or why == "depends on data"


def test_batch_norm_that_counts(device):
    layers = [nn.BatchNorm1d(8) for _ in range(2)]
    run = compiled(layers[1])
    with torch.no_grad():
        for i in range(5):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(i))
            assert same(layers[0](x), run(x))
    assert all(same(a, b) for a, b in zip(layers[0].buffers(), layers[1].buffers()))
    assert device.captures == 0


def test_gradients(device):
    model = nn.Linear(8, 8)
    run = compiled(model)
    x = torch.randn(4, 8)
    for grad in (False, True, False, True, True):
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                y = run(x)
                assert y.requires_grad == grad and same(y.detach(), model(x).detach())


def test_settings_choose_kernels(device):
    run = check(lambda x: x @ x.t(), device, launches=3)
    x, captures = torch.randn(4, 8), device.captures
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        for _ in range(3):
            run(x)
    finally:
        torch.set_float32_matmul_precision(before)
    assert device.captures == captures + 1
    run(x)
    assert device.captures == captures + 1


def test_sizes_get_graphs_of_their_own(device):
    model = nn.Linear(8, 8)
    check(lambda x: model(x).sum(0), device, calls=12, make=lambda i: (torch.randn(1 + i % 3, 8, generator=torch.Generator().manual_seed(i)),))
    assert device.captures >= 2


def test_inside_the_programs_own_capture(device):
    run = check(lambda x: x * 2 + 1, device, launches=3)
    launches, x = device.launches, torch.randn(4, 8)
    with torch.no_grad():
        device.capturing = True
        assert same(run(x), x * 2 + 1) and device.launches == launches
        device.capturing = False
        assert same(run(x), x * 2 + 1) and device.launches == launches + 1


def test_what_is_not_faster_is_not_used(device, monkeypatch):
    monkeypatch.setattr(_cuda_graphs.Graph, "pays", lambda self, inputs: False)
    check(lambda x: x * 2 + 1, device)
    assert device.launches == 0 and "as fast one by one" in reasons()[0]


def test_a_capture_that_fails(device, monkeypatch):
    def fail(run):
        raise RuntimeError("CUDA error: operation not permitted\nmore")

    monkeypatch.setattr(device, "capture", fail)
    check(lambda x: x * 2 + 1, device)
    assert "capturing it raised RuntimeError: CUDA error: operation not permitted" in reasons()[0]


def test_inputs_that_move_are_copied(device):
    check(lambda x, y: x + y, device, launches=3, make=lambda i: (torch.randn(4, 8, generator=torch.Generator().manual_seed(i)), torch.ones(8)))
    wide = torch.randn(1, 8)
    check(lambda x, y: x + y, device, launches=3, make=lambda i: (torch.randn(4, 8, generator=torch.Generator().manual_seed(i)), wide.expand(4, 8)))


def test_threads(device):
    model = nn.Linear(8, 8)
    run, wrong = compiled(model), []

    def work(seed):
        with torch.no_grad():
            for i in range(20):
                x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * seed + i))
                if not same(run(x), model(x)):
                    wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("value,overlaps", [(torch.ones(3, 4), False), (torch.ones(3, 4).t(), False), (torch.ones(1, 4).expand(3, 4), True),
                                            (torch.ones(9).as_strided((3, 3), (1, 2)), True), (torch.ones(12)[::2], False), (torch.ones(0), False),
                                            (torch.ones(()), False), (torch.ones(8).unfold(0, 3, 1), True)])
def test_elements_in_one_place(value, overlaps):
    assert _cuda_graphs._overlaps(value) == overlaps


def test_modes_ask_for_it():
    for options in (dict(mode="reduce-overhead"), dict(mode="max-autotune"), dict(backend="cudagraphs"), dict(options={"cuda_graphs": True}),
                    dict(options={"triton.cudagraphs": True})):
        assert kintsugi.compile(lambda x: x, **options).kwargs["options"]["cuda_graphs"] is True
    for options in ({}, dict(mode="default"), dict(mode="max-autotune-no-cudagraphs"), dict(options={"triton.cudagraphs": False})):
        assert not (kintsugi.compile(lambda x: x, **options).kwargs["options"] or {}).get("cuda_graphs")
    with pytest.raises(TypeError, match="cuda_graphs"):
        kintsugi.compile(lambda x: x, options={"cuda_graphs": 1})


def test_records_of_inputs():
    a = torch.randn(3, 4)
    records = engine._describe_inputs((a, a.t()))
    here = (a.data_ptr()).to_bytes(8, "little")
    assert engine._inputs_fit((a, a.t()), records, here + bytes(8))
    assert not engine._inputs_fit((a.clone(), a.t()), records, here + bytes(8))
    for other in (a, a.double().t(), a.t()[:3], a.t().detach().requires_grad_()):
        assert not engine._inputs_fit((a, other), records, bytes(16))
    assert engine._describe_inputs((a, 1)) is None and engine._describe_inputs((a.to_sparse(),)) is None
    for bad in ((a,), (a, a.t(), records), ((a, a), records, bytes(15)), ([a, a], records, bytes(16))):
        with pytest.raises(TypeError):
            engine._inputs_fit(*bad)
    with pytest.raises(TypeError):
        engine._describe_inputs([a])


def test_a_busy_program_is_asked_again(device):
    with contextlib.suppress(_launch.Busy):
        device.capturing = True
        _cuda_graphs.Captures(torch.fx.symbolic_trace(lambda x: (x + 1,)), device)(torch.ones(2))
        pytest.fail("a capture inside a capture")
