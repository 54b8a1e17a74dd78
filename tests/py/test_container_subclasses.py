"""Classes derived from list and dict that the program makes and fills with tensors end no graph: what only moves references is no break."""
import collections
import typing

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class Layers(list):
    pass


class Tagged(list):
    def __init__(self, *items):
        super().__init__(items)
        self.tag = len(items)


class Table(dict):
    def both(self):
        return self["a"] + self["b"]


class Named(typing.TypedDict):
    a: torch.Tensor
    n: int


def list_made(x):
    made = Layers([x])
    made.append(x + 1)
    made.extend([x * 2])
    made.insert(0, x - 1)
    return made


def list_with_init(x):
    made = Tagged(x, x + 1)
    return made[0] + made.tag, made


def dict_made(x):
    made = Table(a=x)
    made["b"] = x + 1
    made.update(c=x * 2)
    return made.both(), made


def typed_dict(x):
    made = Named(a=x, n=2)
    made["n"] += 1
    return made["a"] * made["n"], made


def flat(value):
    if isinstance(value, dict):
        return [type(value)] + [part for pair in value.items() for item in pair for part in flat(item)]
    if isinstance(value, (list, tuple)):
        return [type(value)] + [part for item in value for part in flat(item)]
    return [value.tolist() if isinstance(value, torch.Tensor) else value]


@pytest.mark.parametrize("fn", [list_made, list_with_init, dict_made, typed_dict])
def test_made_inside(fn):
    kintsugi.reset()
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm, fullgraph=True)
    for i in range(4):
        x = torch.arange(3.0) + i
        assert flat(compiled(x)) == flat(fn(x))
    assert kintsugi.explain(fn)(torch.ones(3)).graph_break_count == 0


def test_taking_a_tensor_apart_ends_the_graph():
    """list(tensor) asks the tensor for its items: no mere move."""
    def fn(x):
        return Layers(x * 2)
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for i in range(4):
        x = torch.arange(3.0) + i
        assert flat(compiled(x)) == flat(fn(x))
    assert kintsugi.explain(fn)(torch.ones(3)).graph_break_count == 1


class Pair(typing.NamedTuple):
    a: object
    b: object


class NeverTrue(Pair):
    def __bool__(self):
        return False


class Plain(tuple):
    pass


def test_truth_of_tuples_of_all_classes(monkeypatch):
    def fn(x, chosen):
        return x + 1 if chosen else x - 1
    x = torch.ones(2)
    compiled = kintsugi.compile(fn)
    values = [Pair(1, 2), Pair(x, None), NeverTrue(1, 2), Plain(), Plain((1,)), Plain((1, 2)), torch.Size([]), torch.Size([2])]
    for _ in range(3):
        for value in values:
            assert torch.equal(compiled(x, value), fn(x, value)), value
    monkeypatch.setattr(Plain, "__len__", lambda self: 0, raising=False)
    for value in values:
        assert torch.equal(compiled(x, value), fn(x, value)), value


class Filled(collections.OrderedDict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.count = len(self)


class Twice(Filled):
    def __init__(self, **kwargs):
        super().__init__([("b", 0)], a=1)
        super().__init__(**kwargs)
        self["z"] = self.pop("a")


class Asking(collections.OrderedDict):
    """OrderedDict.__init__ asks this __setitem__, which dict's does not."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


class Bent(collections.OrderedDict):
    def __init__(self, **kwargs):
        dict.__init__(self, **kwargs)


def ordered(cls, x):
    made = cls(a=x, c=x * 2)
    made["b"] = x.sin()
    if "a" in made:
        made.move_to_end("a")
    return list(made), [made[key] for key in made], getattr(made, "count", None), made


def from_pairs(cls, x):
    return [list(cls(pairs).items()) for pairs in ([("k", x), ("j", x), ("k", x + 1)], {"q": x}, collections.OrderedDict(p=x))], len(cls())


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return type(value), [(key, plain(item)) for key, item in value.items()], vars(value)
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def through_dict(cls, x):
    made = cls(a=x)
    return len(made), list(made)


@pytest.mark.parametrize("fn, cls, whole", [(ordered, Filled, True), (ordered, Twice, True), (ordered, Asking, False), (from_pairs, Filled, True),
                                            (through_dict, Bent, False)])
def test_ordered_dicts_with_an_init_of_their_own(fn, cls, whole):
    """`super().__init__(*args, **kwargs)` of OrderedDict ended the graph; that of dict did not."""
    compiled = kintsugi.compile(fn, fullgraph=whole, backend="eager")
    for n in (2, 2, 3):
        x = torch.arange(1.0, n)
        try:
            want = fn(cls, x)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(cls, x)
            continue
        assert plain(compiled(cls, x)) == plain(want)
