"""Generator expressions over tensors whose length differs between calls: one graph for each length, and never refused."""

import pytest
import torch

import kintsugi

LENGTHS = [5, 7, 3, 9, 4, 6, 8]


def times_index(x, n):
    return sum(x * i for i in range(n))


def rows(x, n):
    return sum(x[i] * i for i in range(x.shape[0]))


def between(x, n):
    return max((x[0] + i for i in range(1, n, 2)), key=lambda y: float(y.sum()))


def parts(x, n):
    return sum(part.sum() for part in x.split(2))


def nested(x, n):
    return sum(sum(x[i] * j for j in range(i)) for i in range(1, n))


def dots(x, n):
    return torch.stack(tuple(x[i].dot(x[-1 - i]) for i in range(n // 2)))


def numbers(x, n):
    return x * max(float(i) for i in range(n))


PROGRAMS = [times_index, rows, between, parts, nested, dots, numbers]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_each_length_as_eager(fn, fullgraph):
    if fn is between and fullgraph:
        pytest.skip("decides on data")
    compiled = kintsugi.compile(fn, fullgraph=fullgraph)
    for n in LENGTHS * 2:
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, n), fn(x, n))
    stats = compiled.stats()
    assert stats["recordings"] <= 3, stats
    assert fn is between or stats["breaks"] == 0, stats


def test_an_iterator_goes_on_where_it_was():
    """The range's own iterator is not the generator's alone: what both take has to be the same items as in eager."""

    def fn(x, n):
        it = iter(range(n))
        first = next(it)
        return sum(x * i for i in it) + first, list(it)

    compiled = kintsugi.compile(fn)
    x = torch.randn(3)
    for n in LENGTHS:
        ours, theirs = compiled(x, n), fn(x, n)
        assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1]


@pytest.mark.parametrize("fn", [
    lambda x: (x + max(r.shape[0] for r in x), max(r.shape[0] * len(x) for r in x)),
    lambda x: x[min(len(x) - 1 - i for i, _ in enumerate(x))],
    lambda x: sorted(set(len(x) % (i + 1) for i, _ in enumerate(x))),
    lambda x: sorted(frozenset(len(x) % (i + 1) for i, _ in enumerate(x))),
    lambda x: [x.sum() * k for k in sorted(-i * len(x) for i, _ in enumerate(x))],
    lambda x: ",".join(str(len(x) + i) for i, _ in enumerate(x)),
    lambda x: sum((len(x) * i for i, _ in enumerate(x)), 5),
    lambda x: max(v for v in (len(x), 2.5, True)),
    lambda x: x * 2 if max(len(x) * i for i, _ in enumerate(x)) > 6 else x,
    lambda x: x * (3 in set(len(x) + i for i, _ in enumerate(x))),
], ids=["max", "min", "set", "frozenset", "sorted", "join", "sum", "classes", "decides", "contains"])
def test_numbers_computed_of_sizes(fn):
    """max, set, sorted, str.join ... of a generator's numbers ended the graph as soon as the numbers were not constants any more."""
    def answer(call, x):
        try:
            return torch.utils._pytree.tree_map(lambda v: v.tolist() if isinstance(v, torch.Tensor) else (type(v), v), call(x))
        except (ValueError, IndexError) as error:
            return type(error), str(error)
    compiled = kintsugi.compile(fn, fullgraph=True, backend="eager")
    for rows in (3, 3, 2, 5, 1, 4, 0, 6):
        x = torch.arange(4.0 * rows).reshape(rows, 4)
        assert answer(compiled, x) == answer(fn, x)


class Held:
    """Its items come by a generator expression over a range of its length."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items[i] for i in range(len(self.items)))


@pytest.mark.parametrize("of", [torch.nn.ParameterList, Held])
def test_an_object_that_grows_is_gone_over_by_a_generator_expression_over_its_length(of):
    """The third length was refused under fullgraph=True, and had a graph break at each item: the generator gets at tensors only through an attribute, or a module."""
    held = of([torch.ones(2)])

    def fn(x):
        for value in held:
            x = x * 2 + value.detach()
        return x
    compiled = kintsugi.compile(fn, fullgraph=True)
    for _ in range(5):
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
        (held.items if isinstance(held, Held) else held).append(torch.ones(2))


grown = [torch.ones(2)]


def test_a_global_list_that_grows_is_gone_over_by_a_generator_expression():
    def fn(x):
        for value in (grown[i] for i in range(len(grown))):
            x = x * 2 + value
        return x
    compiled = kintsugi.compile(fn, fullgraph=True)
    for _ in range(5):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
        grown.append(torch.ones(2) * len(grown))


class Grows:
    """Methods that are generators, over a list of its own."""

    def __init__(self):
        self.items = [torch.ones(2)]

    def by_index(self):
        for i in range(len(self.items)):
            yield self.items[i]

    def by_while(self):
        i = 0
        while i < len(self.items):
            yield self.items[i]
            i += 1

    def delegates(self):
        n = len(self.items)
        yield from (self.items[i] for i in range(n))

    def asks_at_its_end(self):
        for item in self.items[:-1]:
            yield item
        if len(self.items) > 2:
            yield self.items[-1] * 5


def added(x, items):
    for item in items:
        x = x * 2 + item
    return x


WAYS = {"loop": added, "sum": lambda x, items: x + sum(items), "stack": lambda x, items: torch.stack([x, *items]).sum(0)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["by_index", "by_while", "delegates", "asks_at_its_end"])
def test_a_generator_asks_for_the_length_of_a_list_that_grows(method, way):
    """Once the length had changed, asking for it refused the whole generator: fullgraph=True raised, where stock takes all lengths."""
    held = Grows()

    def fn(x):
        return WAYS[way](x, getattr(held, method)())
    compiled = kintsugi.compile(fn, fullgraph=True)
    for length in (1, 2, 3, 4, 2, 4):
        held.items[:] = [torch.ones(2) * i for i in range(length)]
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_a_list_that_the_call_itself_extends_is_asked_by_a_generator():
    """Where a region cannot look at what the call has changed, the generator ends the graph: results are those of eager."""
    def made():
        held = Grows()

        def fn(x):
            held.items.append(x + len(held.items))
            return x + sum(held.by_index())
        return held, fn
    (one, fn), (other, eager) = made(), made()
    compiled = kintsugi.compile(fn)
    for length in (1, 2, 3, 4, 2, 4):
        for held in (one, other):
            held.items[:] = [torch.ones(2) * i for i in range(length)]
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), eager(torch.ones(2)))
            assert len(one.items) == len(other.items) and all(map(torch.equal, one.items, other.items))
