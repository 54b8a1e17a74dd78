"""What may raise for an index divides a graph only where the index could be out of range and nobody would notice: not behind sort, topk, argmax ... of the same dim,
and not in front of a scatter, which is done as a whole."""

import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi

ROWS, DEEP = 12, 6


def in_turn_of_experts(x, w):
    """Rows sorted by expert and put back, as in mixtures of experts."""
    share, expert = (x @ w).softmax(-1).topk(2, -1)
    order = torch.argsort(expert.reshape(-1))
    token = order // 2
    rows = x[token] * share.reshape(-1)[order].unsqueeze(-1)
    back = torch.argsort(order)
    return rows[back].view(ROWS, 2, DEEP)[:, 0]


def by_largest(x, w):
    scores = (x @ w).sigmoid()
    at = torch.topk(scores + w[0], 2, -1, sorted=False)[1]
    return scores.gather(1, at)[:, 0]


def of_neighbours(x, w):
    """The largest score of each group, of which not every group is looked at."""
    at = torch.arange(ROWS) // 2
    scores = (x @ w).sum(-1)
    top = torch.full((ROWS,), -1e9).scatter_reduce(0, at, scores.detach(), "amax")
    weight = (scores - top[at]).exp()
    return weight / torch.zeros(ROWS).index_add(0, at, weight)[at]


def without_the_first(x, w):
    values, at = (x @ w).sort(0)
    return (x.gather(0, at)[1:] * values[1:])[:, 2:]


def winners(x, w):
    return w[(x @ w).argmax(-1)][:4] * x[(x @ w).argmax(0)][:4]


def shuffled(x, w):
    at = torch.randperm(ROWS)
    return (x[at] @ w)[:5] * x[at][:5]


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
@pytest.mark.parametrize("fn", [in_turn_of_experts, by_largest, of_neighbours, without_the_first, winners, shuffled])
def test_one_graph(fn):
    compiled = kintsugi.compile(lambda x, w: fn(x, w).square().sum())
    with kintsugi.config.patch(training=True):
        for seed in range(5):
            torch.manual_seed(seed)
            x, w = torch.randn(ROWS, DEEP, requires_grad=True), torch.randn(DEEP, DEEP, requires_grad=True)
            torch.manual_seed(seed + 9)
            found = torch.autograd.grad(compiled(x, w), (x, w), allow_unused=True)
            torch.manual_seed(seed + 9)
            for ours, theirs in zip(found, torch.autograd.grad(fn(x, w).square().sum(), (x, w), allow_unused=True), strict=True):
                torch.testing.assert_close(ours, theirs)
    rows = kintsugi.stats(compiled)["kernels"]
    assert [(row["compiled"], row["parts"]) for row in rows] == [(True, 1)], rows


RAISE = {
    "sorted along another dim": lambda x, at: x.gather(1, x.sort(0)[1])[:2],
    "more than there are": lambda x, at: x[:3][(x.argsort(0) + at[0])[0]][:2],
    "written to": lambda x, at: x[x.sort(0)[1][:, 0].add_(at)][:1],
    "a scatter of which a part is read": lambda x, at: torch.zeros(4, 6).index_add(0, at, x)[0],
    "a scatter of which nothing is read": lambda x, at: torch.zeros(4, 6).index_add(0, at, x)[:0],
    "scatter_reduce": lambda x, at: torch.zeros(4).scatter_reduce(0, at, x[:, 0], "amax")[:1],
    "divided": lambda x, at: x[at // 1][:1],
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", RAISE)
def test_indices_that_eager_refuses(name, gradients):
    fn = RAISE[name]
    compiled = kintsugi.compile(lambda x, at: fn(x * 2, at) * 3)
    with kintsugi.config.patch(training=True):
        for last in (3, 0, 3, 3, 99):
            x, at = torch.arange(72.0).reshape(12, 6).flip(0).requires_grad_(gradients), torch.zeros(12, dtype=torch.int64)
            at[-1] = last
            try:
                wanted = fn(x * 2, at) * 3
            except (IndexError, RuntimeError) as e:
                wanted = e
            if isinstance(wanted, Exception):
                with pytest.raises(type(wanted)):
                    compiled(x, at)
            else:
                torch.testing.assert_close(compiled(x, at), wanted)


@pytest.mark.usefixtures("kernels")
def test_sizes_that_were_equal_by_chance():
    """Code for other sizes asks that those are equal that were."""
    compiled = kintsugi.compile(lambda x, y: x.exp()[y.argsort()][:2] + 1)
    fn = lambda x, y: x.exp()[y.argsort()][:2] + 1
    for n in (8, 9, 12, 16, 23):
        x, y = torch.randn(n), torch.randn(n)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    for n in (12, 17, 40):
        x, y = torch.randn(n), torch.arange(n + 3.0)
        y[:2] = 1e6  # places that are out of range for x come last, where nobody reads
        for call in (fn, compiled):
            with pytest.raises(IndexError):
                call(x, y)
