"""Weights that are packed, folded or computed with ahead of calls: right after every way to change them, and given back."""

import copy
import ctypes
import gc
import io
import os
import threading

import pytest
import torch
from torch import nn

from launches import engine, kintsugi, versions

from kintsugi._api import engine_of  # noqa: E402


@pytest.fixture(autouse=True)
def no_grad(kernels):
    with torch.no_grad():
        yield


def frozen(compiled):
    return [v["frozen"] for v in versions(compiled) if v["frozen"] is not None]


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
    assert a.stride() == b.stride()


# -- what is kept of weights: (module, input, path of the tensor that changes) ---------------------------------------


class Constant(nn.Module):
    """The same number for each call, out of a large weight; and of a small one."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size, 64) + 0.5)

    def forward(self, x):
        return x * (self.weight * self.weight).sum(0).sqrt()


class Chain(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return torch.relu(self.second(self.first(x)))


def conv():
    return Chain(nn.Conv2d(8, 64, 3, padding=1), nn.Identity()), torch.randn(1, 8, 10, 10), "first.weight"


def small_conv():
    return Chain(nn.Conv2d(3, 8, 3), nn.Identity()), torch.randn(1, 3, 9, 9), "first.weight"


def folded():
    return Chain(nn.Conv2d(8, 64, 3, bias=False), nn.BatchNorm2d(64)), torch.randn(2, 8, 9, 9), "second.weight"


def folded_weight():
    model, x, _ = folded()
    return model, x, "first.weight"


def folded_buffer():
    model, x, _ = folded()
    return model, x, "second.running_var"


def linear():
    return Chain(nn.Linear(256, 128), nn.Tanh()), torch.randn(16, 256), "first.weight"


class Together(nn.Module):
    """Products of one matrix: computed as one."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(128, n, bias=n != 96) for n in (64, 96, 128))

    def forward(self, x):
        return torch.cat([torch.tanh(self.q(x)), self.k(x) * 2, self.v(x)], -1)


def together():
    return Together(), torch.randn(2, 12, 128), "k.weight"


def constant():
    return Constant(256), torch.randn(5, 64), "weight"


def small_constant():
    return Constant(3), torch.randn(5, 64), "weight"


KEPT = [conv, small_conv, folded, folded_weight, folded_buffer, linear, together, constant, small_constant]


def parts(model, path):
    owner, _, name = path.rpartition(".")
    return model.get_submodule(owner), name


def fresh(t):
    return torch.rand_like(t) * 0.5 + 0.25


# -- ways to change one: (before the first call, change); both get (model, path) --------------------------------------


def with_tensor(change, prepare=None):
    def apply(fn):
        def run(model, path, keep):
            owner, name = parts(model, path)
            fn(getattr(owner, name), keep)
        return run
    return apply(prepare) if prepare else (lambda *args: None), apply(change)


def optimizer(model, path, keep):
    owner, name = parts(model, path)
    p = getattr(owner, name)
    if not isinstance(p, nn.Parameter):
        pytest.skip("a buffer")
    with torch.enable_grad():
        p.grad = fresh(p)
        torch.optim.Adam([p], lr=0.3).step()


def load_state(model, path, keep):
    state = copy.deepcopy(model.state_dict())
    state[path] = fresh(state[path])
    model.load_state_dict(state)


def state_of(model, path, keep):
    model.state_dict()[path].copy_(fresh(model.state_dict()[path]))


def swap_module(model, path, keep):
    owner, name = parts(model, path)
    other = copy.deepcopy(owner)
    getattr(other, name).data.copy_(fresh(getattr(owner, name)))
    where = path.rpartition(".")[0]
    if not where:
        pytest.skip("the model itself")
    setattr(model, where, other)


def new_object(model, path, keep):
    owner, name = parts(model, path)
    t = getattr(owner, name)
    setattr(owner, name, nn.Parameter(fresh(t)) if isinstance(t, nn.Parameter) else fresh(t))


def tie(model, path, keep):
    owner, name = parts(model, path)
    keep.append(copy.deepcopy(owner))
    setattr(keep[0], name, getattr(owner, name))


def change_tied(model, path, keep):
    t = getattr(keep[0], parts(model, path)[1])
    t.data.mul_(1.5)


