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
