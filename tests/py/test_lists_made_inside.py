"""Lists that a function makes and changes: their items stay known, so a backend gets one graph, and left at any step they are as eager has them."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)
from kintsugi import _kintsugi

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def deletes(x, m):
    items = [x.sin(), x.cos(), x, x + 1]
    del items[0]
    del items[-1:]
    return items[0] + items[1] * len(items), items


@program
def deletes_all(x, m):
    items = [x.sin(), x.cos()]
    first = items[0]
    items.clear()
    items.append(first)
    return items[0] + 1, items


@program
def slices(x, m):
    items = [x.sin(), x, x]
    items[1:] = [x.cos()]
    items[:0] = (x + 1, x + 2)
    items[1:2] = [v.exp() for v in (x, x)]
    return items[1] + items[-1] + len(items), items


@program
def slices_of_itself(x, m):
    items = [x.sin(), x]
    items[1:] = items
    items[5:2] = [x]
    return torch.cat(items), items


@program
def pops(x, m):
    items = [x.sin()]
    items.insert(0, x)
    items.insert(1, x + 2)
    items.reverse()
    return items.pop() + items.pop(0) * len(items), items


@program
def seen_by_another_name(x, m):
    items = [x.sin(), x.cos()]
    other = items
    held = {"items": items}
    del other[0]
    held["items"].insert(0, x)
    return items[0] + items[1], held


@program
def keeps_what_it_was_given(x, m):
    items = [x.sin()]
    items[1:] = m
    m.append(3)
    return x + len(items), items, m


@program
def repeats(x, m):
    three = (x.sin(),) * 3
    two = 2 * [x]
    return sum(three) + sum(two), three, two


@program
def stacks(x, m):
    items = [x, x.sin(), x + 1]
    del items[0]
    items[1:] = [x, x * 2]
    return torch.stack(items), torch.cat(items)


@program
def maps(x, m):
    a, b = map(torch.sin, [x, x + 1])
    both = map(lambda t: t * 2, (a, b))
    return sum(both), *map(torch.cos, [a, b])


@program
def goes_on_with_a_map(x, m):
    sines = map(torch.sin, [x, x + 1, x + 2])
    first = next(sines)
    y = x.cos() + first
    return y, next(sines), list(sines)


def flat(out):
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in torch.utils._pytree.tree_leaves(out)]


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield
    _kintsugi.force_exit(None)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("keeps_what_it_was_given", "goes_on_with_a_map")])
def test_one_graph(name):
    graphs = []

    def backend(gm, example):
        graphs.append(gm)
        return gm.forward

    compiled = kintsugi.compile(PROGRAMS[name], backend=backend, fullgraph=True)
    for x in (torch.ones(3), torch.ones(3), torch.full((3,), 2.0)):
        assert flat(compiled(x, [1])) == flat(PROGRAMS[name](x, [1]))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_left_at_each_step(name):
    compiled = kintsugi.compile(PROGRAMS[name], backend="eager")
    x = torch.full((3,), 0.5)
    for _ in range(2):
        assert flat(compiled(x, [1])) == flat(PROGRAMS[name](x, [1]))
    for k in range(40):
        _kintsugi.force_exit(k)
        assert flat(compiled(x, [1])) == flat(PROGRAMS[name](x, [1]))
        _kintsugi.force_exit(None)


def test_errors_stay_errors():
    def beyond(x, n):
        items = [x]
        if n == 0:
            del items[3]
        return items.pop(n)

    compiled = kintsugi.compile(beyond)
    for n in (0, 1, 0, 1, -1, -1, 5):
        for fn in (compiled, beyond):
            if n == -1:
                assert fn(torch.ones(1), n) is not None
            else:
                with pytest.raises(IndexError):
                    fn(torch.ones(1), n)
