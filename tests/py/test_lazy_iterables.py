"""map, filter, accumulate and sorted over iterables that may be gone while their items are still asked for. Freed memory is overwritten
(PYTHONMALLOC=debug), so a look at it does not go by unseen."""
import os
import subprocess
import sys

PROGRAM = """
import collections, itertools, types, warnings
import torch, kintsugi

warnings.simplefilter("error", DeprecationWarning)
D = {"a": 1, "b": 2}
OD = collections.OrderedDict(D)


class Iterable:
    def __iter__(self):
        return iter(range(3))


class Sequence:
    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i


MADE = [lambda: range(3), lambda: D.items(), lambda: D.values(), lambda: D.keys(), lambda: OD.items(), lambda: types.MappingProxyType(D).values(),
        lambda: types.MappingProxyType(D), lambda: Iterable(), lambda: Sequence(), lambda: (1, 2, 3), lambda: [1, 2, 3], lambda: reversed([1, 2, 3]),
        lambda: collections.deque([1, 2, 3]), lambda: zip([1, 2], [3, 4]), lambda: enumerate([4, 5]), lambda: "abc", lambda: itertools.chain([1], [2]),
        lambda: (i for i in range(3)), lambda: b"abc", lambda: memoryview(b"abc")]


def others(n):
    return [object() for _ in range(n)]


USED = [lambda it: list(map(lambda v: (v, 1), it)), lambda it: list(itertools.accumulate(it, lambda a, b: (a, b))), lambda it: list(filter(lambda v: v != 2, it)),
        lambda it: sorted(it, key=str), lambda it: (lambda lazy: (others(50), list(lazy))[1])(map(lambda v: (v, 2), it)),
        lambda it: list(itertools.starmap(lambda *v: v, [tuple(str(v)) for v in it])),
        lambda it: list(itertools.starmap(lambda a, b: (b, a), D.items()))]

for i, make in enumerate(MADE):
    for j, use in enumerate(USED):
        def program(x):
            return x * 2, use(make())

        compiled = kintsugi.compile(program)
        for _ in range(4):
            expected, got = program(torch.ones(2)), compiled(torch.ones(2))
            assert str(expected) == str(got), (i, j, expected, got)
print("done")
"""


def test_items_of_what_is_gone():
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | {"PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr[-1500:]


def test_containers_of_own_classes():
    """Classes that are lists or dicts and leave to them how items are found: what is overridden, also later, and what changes, is eager's."""
    import torch

    import kintsugi

    class Plain(list):
        pass

    class Doubling(list):
        def __getitem__(self, i):
            return super().__getitem__(i) * 2

        def __iter__(self):
            return reversed(list(super().__iter__()))

    class Later(list):
        pass

    class Missing(dict):
        def __missing__(self, key):
            return len(key)

    def lists(x, made):
        made.append(x + 1)
        made.insert(0, x * 2)
        made[1] = made[0] + made[-1]
        return [t + 1 for t in made], list(made), made[1] * len(made), made.pop(), len(made), made

    def dicts(x, made):
        made["a"] = x + 1
        made["b"] = made["a"] * 2
        last = made.popitem()
        return made["a"] + last[1], [k for k in made], made.get("zz", 1), made["ccc"] if hasattr(type(made), "__missing__") else None, made

    def plain(value):
        return value.tolist() if isinstance(value, torch.Tensor) else {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else \
            [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    for kwargs in ({}, {"backend": lambda gm, inputs: gm}):
        for cls, fn in ((Plain, lists), (Doubling, lists), (Later, lists), (Missing, dicts), (dict, dicts)):
            compiled = kintsugi.compile(fn, **kwargs)
            for i in range(6):
                if cls is Later and i == 3:
                    Later.__getitem__ = lambda self, at: list.__getitem__(self, at) * 3
                    Later.__len__ = lambda self: list.__len__(self) + 1
                x, first = torch.arange(3.0) + i, torch.ones(3)
                made = [cls(first=first) if fn is dicts else cls([first] * (1 + i // 2)) for _ in range(2)]
                assert plain(compiled(x, made[0])) == plain(fn(x, made[1])), (cls, i)
                assert plain(made[0]) == plain(made[1])
        for name in ("__getitem__", "__len__"):
            delattr(Later, name)


LET_GO = """
import itertools
import torch, kintsugi


def quiet(n):
    for i in range(n):
        yield i


def unasked():
    # from here on next() is a step of its own
    return itertools.chain.from_iterable([map(lambda v: v + 1, iter([1])), filter(None, itertools.islice(map(lambda p: p[0], enumerate(iter([3]))), 9))])


def longest(x):
    out, other = [], unasked()
    it = iter(map(lambda p: p[0] + p[1], itertools.zip_longest(iter([0, 1, 2]), quiet(4), fillvalue=4)))
    out.append(sum(itertools.islice(it, 5)))
    out.append(any(map(lambda v: v < 1, itertools.islice(other, 4))))
    out.append(next(it, None))
    return x, out, [it]


def folded(x):
    out, other = [], unasked()
    it = iter(map(lambda s: s * 2, itertools.accumulate(quiet(2), lambda a, b: a + b, initial=x.sum())))
    out.append(list(itertools.islice(it, 5)))
    out.append(any(map(lambda v: v < 1, itertools.islice(other, 4))))
    out.append(next(it, None))
    return x, out, [it]


def tested(x):
    out = []
    for i in itertools.takewhile(lambda v: v < 3, itertools.repeat(0)):
        x = x * 2 + i
        if x.sum() > 40:
            break
        out.append(i)
    return x, out


for program in (longest, folded, tested):
    compiled = kintsugi.compile(program)
    for _ in range(4):
        expected, got = program(torch.ones(2)), compiled(torch.ones(2))
        assert str(expected[:2]) == str(got[:2]), (program, expected, got)
    print(program.__name__)
"""


def test_what_is_let_go_of():
    """zip_longest lets go of a source that has no more, accumulate of the value it started with, a condition of the tensor it tested: none of them is looked at
    afterwards."""
    done = subprocess.run([sys.executable, "-c", LET_GO], env=os.environ | {"PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["longest", "folded", "tested"]), done.stderr[-1500:]
