"""Modes of the program (TorchFunctionMode, TorchDispatchMode) that a compiled function enters: what they do is done in each call, and no graph ends there."""
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

LOG = []


class Logging(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Multiplying(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.mul if func is torch.add else func)(*args, **(kwargs or {}))


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        LOG.append(str(func))
        return func(*args, **(kwargs or {}))


def in_part(x):
    y = torch.add(x, 1)
    with Multiplying():
        y = torch.add(y, 3)
    return torch.add(y, 1)


def metadata(x):
    with Logging():
        y = x.reshape(x.shape[0] * 1) + x.ndim
        if x.dtype == torch.float32:
            y = y + len(x)
    return y * x.shape[0]


def made(x):
    with Logging():
        y = torch.ones(3) + torch.zeros(1)
        z = nn.functional.relu(x)
    return y.sum() + z


def nested(x):
    with Logging(), Multiplying():
        y = torch.add(x, 3)
        with Counting() as counting:
            z = torch.add(y, 2) * 2
    return torch.add(z, 1) + counting.calls


def gradients(x):
    with Logging():
        with torch.no_grad():
            y = x * 2
    return y + 1, torch.is_grad_enabled()


def written(x):
    y = x.clone()
    with Logging():
        y[0] = 5
        y += 1
        number, flag = float(y[1]), bool(y[0] > 1)
    return y * number, flag


def raised(x):
    try:
        with Logging():
            y = x + 1
            raise ValueError
    except ValueError:
        y = y - x
    return y * 2


def returned_from(x):
    with Logging():
        return torch.add(x, 1)


def by_hand(x):
    mode = Multiplying()
    mode.__enter__()
    y = torch.add(x, 3)
    mode.__exit__(None, None, None)
    return torch.add(y, 3)


def decided(x):
    with Logging():
        y = x.sum()
        y = y + 1 if y > 0 else y - 1
    return y * 2


def decided_between(x):
    with Logging():
        y = x.sum()
        y = y + 1 if -2 < y < 3.5 else y - 1
    return y


def decided_again_and_again(x):
    with Logging():
        y = x.sum() + 4
        while y <= 9 and y != 5:
            y = y * 2 + 1
    return y if (y >= 0) is not None else x


def over_rows(x):
    with Logging():
        total = 0
        for row in x:
            total = total + row
    return total


ONE_GRAPH = (in_part, metadata, made, nested, gradients, written, raised, returned_from, by_hand, over_rows)
INPUTS = (torch.ones(3), torch.ones(3), -torch.ones(3), torch.ones(3), torch.ones(4), -torch.ones(4), torch.ones(3))


def same(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def check(compiled, fn):
    for x in INPUTS:
        LOG.clear()
        expected = fn(x)
        logged = LOG[:]
        LOG.clear()
        got = compiled(x)
        assert same(got, expected) and LOG == logged
        assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield


@pytest.mark.parametrize("backend", [None, "eager", lambda gm, inputs: gm.forward])
@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_ends_no_graph(fn, backend):
    compiled = kintsugi.compile(fn, fullgraph=True, backend=backend)
    check(compiled, fn)
    assert all((v["graphs"], v["breaks"]) == (1, 0) for v in kintsugi.stats(compiled)["variants"])


@pytest.mark.parametrize("fn", [decided, decided_between, decided_again_and_again])
def test_like_eager_where_the_graph_ends(fn):
    check(kintsugi.compile(fn), fn)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        kintsugi.compile(fn, fullgraph=True)(INPUTS[0])


def test_around_the_call_and_inside():
    """Around a call, a mode sees what the function does eagerly."""
    compiled = kintsugi.compile(in_part)
    for _ in range(4):
        LOG.clear()
        with Logging():
            got = compiled(INPUTS[0])
        seen = LOG[:]
        LOG.clear()
        with Logging():
            expected = in_part(INPUTS[0])
        assert LOG == seen and torch.equal(got, expected)
        assert torch.equal(compiled(INPUTS[0]), in_part(INPUTS[0]))


def test_a_mode_entered_in_some_calls_only():
    """Code that is not looked into enters the mode, or does not."""
    modes = []

    @torch.compiler.disable
    def enter():
        for mode in modes:
            mode.__enter__()

    @torch.compiler.disable
    def leave():
        for mode in modes:
            mode.__exit__(None, None, None)

    def fn(x):
        enter()
        y = torch.add(x, 3)
        leave()
        return torch.add(y, 3)
    compiled = kintsugi.compile(fn)
    for some in ([], [], [Multiplying()], [Multiplying()], [], [Logging(), Multiplying()], []):
        modes[:] = some
        check(compiled, fn)
