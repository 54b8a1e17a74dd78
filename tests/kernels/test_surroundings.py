"""What programs do around functions with kernels: transforms, copies, forks, weights that change, results that are used in every way."""

import copy
import io
import os
import pickle
import weakref

import pytest
import torch
from torch import nn

from launches import engine, kintsugi


@pytest.fixture(autouse=True, params=[0, 7])
def kernels(request):
    """Without trials each call is a launch; with them launches and steps take turns, as for users."""
    kintsugi.reset()
    engine.set_option("trials", request.param)
    with kintsugi.config.patch(kernels=True):
        yield
    engine.set_option("trials", 7)
    kintsugi.reset()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def launches(compiled):
    return sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"])


def fn(x, y):
    return (x * 2 + y).relu() + x.sum(), (x @ y).softmax(-1)


@pytest.fixture
def compiled():
    made = kintsugi.compile(fn)
    for _ in range(4):
        made(torch.randn(4, 4), torch.randn(4, 4))
    assert launches(made) > 0
    return made


TRANSFORMS = {
    "vmap": lambda f, x, y: torch.func.vmap(f)(x, y),
    "vmap of one": lambda f, x, y: torch.func.vmap(f, in_dims=(0, None))(x, y[0]),
    "grad": lambda f, x, y: torch.func.grad(lambda a: f(a, y[0])[0].sum())(x[0]),
    "jvp": lambda f, x, y: torch.func.jvp(lambda a: f(a, y[0])[0], (x[0],), (y[1],)),
    "vjp": lambda f, x, y: torch.func.vjp(lambda a: f(a, y[0])[0], x[0])[1](x[1]),
    "jacrev": lambda f, x, y: torch.func.jacrev(lambda a: f(a, y[0])[1])(x[0]),
    "functionalize": lambda f, x, y: torch.func.functionalize(f)(x[0], y[0]),
    "vmap of grad": lambda f, x, y: torch.func.vmap(torch.func.grad(lambda a, b: f(a, b)[0].sum()))(x, y),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(compiled, name):
    x, y = torch.randn(3, 4, 4), torch.randn(3, 4, 4)
    for _ in range(3):
        close(TRANSFORMS[name](compiled, x, y), TRANSFORMS[name](fn, x, y))


def test_other_kinds_of_tensors(compiled):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    meta = torch.empty(4, 4, device="meta")
    assert compiled(meta, meta)[0].device.type == "meta"
    with FakeTensorMode():
        fake = torch.empty(4, 4)
        assert type(compiled(fake, fake)[0]) is type(fake)
    with FlopCounterMode(display=False) as counter:
        compiled(torch.randn(4, 4), torch.randn(4, 4))
    assert counter.get_total_flops() == 2 * 4 ** 3


def test_weights_change_in_every_way():
    """Training and evaluation in turn; weights written in place, replaced, loaded, swapped with their module, cast."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(8, 5), nn.Dropout(0.3), nn.LayerNorm(5))
    twin = copy.deepcopy(model)
    compiled = kintsugi.compile(model)

    def both(change):
        for m in (model, twin):
            with torch.no_grad():
                change(m)

    def train(m, seed, image):
        torch.manual_seed(seed)
        optimizer = torch.optim.SGD(twin.parameters() if m is twin else model.parameters(), lr=0.05)
        m.train()
        loss = m(image).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def other_layer(m):
        torch.manual_seed(5)
        m[5] = nn.Linear(8, 5)

    changes = [lambda m: m[5].weight.mul_(1.5), lambda m: setattr(m[5].weight, "data", m[5].weight.data * 1.5),
               lambda m: m[1].running_mean.add_(0.1), lambda m: m.load_state_dict({k: v * 1 for k, v in twin.state_dict().items()}),
               other_layer, lambda m: m.to(torch.float64), lambda m: m.to(torch.float32), lambda m: m[0].weight.numpy().fill(0.25)]
    for step, change in enumerate(changes):
        image = torch.randn(2, 3, 8, 8)
        dtype = next(twin.parameters()).dtype
        close(train(compiled, step, image.to(dtype)), train(twin, step, image.to(dtype)))
        both(change)
        compiled.eval(), twin.eval()
        image = image.to(next(twin.parameters()).dtype)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                for _ in range(3):
                    close(compiled(image), twin(image))


def test_copies_have_weights_of_their_own():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)).eval()
    compiled = kintsugi.compile(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(4):
            expected = compiled(x)
        other, loaded = copy.deepcopy(compiled), pickle.loads(pickle.dumps(model))
        other[0].weight.mul_(2)
        close(compiled(x), expected)
        close(loaded(x), expected)
        assert not torch.allclose(other(x), expected)


def test_results_are_ordinary_tensors():
    compiled = kintsugi.compile(lambda x: ((x * 2 + 1).relu(), (x + 1).t() * 3))
    x = torch.randn(600, 700)
    for _ in range(4):
        a, b = compiled(x)
    kept = a.clone()
    compiled(torch.randn(600, 700))
    assert torch.equal(a, kept)
    array = a.numpy()
    file = io.BytesIO()
    torch.save(a, file)
    assert len(file.getvalue()) < 600 * 700 * 4 + 4096
    del a
    compiled(torch.randn(600, 700))
    assert torch.equal(torch.from_numpy(array), kept)
    b.detach_().resize_(800, 800).share_memory_()
    assert b.is_shared()
    dying = weakref.ref(b)
    del b
    assert dying() is None


def test_state_between_calls():
    cell = nn.GRUCell(4, 6)

    def roll(x, h):
        outs = []
        for t in range(x.shape[0]):
            h = cell(x[t], h)
            outs.append(h)
        return torch.stack(outs), h.detach()

    compiled = kintsugi.compile(roll)
    with torch.no_grad():
        mine = theirs = torch.zeros(2, 6)
        for _ in range(10):
            x = torch.randn(3, 2, 4)
            expected, theirs = roll(x, theirs)
            got, mine = compiled(x, mine)
            mine.detach_()
            close((got, mine), (expected, theirs))
    assert launches(compiled) > 0


def test_fork(compiled):
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    expected = fn(x, y)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            close(compiled(x, y), expected)
            other = kintsugi.compile(lambda x: (x * 5 + 1).relu().cos())
            for _ in range(3):
                close(other(x), (x * 5 + 1).relu().cos())
            status = 0 if launches(other) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