def as_vector(model, path, keep):
    params = list(model.parameters())
    vector = nn.utils.parameters_to_vector(params)
    nn.utils.vector_to_parameters(vector * 1.25 + 0.01, params)
    if path not in dict(model.named_parameters()):
        pytest.skip("a buffer")


def take_numpy(t, keep):
    keep.append(t.detach().numpy().copy())
    t.data = torch.from_numpy(keep[0])


def memmove(t, keep):
    new = fresh(t)
    ctypes.memmove(t.data_ptr(), new.data_ptr(), new.numel() * 4)


def read_into(t, keep):
    data = io.BytesIO(fresh(t).numpy().tobytes())
    data.readinto(memoryview(t.detach().numpy()).cast("B"))


def read_file(t, keep):
    receive, send = os.pipe()
    os.write(send, fresh(t).numpy().tobytes()[:4096])
    os.close(send)
    os.readv(receive, [memoryview(t.detach().numpy()).cast("B")[:4096]])
    os.close(receive)


def other_thread(t, keep):
    thread = threading.Thread(target=lambda: t.data.copy_(fresh(t)))
    thread.start()
    thread.join()


def share(t, keep):
    t.share_memory_()
    t.data.copy_(fresh(t))


WAYS = {
    "optimizer": (lambda *args: None, optimizer),
    "load_state_dict": (lambda *args: None, load_state),
    "state_dict": (lambda *args: None, state_of),
    "swapped module": (lambda *args: None, swap_module),
    "new parameter": (lambda *args: None, new_object),
    "tied": (tie, change_tied),
    "vector_to_parameters": (lambda *args: None, as_vector),
    "in place": with_tensor(lambda t, keep: t.mul_(1.5)),
    "one element": with_tensor(lambda t, keep: t.view(-1)[-1:].add_(3.0)),
    "data =": with_tensor(lambda t, keep: setattr(t, "data", fresh(t))),
    "data.copy_": with_tensor(lambda t, keep: t.data.copy_(fresh(t))),
    "numpy view": with_tensor(lambda t, keep: t.detach().numpy().__setitem__(..., fresh(t).numpy())),
    "from_numpy": with_tensor(lambda t, keep: keep[0].__imul__(1.5), take_numpy),
    "storage copy": with_tensor(lambda t, keep: t.untyped_storage().copy_(fresh(t).untyped_storage())),
    "set_": with_tensor(lambda t, keep: t.set_(fresh(t))),
    "swap_tensors": with_tensor(lambda t, keep: torch.utils.swap_tensors(
        t, nn.Parameter(fresh(t)) if isinstance(t, nn.Parameter) else fresh(t))),
    "memmove": with_tensor(memmove),
    "readinto": with_tensor(read_into),
    "read(2)": with_tensor(read_file),
    "thread": with_tensor(other_thread),
    "shared memory": with_tensor(share),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kept", KEPT, ids=lambda fn: fn.__name__)
def test_change_between_calls(kept, way):
    torch.manual_seed(3)
    model, x, path = kept()
    model.eval()
    prepare, change = WAYS[way]
    keep = []
    prepare(model, path, keep)
    compiled = kintsugi.compile(model)
    for _ in range(3):
        same(compiled(x), model(x))
    assert any(f["sets"] == 1 and f["bytes"] > 0 for f in frozen(compiled)), versions(compiled)
    before = model(x)
    for _ in range(2):
        change(model, path, keep)
        after = model(x)
        assert not torch.equal(after, before)
        same(compiled(x), after)
        same(compiled(x), after)
        before = after


# -- around it --------------------------------------------------------------------------------------------------------


def test_unchanged_weights_are_prepared_once():
    model, x, _ = folded()
    model.eval()
    compiled = kintsugi.compile(model)
    for _ in range(6):
        same(compiled(x), model(x))
    assert [f["renewals"] for f in frozen(compiled)] == [1]


def test_small_models_watch_nothing():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    compiled = kintsugi.compile(model)
    for _ in range(4):
        x = torch.randn(2, 8)
        same(compiled(x), model(x))
    assert sum(v["runs"] for v in versions(compiled)) > 0 and frozen(compiled) == []


def test_switched_off():
    with kintsugi.config.patch(freezing=False):
        model, x, path = linear()
        compiled = kintsugi.compile(model)
        for _ in range(3):
            same(compiled(x), model(x))
            model.first.weight.detach().numpy()[...] *= 1.5
        assert sum(v["runs"] for v in versions(compiled)) > 0 and frozen(compiled) == []


def test_without_room_nothing_is_kept():
    """Packed weights take as much memory as the weights: a system that has no more does not say so."""
    with kintsugi.config.patch(weights_memory_percent=0):
        model, x, path = linear()
        compiled = kintsugi.compile(model)
        for _ in range(6):
            same(compiled(x), model(x))
            model.first.weight.detach().numpy()[...] *= 1.5
        assert sum(v["runs"] for v in versions(compiled)) > 0 and frozen(compiled) == []
    assert any("more than 0% of" in str(event) for event in engine.events())


def test_what_changes_all_the_time_is_not_frozen():
    model, x, path = linear()
    compiled = kintsugi.compile(model)
    for _ in range(40):
        model.first.weight.mul_(0.99)
        same(compiled(x), model(x))
    assert frozen(compiled) == [] and sum(v["runs"] for v in versions(compiled)) > 0


def test_memory_is_given_back():
    def apply(model, x):
        return torch.relu(model(x))

    compiled = kintsugi.compile(apply)
    for _ in range(5):
        model, x, _ = linear()
        for _ in range(3):
            same(compiled(model, x), apply(model, x))
    assert max((f["sets"] for f in frozen(compiled)), default=0) <= 1
    del model
    gc.collect()
    assert sum(f["bytes"] for f in frozen(compiled)) == 0


def test_copies_of_a_module():
    model, x, _ = linear()
    compiled = kintsugi.compile(model)
    for _ in range(3):
        same(compiled(x), model(x))
    other = copy.deepcopy(model)
    twice = kintsugi.compile(other)
    other.first.weight.data.mul_(2)
    for _ in range(3):
        same(twice(x), other(x))
        same(compiled(x), model(x))


def test_two_functions_with_the_same_weights():
    model, x, _ = linear()
    first = kintsugi.compile(lambda x: model(x) + 1)
    second = kintsugi.compile(lambda x: model(x) * 2)
    for i in range(6):
        if i > 2:
            model.first.weight.detach().numpy()[0, i] += 1
        same(first(x), model(x) + 1)
        same(second(x), model(x) * 2)


def test_layers_that_share_their_code():
    torch.manual_seed(5)
    layers = [nn.Linear(192, 192) for _ in range(4)]
    step = kintsugi.compile(lambda layer, x: torch.tanh(layer(x)))
    x = torch.randn(16, 192)
    for i in range(5):
        got = want = x
        for layer in layers:
            got, want = step(layer, got), torch.tanh(layer(want))
        same(got, want)
        layers[i % 4].weight.data.view(-1)[7] += 0.5


def test_threads():
    model, x, _ = folded()
    model.eval()
    compiled = kintsugi.compile(model)
    for _ in range(3):
        compiled(x)
    expected, wrong = model(x), []

    def work():
        with torch.no_grad():
            for _ in range(30):
                if not torch.allclose(compiled(x), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for i in range(20): # the same values again: written, not changed
        model.first.weight.data.copy_(model.first.weight.data.clone())
    for t in threads:
        t.join()
    assert wrong == []
    model.first.weight.data.mul_(2)
    same(compiled(x), model(x))


@pytest.mark.parametrize("kept", [folded_weight, linear, constant], ids=lambda fn: fn.__name__)
def test_fork(kept):
    model, x, path = kept()
    model.eval()
    compiled = kintsugi.compile(model)
    for _ in range(3):
        same(compiled(x), model(x))
    owner, name = parts(model, path)
    weight = getattr(owner, name)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            for _ in range(3):
                weight.detach().numpy()[...] *= 1.25
                after = model(x)
                same(compiled(x), after)
                same(compiled(x), after)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    same(compiled(x), model(x))
    weight.detach().numpy()[...] *= 0.5
    same(compiled(x), model(x))


def test_shared_memory_is_left_alone():
    model, x, path = linear()
    model.share_memory()
    compiled = kintsugi.compile(model)
    for _ in range(3):
        same(compiled(x), model(x))
    assert sum(f["bytes"] for f in frozen(compiled)) == 0
    child = os.fork()
    if child == 0:
        try:
            model.first.weight.data.mul_(2)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    same(compiled(x), model(x))


def holed(x, at, value):
    x = x.clone()
    x.view(-1)[at * x.numel() // 8 + 7] = value # so that each thread has one in turn
    return x


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("shape", [(3, 16, 3, 1), (64, 64, 1, 1), (32, 32, 3, 32), (64, 64, 3, 1)], ids=str)
def test_nan_goes_through_relu(shape, value):
    """What a library call would lose is found and computed by the steps; from many on, relu stays outside."""
    inputs, outputs, size, groups = shape
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(inputs, outputs, size, groups=groups), nn.BatchNorm2d(outputs), nn.ReLU(),
                          nn.Conv2d(outputs, 16, 1), nn.ReLU()).eval()
    compiled = kintsugi.compile(model)
    x = torch.randn(2, inputs, 12, 12)
    for _ in range(3):
        same(compiled(x), model(x))
    assert sum(v["runs"] for v in versions(compiled)) > 0
    for i in range(8):
        bad = holed(x, i, value)
        torch.testing.assert_close(compiled(bad), model(bad), rtol=1e-4, atol=1e-4, equal_nan=True)
        same(compiled(x), model(x))
    assert sum(v["runs"] for v in versions(compiled)) > 0


def test_memory_that_a_printing_call_has_watched(capsys):
    """What its graph took is watched while it prints; later, weights lie there. The kernel goes on watching pages that pieces share."""
    memory = torch.zeros(3, 128, 250)   # pieces of whole pages and a bit

    def shout(a, b, c):
        total = (a + b + c).sum()
        print("total", total)
        return total * 2

    printing = kintsugi.compile(shout, backend=lambda gm, inputs: gm)
    for _ in range(4):
        printing(*memory)
    assert capsys.readouterr().out == "total tensor(0.)\n" * 4 and kintsugi.stats(printing)["breaks"] == 0
    x = torch.randn(40, 250)
    for piece in memory:
        model = nn.Linear(250, 128)
        model.weight = nn.Parameter(piece.normal_())
        compiled = kintsugi.compile(model)
        for _ in range(3):
            same(compiled(x), model(x))
        assert sum(f["bytes"] for f in frozen(compiled)) > 0 and [k["unfrozen"] for k in engine.kernels(engine_of(compiled).entries()[0])] == [""]


def test_giving_up_is_said():
    model, x, _ = linear()
    model.share_memory()
    compiled = kintsugi.compile(model)
    before = kintsugi.events()   # only the newest are kept, so their number tells nothing
    for _ in range(3):
        compiled(x)
    unfreeze = [e for e in kintsugi.events() if e["event"] == "unfreeze" and e not in before]
    assert len(unfreeze) == 1 and "other processes" in unfreeze[0]["reason"]
    entry, = engine_of(compiled).entries()
    assert [u["unfrozen"] for u in engine.kernels(entry)] == [unfreeze[0]["reason"]]


class Positions(nn.Module):
    """Positions kept as rows of channels and resized as an image: computed ahead, it would like to lie as it is read."""

    def __init__(self, mode):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 64, 16))
        self.mode = mode

    def forward(self, x):
        image = self.positions.reshape(1, 8, 8, -1).permute(0, 3, 1, 2)
        return x + nn.functional.interpolate(image, size=(10, 10), mode=self.mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_what_is_computed_ahead_lies_as_it_is_read(mode):
    module = Positions(mode)
    compiled = kintsugi.compile(module)
    for _ in range(4):
        x = torch.randn(2, 16, 10, 10)
        same(compiled(x), module(x))
    assert frozen(compiled)


class Gates(nn.Module):
    """In each turn two products of one matrix, whose weights lie side by side where it has more rows than one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x):
        h, states = x.new_zeros(x.shape[0], 128), []
        for t in range(x.shape[1]):
            h = torch.sigmoid(self.first(h)) * torch.tanh(x[:, t] + self.second(h))
            states.append(h)
        return torch.stack(states, 1)


def test_a_batch_of_one_takes_nothing_from_others():
    """Its products are sums, which keep nothing of the weights; what larger batches have in common is kept all the same."""
    model = Gates()
    compiled = kintsugi.compile(model)
    inputs = [torch.randn(rows, length, 128) for rows, length in ((4, 9), (2, 7), (1, 12), (5, 8), (1, 6), (3, 11), (6, 13), (2, 10))]
    for _ in range(6):
        for x in inputs:
            same(compiled(x), model(x))
        kintsugi.wait_for_kernels()
    assert max(row["weights_bytes"] for row in kintsugi.stats(compiled)["kernels"]) >= 2 * 128 * 128 * 4
