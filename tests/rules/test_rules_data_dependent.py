"""Section 11: values that depend on data."""
import torch
from two_worlds import T, rule


@rule
def test_rule_92_scalars(w):
    table = {2: "two", 2.0: "two", 3: "three"}

    def f(x):
        n = x.sum().item()
        k = int(x[0])
        return (table.get(n, "none"), n in (1, 2, 3), n == 6, f"{n}", x * k, [0] * k, list(range(k)), sorted([n, 2, k]),
                type(n).__name__)

    g = w.compile(f)
    for x in (T(), T(), T() * 0, T() * 2, torch.tensor([2, 0]), torch.tensor([2, 0]), torch.tensor([True, False]),
              torch.tensor([float("nan"), 1.0]), torch.tensor([2.0, 0.0]), torch.tensor([-0.0, 0.0])):
        w.call(g, x)


@rule
def test_rule_92_scalars_that_raise(w):
    def f(x, log):
        log.append("begin")
        n = int(x[0])
        log.append(n)
        items = [1, 2, 3][n]
        log.append(10 // (n - 1))
        return x * items

    g = w.compile(f)
    for first in (0.0, 0.0, 2.0, 1.0, 7.0, float("nan"), float("inf"), 2.0):
        w.call(g, torch.tensor([first, 1.0]), [])
    w.call(g, torch.tensor([]), [])


@rule
def test_rule_92_indexing_with_a_tensor(w):
    items = [5, 6, 7]

    def f(x, i):
        return x * items[i], torch.ones(3)[i], range(5)[i]

    g = w.compile(f)
    for i in (0, 0, 1, 2, 5, -1):
        w.call(g, T(), torch.tensor(i))
    w.call(g, T(), torch.tensor(1.0))


@rule
def test_rule_93_sizes_from_data(w):
    def f(x):
        y = x[x > 1]
        if y.shape[0] > 2:
            y = y * 2
        if len(y) == 0:
            return y, "empty"
        z = torch.zeros(len(y)) + y
        return z, y.numel(), x.nonzero().size(0)

    g = w.compile(f)
    for values in ([1, 2, 3], [1, 2, 3], [5, 6, 7], [0, 0, 0], [0, 0, 2], [9, 9, 9], [1, 2, 3]):
        w.call(g, torch.tensor(values, dtype=torch.float32))


@rule
def test_rule_93_loop_with_data(w):
    def f(x):
        n = 0
        while x.sum() > 1:
            x = x / 2
            n += 1
            if n > 20:
                break
        return x, n

    g = w.compile(f)
    for k in (1, 1, 4, 100, 0, 3, 1, 50):
        w.call(g, T() * k)


@rule
def test_rule_93_unique_and_tolist(w):
    def f(x):
        out = 0
        for v in x.unique().tolist():
            out += v * 2
        a, *rest = x.tolist()
        return out, a, rest, x.unique().shape

    g = w.compile(f)
    for values in ([1, 2, 2], [1, 2, 2], [3, 3, 3], [1, 2, 3], [5], [1, 2, 2]):
        w.call(g, torch.tensor(values))


@rule
def test_rule_94_branches_have_their_own_facts(w):
    class Box:
        pos, neg = 2, 3

    state = {"pos": 1, "neg": 1}

    def f(x):
        if x.sum() > 0:
            y = x * Box.pos
            state["pos"] += 1
        else:
            y = x * Box.neg
            state["neg"] += 1
        print(state["pos"], state["neg"])
        if y.max() > 5:
            return y + state["pos"] * 100
        return y - state["neg"]

    g = w.compile(f)
    for k in (1, 1, -1, -1, 3, -3):
        w.call(g, T() * k)
    Box.neg = 7
    w.call(g, T())
    w.call(g, -T())
    Box.pos = lambda: 1
    w.call(g, -T())
    w.call(g, T())
    Box.pos = 1.5
    for k in (1, -1, 5, -5):
        w.call(g, T() * k)
    w.see(state)
