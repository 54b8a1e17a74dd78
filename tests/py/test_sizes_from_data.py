"""Sizes that data decides (x[x > 0].shape[0], len(x.nonzero())) are numbers of the graph: one graph, whatever the data says.

What is decided on them is an assertion of the graph; where it does not hold, the steps run one by one, and the other way is recorded.
"""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def arithmetic(x):
    return x * (x[x > 0].shape[0] * 2)


def returned(x):
    y = x[x > 0]
    return y, y.shape, y.shape[0]


def decided(x):
    i = x.nonzero(as_tuple=True)[0]
    if len(i) == 0:
        return x
    return x[i].mean() + len(i)


def counted(x):
    n = (x > 0).nonzero().size(0)
    out = x.new_zeros(n, 3)
    for k in range(n):
        out[k] = k
    return out


def made(x):
    rows = torch.where(x > 0)[0]
    return x.index_select(0, rows).reshape(-1, 1).expand(rows.shape[0], 2).sum() + torch.ones(rows.size()).sum()


def joined(x):
    y = x[x > 0]
    return torch.cat([y, y * 2]).view(2, -1).sum(0), y.numel() > 2


def unique(x):
    values, counts = torch.unique(x > 0, return_counts=True)
    if values.shape[0] == 1:
        return x
    return x * counts[0]


def asserted(x):
    y = x[x > 0]
    assert y.shape[0] < 100
    return y.view(y.shape[0]) + torch.ones(y.size())


DATA = [torch.tensor(v) for v in ([1.0, 2, 3, 4], [1.0, -2, 3, -4], [-1.0, -1, -1, -2], [0.0, 0, 1, 0], [1.0, 2, -3, 4, 5], [1.0], [-1.0])]


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield


@pytest.mark.parametrize("fn", [arithmetic, returned, decided, counted, made, joined, unique, asserted])
@pytest.mark.parametrize("backend", ["graphs", "inductor"])
def test_sizes_that_data_decides(fn, backend):
    compiled = kintsugi.compile(fn, backend=(lambda gm, inputs: gm) if backend == "graphs" else backend)
    for x in DATA + DATA:
        expected, given = torch.utils._pytree.tree_leaves(fn(x)), torch.utils._pytree.tree_leaves(compiled(x))
        assert len(expected) == len(given)
        for a, b in zip(expected, given):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    stats = kintsugi.stats(compiled)
    assert stats["breaks"] == 0


@pytest.mark.parametrize("fn", [arithmetic, returned, decided, made, joined, unique, asserted])
def test_backend_gets_one_graph(fn):
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for values in ([1.0, 2, -3, 4], [1.0, 2, -3, 4], [5.0, 3, -3, 2]):
        compiled(torch.tensor(values))
    assert len(seen) == 1
    assert kintsugi.stats(compiled)["recordings"] == 1


def test_larger_of_two_tensors():
    """max(a, b) of tensors is one of the two, in graphs where() of them."""
    def fn(x):
        return x * max(x.sum(), x.mean()) - min(x.sum(), x.mean())
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for sign in (1, -1, 1, -1):
        x, y = (sign * torch.arange(1.0, 5.0)).requires_grad_(), (sign * torch.arange(1.0, 5.0)).requires_grad_()
        a, b = compiled(x), fn(y)
        assert torch.equal(a, b)
        assert torch.equal(*(torch.autograd.grad(r.sum(), v)[0] for r, v in ((a, x), (b, y))))
    assert len(seen) <= 2


def test_chosen_tensor_that_is_changed():
    def fn(x):
        a, b = x.sum(), x.mean()
        m = max(a, b)
        m.mul_(2)
        return a, b, m
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for sign in (1, -1, 1):
        x = sign * torch.arange(1.0, 5.0)
        assert all(map(torch.equal, compiled(x), fn(x)))
