"""Items that a call puts into a list or dict of the program's (hooks that keep activations, outputs that are collected) are put there when the graph has
run, which ends no graph. Nobody can tell: who looks into such a container in between sees what eager shows, also where a call raises or a test leaves."""
import pytest
import torch

from launches import kintsugi
from test_deferred_calls import Box, agree, check, subgraphs

pytestmark = pytest.mark.usefixtures("kernels")


def x():
    return torch.linspace(-2, 2, 12).view(3, 4)


def filled(**more):
    return lambda: (x(), Box(kept=[1, "a"], found={"old": 3}, **more))


# -- in one graph -----------------------------------------------------------------------------------------------------------------


def appends(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    z = torch.exp(y)
    box.kept.append(z)
    return z * 2


def stores(x, box):
    y = torch.relu(x)
    box.found["a"] = y
    z = torch.exp(y)
    box.found["b"] = z
    box.found["a"] = z + 1
    return z * 2


def both(x, box):
    for i in range(3):
        x = torch.tanh(x + i)
        box.kept.append(x)
        box.found[f"layer{i}"] = x.detach()
        box.found[i] = x.mean()
    return x


def numbers_between(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.kept.append(7)
    box.found["shape"] = tuple(y.shape)
    z = torch.exp(y)
    box.kept.append(None)
    box.found["z"] = z
    return z * 2


def collects_in_its_own(x, box):
    collected = {"hidden": [], "more": []}
    box.collector = collected
    for i in range(3):
        x = torch.tanh(x + i)
        if "hidden" in collected.keys() and len(collected["hidden"]) < 5:
            collected["hidden"].append(x)
    box.collector = None
    return x, collected


@pytest.mark.parametrize("fn", [appends, stores, both, numbers_between, collects_in_its_own], ids=lambda f: f.__name__)
def test_in_one_graph(fn):
    check(fn, filled())
    compiled = kintsugi.compile(fn)
    for i in range(3):
        agree(fn, compiled, filled(), i)
    assert len(subgraphs(compiled)) == 1


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def keeps_list(kept):
    return lambda k: lambda module, inputs, output: kept[0].append(output)


def keeps_dict(kept):
    return lambda k: lambda module, inputs, output: kept[1].__setitem__(k, output) if k == 1 else None


def stores_dict(kept):
    def hook_of(k):
        def hook(module, inputs, output):
            kept[1][f"layer{k}"] = output.detach()
        return hook
    return hook_of


@pytest.mark.parametrize("make, parts", [(keeps_list, 1), (stores_dict, 1), (keeps_dict, None)], ids=["append", "store", "setitem"])
def test_hooks(make, parts):
    seen = []
    for compiles in (False, True):
        kept, net = ([], {}), Net()
        for k, layer in enumerate(net.layers):
            layer.register_forward_hook(make(kept)(k))
        f = kintsugi.compile(net) if compiles else net
        outcomes = []
        with torch.no_grad():
            for i in range(6):
                f(x() + i)
                outcomes.append((list(kept[0]), dict(kept[1])))
                kept[0].clear()
                kept[1].clear()
        seen.append(outcomes)
        if compiles and parts is not None:
            assert sum(v["subgraphs"] for v in kintsugi.stats(f)["variants"]) == parts
    for (a, b), (c, d) in zip(*seen):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, d)
        assert list(b) == list(d)


# -- who looks ----------------------------------------------------------------------------------------------------------------------


def asks_length(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    n = len(box.kept)
    box.found["n"] = y
    return torch.exp(y) * n, len(box.found)


def asks_for_a_member(x, box):
    y = torch.relu(x)
    box.found["new"] = y
    there = "new" in box.found, "old" in box.found, "none" in box.found
    return torch.exp(y), there, box.found.get("new") is y, box.found.keys() == {"old", "new"}


def reads_back(x, box):
    y = torch.relu(x)
    box.found["new"] = y
    box.kept.append(y)
    z = torch.exp(box.found["new"]) + box.kept[-1]
    return z, box.kept[-2], box.kept[2] is y


def goes_over(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.found["new"] = y
    z = torch.exp(y)
    return z, [type(k).__name__ for k in box.kept], list(box.found), [*box.found.values()][0]


def through_another_name(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.found["new"] = y
    z = torch.exp(y)
    return z, len(box.same), len(box.inside[0]), box.inside[0] == box.kept, str(box.texts), len(box.also)


def changes_otherwise(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.kept.insert(0, "first")
    box.kept.append(2)
    box.found["new"] = y
    box.found.pop("old")
    z = torch.exp(y)
    box.kept.append(z)
    box.kept.remove("a")
    del box.found["new"]
    box.found["old"] = z
    return z


def looks_from_outside(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.found["new"] = y
    z = torch.exp(y)
    box.look(box)
    return z * 2


def prints(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    z = torch.exp(y)
    return z, repr([len(box.kept), box.kept[:2]]), f"{len(box.found)}"


def aliased():
    box = Box(kept=[1, "a"], found={"old": 3}, texts=["t"])
    box.same, box.inside, box.also = box.kept, (box.kept, box.found), box.found
    return x(), box


def note(box):
    box.seen = (len(box.kept), list(box.found))


@pytest.mark.parametrize("fn, make", [(asks_length, filled()), (asks_for_a_member, filled()), (reads_back, filled()), (goes_over, filled()), (through_another_name, aliased),
                                      (changes_otherwise, filled()), (looks_from_outside, filled(look=note)), (prints, filled())],
                         ids=lambda p: getattr(p, "__name__", None))
def test_who_looks_sees_what_eager_shows(fn, make):
    check(fn, make, waits=False)


def has_a_loop(x, box):
    names = []
    for name in box.names:
        x = torch.tanh(x)
        box.found[name] = x
        names.append(name)
    return x, names


def test_a_loop_over_the_dict_that_grows():
    """The dict that is stored to is another one than the loop's, then the same one: RuntimeError, as in eager."""
    def apart():
        return x(), Box(names={"a": 1, "b": 2}, found={})

    def alike():
        box = Box(names={"a": 1, "b": 2})
        box.found = box.names
        return x(), box

    def grows():
        names = {"old": 1, "b": 2}
        return x(), Box(names=names, found=names)

    def growing(x, box):
        for name in box.names:
            x = torch.tanh(x)
            box.found[name + "!"] = x
        return x

    for fn in (has_a_loop, growing):
        check(fn, apart, alike, grows, waits=False)


# -- who leaves ---------------------------------------------------------------------------------------------------------------------


def raises_behind(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.found["new"] = y
    z = y.view(-1)[: box.n].view(3, 4)   # raises for another n
    box.kept.append(z)
    return torch.exp(z)


def is_caught(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    try:
        z = y.view(-1)[: box.n].view(3, 4)
        box.found["z"] = z
    except RuntimeError:
        z = y + len(box.kept)
    return torch.exp(z)


@pytest.mark.parametrize("fn", [raises_behind, is_caught], ids=lambda f: f.__name__)
def test_what_was_put_there_before_an_error_is_there(fn):
    check(fn, filled(n=12), filled(n=11), waits=False)


def decides_on_data(x, box):
    y = torch.relu(x)
    box.kept.append(y)
    box.found["new"] = y
    if y.sum() > box.limit:
        box.kept.append("much")
    return torch.exp(y)


def test_a_decision_on_data_between():
    check(decides_on_data, filled(limit=1), filled(limit=1000), waits=False)


def test_what_is_replaced_dies_in_order():
    gone = []

    class Told:
        def __del__(self):
            gone.append(len(gone))

    def f(x, box):
        y = torch.relu(x)
        box.found["told"] = y
        n = len(gone)
        z = torch.exp(y)
        box.found["told"] = z
        return z, n

    compiled = kintsugi.compile(f)
    for i in range(8):
        results = []
        for fn in (f, compiled):
            gone.clear()
            results.append(fn(x(), Box(found={"told": Told() if i % 2 else 5}))[1])
        assert results[0] == results[1]


@pytest.mark.parametrize("train", [False, True])
def test_with_gradients(train):
    def f(x, kept):
        y = torch.relu(x * 2)
        kept.append(y)
        z = torch.exp(y)
        kept.append(z.detach())
        return (z * y).sum()

    compiled = kintsugi.compile(f)
    for i in range(6):
        grads = []
        for fn in (f, compiled):
            a, kept = (x() + i / 10).requires_grad_(train), []
            out = fn(a, kept)
            if train:
                (out + kept[0].sum()).backward()
            grads.append((a.grad, kept))
        torch.testing.assert_close(grads[0], grads[1])
        assert [k.requires_grad for k in grads[0][1]] == [k.requires_grad for k in grads[1][1]]


def test_attributes_have_the_order_in_which_they_were_first_stored():
    """A store that another one replaces is left out, but not where another attribute was stored in between."""
    class Cache:
        def __init__(self):
            self.window = torch.tensor(3)
            self.filled = False

        def fill(self, x):
            if not self.filled:
                self.dtype = x.dtype
                self.window = self.window + 1
                self.keys = x[:0]
                self.filled = True
            self.keys = torch.cat([self.keys, x])
            self.keys = self.keys * 2
            return self.keys

    def f(x):
        cache = Cache()
        return torch.exp(cache.fill(torch.relu(x))), cache

    compiled = kintsugi.compile(f)
    for i in range(8):
        ours, theirs = compiled(x() + i), f(x() + i)
        assert list(vars(ours[1])) == list(vars(theirs[1])) == ["window", "filled", "dtype", "keys"]
        torch.testing.assert_close([ours[0], ours[1].window, ours[1].keys], [theirs[0], theirs[1].window, theirs[1].keys])


def test_an_iterator_over_a_dict_that_has_died():
    def f(x):
        for name in {f"k{i}": i for i in range(3)}:
            x = torch.tanh(x)
        box = {}
        KEPT["a"] = x
        box["b"] = x
        for name in dict(a=1):
            KEPT[name] = x * 2
        return x, box

    compiled = kintsugi.compile(f)
    for i in range(8):
        seen = []
        for fn in (f, compiled):
            KEPT.clear()
            seen.append((fn(x() + i), dict(KEPT)))
        torch.testing.assert_close(*seen)


KEPT = {}
