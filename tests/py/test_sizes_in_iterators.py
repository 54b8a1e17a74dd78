"""Sizes that change between calls and feed what iterates: itertools, deque, sum and max of generators, sorted, starred operands.

C code that uses up a generator is done with its operands when the recording looks at what came out of it; some of these programs ended
the process, others lost items where the program was left.
"""
import bisect   # noqa: F401
import copy   # noqa: F401
import functools   # noqa: F401
import heapq   # noqa: F401
import math   # noqa: F401
import operator   # noqa: F401
import statistics   # noqa: F401
from collections import Counter, OrderedDict, defaultdict, deque   # noqa: F401
from itertools import *   # noqa: F403  the programs use most of them

import pytest
import torch

import kintsugi
from kintsugi import _kintsugi as engine

SIZES = ([3, 3, 5, 5, 4, 6, 3, 2, 8], [3, 4, 5, 6, 7, 9, 2, 1, 0])
PROGRAMS = r"""
[a+b for a,b in combinations(x.shape,2)]
[a for a in combinations(range(x.shape[0]),2)]
len(list(combinations(range(x.size(0)),2)))
[x[i]*x[j] for i,j in combinations(range(x.size(0)),2)]
sum(x[i]*x[j] for i,j in combinations(range(x.size(0)),2))
[x[i]+x[j] for i,j in permutations(range(x.size(0)),2)]
[(k,len(list(g))) for k,g in groupby(x.shape)]
[(k,list(g)) for k,g in groupby(range(x.size(0)), key=lambda i:i%2)]
[(k,list(g)) for k,g in groupby(range(x.size(0)), key=lambda i:i//2)]
[(k,sum(x[i] for i in g)) for k,g in groupby(range(x.size(0)), key=lambda i:i//2)]
list(takewhile(lambda s:s<x.size(0), range(10)))
[x[i] for i in takewhile(lambda s:s<x.size(0), count())]
list(dropwhile(lambda s:s<x.size(0), range(10)))
deque(range(x.size(0)), maxlen=2)
deque(x.shape, maxlen=x.dim())
list(deque((x[i] for i in range(x.size(0))), maxlen=2))
list(deque(x, maxlen=2))
deque([x]*x.size(0), maxlen=x.size(0)-1)[0]
sum(t for t in x)
sum(t*2 for t in x)
sum((t*i for i,t in enumerate(x)), start=torch.zeros(()))
sum(x[i] for i in range(x.size(0)))
sum(t.sum() for t in x.split(1))
sum(t.numel() for t in x.split(2))
sum(t for t in x.unbind(0))
list(accumulate(x.shape))
list(accumulate(range(x.size(0)), operator.mul))
[t for t in accumulate(x)]
list(accumulate(x, torch.add))
list(islice(x, x.size(0)-1))
list(islice(range(100), x.size(0)))
list(islice(count(), x.size(0)))
list(islice(cycle(x.shape), x.size(0)+3))
list(chain(range(x.size(0)), x.shape))
list(chain.from_iterable([range(s) for s in x.shape]))
list(chain(x, x))
list(product(range(x.size(0)), repeat=2))
[x[i]+j for i,j in product(range(x.size(0)), range(2))]
list(zip(x, range(x.size(0))))
list(zip_longest(x.shape, range(x.size(0))))
list(pairwise(x.shape))
list(pairwise(range(x.size(0))))
[b-a for a,b in pairwise(x)]
list(repeat(x.size(0), x.size(0)))
list(starmap(operator.add, zip(x.shape, x.shape)))
list(compress(range(x.size(0)), cycle([1,0])))
list(filterfalse(lambda s:s%2, range(x.size(0))))
list(filter(lambda s:s%2, range(x.size(0))))
list(map(lambda i:x[i], range(x.size(0))))
list(map(operator.add, x.shape, x.shape))
list(reversed(range(x.size(0))))
list(reversed(x.shape))
[t for t in reversed(x)]
sorted(range(x.size(0)), key=lambda i:-i)
sorted(x.shape)
max(x.shape), min(x.shape)
max(range(x.size(0)), key=lambda i:(i*7)%5)
functools.reduce(operator.mul, x.shape)
functools.reduce(torch.add, x)
functools.reduce(lambda a,b:a+b, (x[i] for i in range(x.size(0))))
any(s>4 for s in x.shape)
all(s>2 for s in x.shape)
next(i for i in count() if i>=x.size(0))
next((s for s in x.shape if s>4), None)
next(iter(range(x.size(0), 100)))
Counter(x.shape)
Counter(range(x.size(0))).most_common(2)
dict(zip(range(x.size(0)), x.shape))
{i: x[i] for i in range(x.size(0))}
{s for s in x.shape}
set(range(x.size(0)))
frozenset(x.shape)
OrderedDict((i,i) for i in range(x.size(0)))
heapq.nlargest(2, range(x.size(0)))
heapq.merge(range(x.size(0)), x.shape).__next__()
bisect.bisect(range(100), x.size(0))
statistics.mean(x.shape)
math.comb(x.size(0),2), math.factorial(x.size(0))
list(combinations_with_replacement(range(x.size(0)),2))[:3]
[tuple(c) for c in combinations(x,2)][0][0]
[t.sum() for c in combinations(x,2) for t in c]
list(tee(x.shape,2)[0])
[list(t) for t in tee(range(x.size(0)),2)]
[a+b for a,b in zip(*tee(x,2))]
list(x.shape)*2
x.shape + x.shape
x.shape * 2
x.shape[::-1]
x.shape[:-1] + (x.size(0),)
[*x.shape, *range(x.size(0))]
(lambda *a: len(a))(*range(x.size(0)))
(lambda *a: a[-1])(*x)
torch.cat([t[None] for t in x])
torch.stack([x[i] for i in range(x.size(0))])
torch.stack(list(x))
torch.stack([t*i for i,t in enumerate(x)])
[t for t in x.split([1]*x.size(0))]
[t.shape for t in x.chunk(x.size(0))]
[x[i:j].sum() for i in range(x.size(0)) for j in range(i)]
[i for i in range(0,x.size(0),2)]
[i for i in range(x.size(0),0,-1)]
''.join(chr(97+i) for i in range(x.size(0)))
str(tuple(x.shape))
f'{x.size(0)}:{x.shape}'
'%d'%x.size(0)
bytes(range(x.size(0)))
bytearray(x.size(0))
list(memoryview(bytes(x.size(0))))
[0]*x.size(0)
'a'*x.size(0)
divmod(x.size(0),2)
x.size(0).bit_length()
isinstance(x.size(0), int), type(x.size(0))
hash(x.shape)==hash(tuple(x.shape))
x.shape in [(3,4),(5,4)]
x.shape.index(x.size(0)), x.shape.count(4)
x.new_zeros(x.shape).shape
x.view(-1, x.size(0)).shape
[i for i in (lambda: (yield from range(x.size(0))))()]
list(iter(functools.partial(next, iter(range(x.size(0)))), 2))
sum(1 for _ in x)
sum(map(len, x.split(2)))
sum(map(torch.numel, x))
sum(x.shape[1:], start=x.size(0))
sum([t for t in x], torch.zeros(4))
sum((t for t in x), torch.zeros(4))
sum(t for t in x if t.numel())
sum(t for t in [x[0], x[1]])
math.prod(s for s in x.shape), math.prod(t.numel() for t in x)
max((t.sum() for t in x), key=lambda v: v.item())
min(x.unbind(0), key=lambda v: float(v.sum()))
sorted(x.unbind(0), key=lambda v: float(v.sum()))[0]
[n for n,_ in zip(count(), x)]
list(enumerate(x.shape, x.size(0)))
tuple(t.item() for t in x.sum(1))
[i for i, v in enumerate(x.sum(1)) if v > 0]
deque(enumerate(x.shape), maxlen=1)
deque((i for i in range(x.size(0))), maxlen=3).pop()
deque((t.sum() for t in x), maxlen=3).popleft()
[d for d in deque([1,2,3,4,5], maxlen=x.size(0))]
deque([], maxlen=x.size(0)).maxlen
list(map(sum, product(x.shape, x.shape)))
list(map(lambda t, i: t*i, x, range(x.size(0))))
list(filter(None, x.shape))
[len(g) for g in map(list, map(operator.itemgetter(1), groupby(x.shape)))]
list(zip(*[iter(range(x.size(0)))]*2))
dict(enumerate(x.shape)), dict.fromkeys(range(x.size(0)), 0)
copy.copy(x.shape), copy.deepcopy(list(x.shape))
list(takewhile(lambda t: t.numel() > 2, x))
[(k, [t.sum() for t in g]) for k, g in groupby(x, key=lambda t: t.numel())]
[(k, len([*g])) for k, g in groupby(x.split(2), key=len)]
[a*b for a, b in combinations([t for t in x], 2)]
list(islice((t for t in x), 1, None))
list(islice(x.unbind(), 0, None, 2))
list(accumulate((t for t in x), lambda a, b: a*b))
sum(map(lambda t: t*2, x), torch.zeros(4))
sum((t for t in x), start=torch.zeros(4))
sum((t*2 for t in x), [torch.ones(4)][0])
sum((t for t in x), torch.zeros(4)+1)
sum((i for i in range(x.size(0))), x.sum())
sum((i for i in range(x.size(0))), [1][0])
sum(([i] for i in range(x.size(0))), [])
sum(([i] for i in range(x.size(0))), [7])
sum(((i,) for i in range(x.size(0))), (x.size(0),))
sum((x[i:i+1] for i in range(x.size(0))), start=x.new_zeros(1,4))
functools.reduce(lambda a,b: a+b, (t for t in x), torch.zeros(4))
functools.reduce(lambda a,b: a+[b], (t for t in x), [torch.zeros(4)])
functools.reduce(torch.maximum, (t for t in x), torch.zeros(4))
list(accumulate((t for t in x), initial=torch.zeros(4)))
list(accumulate(x, lambda a,b: a-b, initial=torch.ones(4)))
max((t.sum().item() for t in x), default=torch.zeros(1))
max((s for s in x.shape if s > 100), default=[x.size(0)])
max((s for s in x.shape if s > 100), default=torch.ones(2))
min((s for s in x.shape), default=None)
min((s for s in x.shape), key=lambda s: -s)
max((i for i in range(x.size(0))), key=lambda i: (i*3)%4)
max([torch.ones(1)*i for i in range(x.size(0))], key=lambda t: t.item())
next((t for t in x if t.sum() > 100), torch.zeros(4))
next((t for t in x if t.sum() > -100), torch.zeros(4))
next((i for i in range(x.size(0)) if i > 3), [x.size(0)])
next(iter(x), torch.zeros(4))
next(iter([]), torch.zeros(4))
next((i for i in ()), torch.full((2,), x.size(0)))
dict(((i, x[i]) for i in range(x.size(0))), a=torch.zeros(1))
dict((i, x[i]) for i in range(x.size(0)))
set(i % 3 for i in range(x.size(0)))
frozenset(i % 3 for i in range(x.size(0)))
','.join(str(i) for i in range(x.size(0)))
','.join(map(str, x.shape))
sorted((i for i in range(x.size(0))), reverse=True)
sorted((-i for i in x.shape))
sorted((t for t in x), key=lambda t: t.sum().item())
deque((t for t in x), x.size(0)-1)
deque((t for t in x), maxlen=2)[1]
deque(map(lambda t: t+1, x), maxlen=2)
deque((x[i] for i in range(x.size(0))), x.dim())
all(t.numel() for t in x), any(t.numel() > 5 for t in x)
all(isinstance(t, torch.Tensor) for t in x)
tuple(t for t in x)[-1]
tuple(x[i] * n for n, i in enumerate(range(x.size(0))))
list(zip((t for t in x), [torch.zeros(1)] * x.size(0)))
list(zip((t for t in x), (i for i in range(x.size(0)))))
list(enumerate((t for t in x), start=x.size(0)))
list(map(lambda a, b: a + b, (t for t in x), (torch.ones(4) for _ in range(x.size(0)))))
list(map(torch.add, x, [torch.ones(4)] * x.size(0)))
list(filter(lambda t: t.sum() > 0, (t for t in x)))
[*(t for t in x), *(torch.ones(1) for _ in range(x.size(0)))]
{**{i: x[i] for i in range(x.size(0))}, 99: torch.ones(1)}
(lambda *a, **k: (len(a), list(k)))(*(t for t in x), **{str(i): i for i in range(x.size(0))})
torch.stack([t for t in x] + [torch.ones(4)])
torch.cat([*(t for t in x)])
torch.cat(tuple(t for t in x.split(2)))
torch.stack(tuple(map(lambda t: t.sum(), x)))
torch.stack(sorted(x, key=lambda t: t.sum().item()))
torch.block_diag(*(t[None] for t in x))
torch.einsum('i,i->', *(x[0], x[1]))
torch.tensor([s for s in x.shape])
torch.tensor([t.sum() for t in x])
torch.zeros(*x.shape), torch.zeros(*(s + 1 for s in x.shape)).shape
x.reshape(*(s for s in x.shape[::-1]))
x.permute(*reversed(range(x.dim())))
x.expand(*(2, *x.shape)).shape
x.view(*[s for s in x.shape if s > 0])
x[tuple(slice(0, s - 1) for s in x.shape)]
x[[i for i in range(x.size(0)) if i % 2]]
x[torch.tensor([i for i in range(x.size(0))])]
x.split([1] * x.size(0))[0]
x.split([s for s in (1, x.size(0) - 1)])
math.prod((s for s in x.shape), start=2)
math.fsum(s for s in x.shape), math.dist([1.0]*x.size(0), [2.0]*x.size(0))
statistics.median([s for s in x.shape])
functools.reduce(operator.add, map(len, x.split(2)), x.size(0))
[sum(g) for g in zip(*[iter(range(x.size(0)))] * 2)]
[c for c in combinations((t for t in x), 2)][0]
[a @ b for a, b in combinations((t for t in x), 2)]
[a @ b for a, b in product((t for t in x), repeat=2)]
[a + b for a, b in pairwise(t for t in x)]
[a + b for a, b in zip_longest((t for t in x), (torch.ones(4),), fillvalue=torch.zeros(4))]
[list(g) for _, g in groupby((i // 2 for i in range(x.size(0))))]
[(k, sum(g)) for k, g in groupby((t for t in x), key=lambda t: t.numel())]
[(k, sum(g, torch.zeros(4))) for k, g in groupby(x, key=lambda t: len(t))]
[t for t in takewhile(lambda t: t.sum() < 100, (t for t in x))]
[t for t in dropwhile(lambda t: t.sum() > 100, x)]
[t for t in islice(cycle(x), x.size(0) + 2)]
[t for t in compress(x, (i % 2 for i in range(x.size(0))))]
[t for t in chain((t for t in x), [torch.ones(4)])]
[t for t in chain.from_iterable(x.split(2))]
[t for t in repeat(x.sum(), x.size(0))]
[t for t in starmap(torch.add, zip(x, x))]
list(tee((t for t in x), 2)[1])
[b for a in tee(x, 2) for b in a]
heapq.nsmallest(2, (t for t in range(x.size(0))), key=lambda i: -i)
Counter(i % 2 for i in range(x.size(0)))
OrderedDict(((i, x[i]) for i in range(x.size(0))))
defaultdict(list, {i: [x[i]] for i in range(x.size(0))})
bytes(i for i in range(x.size(0)))
str([i for i in range(x.size(0))])
repr(deque(range(x.size(0)), maxlen=3))
(lambda g: (next(g), next(g), sum(g, torch.zeros(4))))(t for t in x)
(lambda g: [next(g, torch.zeros(4)) for _ in range(x.size(0) + 2)])(t for t in x)
(lambda g: (list(g), list(g)))(t for t in x)
(lambda g: [g.send(None), *g])(t for t in x)
[sum((y for y in t), torch.zeros(())) for t in x]
[max((y.item() for y in t), default=torch.ones(1)) for t in x]
sum(sum((y for y in t), torch.zeros(())) for t in x)
sum((sum(t) for t in x), torch.zeros(()))
""".strip().splitlines()


@pytest.fixture(autouse=True)
def no_forced_exit():
    yield
    engine.force_exit(None)


def is_same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0) and all(map(is_same, a, b))
    return a == b


def outcome(function, size):
    torch.manual_seed(size)
    x = torch.randint(-4, 5, (size, 4)).float()
    try:
        return function(x)
    except Exception as e:   # noqa: BLE001
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda n: PROGRAMS[n][:60])
def test_sizes_feed_iterators(number):
    space = dict(globals())
    exec(f"def f(x):\n    return {PROGRAMS[number]}", space)
    function = space["f"]
    for k in (None, number % 3, 4):
        engine.force_exit(k)
        for sizes in SIZES[:1 + (k is None)]:
            compiled = kintsugi.compile(function)
            for size in sizes:
                expected, found = outcome(function, size), outcome(compiled, size)
                assert is_same(expected, found), (k, size, expected, found)


def filtered(x):
    return sum(part.pow(2).mean() for part in (x.sin(), x[1:]) if part.numel())


def listed(x):
    return list(part * 2 for part in x.split(2) if len(part) > 1)


@pytest.mark.parametrize("function", [filtered, listed])
def test_conditions_on_sizes_inside_generators(function):
    """They end no graph. Where one decides otherwise, the program is left, and a generator that was made before is followed behind that if it goes over a list or tuple of the
    program's; over what a torch call has given, it computes beside the graph, which is reported."""
    compiled = kintsugi.compile(function, dynamic=True, fullgraph=function is filtered)
    for size in (4, 6, 4):
        assert is_same(outcome(function, size), outcome(compiled, size)), size
    assert sum(entry["breaks"] for entry in kintsugi.stats(compiled)["variants"]) == 0
    for size in (1, 5, 4, 1):
        assert is_same(outcome(function, size), outcome(compiled, size)), size
    assert sum(entry["breaks"] for entry in kintsugi.stats(compiled)["variants"]) == (function is listed)
