"""Sizes that differ between calls: recorded once more with the size free, then replayed for every length, with what eager gives."""

import pytest
import torch

import kintsugi
from kintsugi import _kintsugi as engine

LENGTHS = [5, 7, 3, 9, 2, 1, 0, 11, 4, 6, 8, 13]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def check(fn, make, lengths=LENGTHS, *, recordings, branches=0, **kwargs):
    """Each length gives what eager gives, and few recordings are enough."""
    engine.reset()
    compiled = kintsugi.compile(fn, **kwargs)
    for n in lengths:
        args = make(n)
        assert same(outcome(fn, args), outcome(compiled, args)), n
    stats = compiled.stats()
    assert stats["recordings"] <= recordings, stats
    assert stats["branches"] <= branches, stats
    assert not any(stats["eager_calls"].values()), stats["eager_calls"]
    assert not [e for e in engine.events() if e["event"] == "bug" and e["name"] == compiled.__name__]
    return compiled


def rows(n):
    return (torch.randn(n, 2),)


# 5 fixed, then free: what later serves 1 and 0, too.
FEW = 2


def test_a_size_flows_into_views():
    def fn(x):
        return (x.view(x.shape[0] * 2, -1) + 1).reshape(x.size(0), -1)

    check(fn, lambda n: (torch.randn(n, 4),), [n for n in LENGTHS if n > 1], recordings=2)


def test_sizes_of_intermediate_tensors():
    def fn(x):
        b, t = x.shape
        y = x.unsqueeze(1).expand(b, 3, t).transpose(1, 2)
        z = y.reshape(b * t, 3)
        return z.view(*y.shape[:-1], -1) + torch.arange(t)[None, :, None], z.shape[0], len(y), y.shape

    check(fn, lambda n: (torch.randn(2, n),), recordings=FEW)
    check(fn, lambda n: (torch.randn(2, n),), recordings=1, dynamic=True)
    check(fn, lambda n: (torch.randn(2, n),), recordings=FEW, fullgraph=True)


def test_branches_on_a_size():
    def fn(x):
        if x.shape[0] > 4:
            return x * 2
        return x - 1

    check(fn, rows, recordings=FEW, branches=1)


def test_a_loop_over_a_size():
    def fn(x):
        s = 0
        for i in range(x.shape[0]):
            s = s + x[i] * i
        return s

    check(fn, rows, recordings=FEW, branches=8)


def test_a_loop_over_rows():
    def fn(x):
        for row in x:
            x = x + row
        return x

    check(fn, rows, recordings=FEW, branches=8)


def test_text_of_sizes():
    def fn(x):
        return f"{x.shape[0]} {x.shape} {x.size()}", str(x.shape[0]), "%d" % x.size(0), repr(x.shape)

    check(fn, rows, recordings=FEW)


def test_methods_of_shapes():
    def fn(x):
        s = x.shape
        keys = {s: 1, s[0]: 2}
        return (keys, s in keys, keys[s], s.numel(), x.numel(), x.nelement(), x.stride(), x.stride(0), x.is_contiguous(), x.nbytes,
                s[::-1], s[1:], s + (1,), (1,) + tuple(s), (*s, 3), list(s), s[-1], s[-2], x.dim(), s == (5, 2), s != x.t().shape,
                s.count(2), s * 2, hash(s) == hash(tuple(s)), max(s), min(x.shape), sum(s), s.index(2), len(s), bool(s),
                [d * 2 for d in s], isinstance(s, tuple), isinstance(s[0], int), type(s).__name__, x.t().stride())

    check(fn, rows, recordings=FEW, branches=2)


def test_arithmetic_on_sizes():
    def fn(x):
        n = x.shape[-1]
        half, rest = n // 2, n % 2
        return (x[..., :half], x[..., half:], torch.zeros(half, rest), divmod(n, 3), n / 2, n**2, -n, ~n, n << 1, n & 1, float(n), int(n),
                abs(n), max(n, 4), min(n, 4), n > 3 and n < 9, half if half > 2 else None, round(n), bool(n))

    check(fn, lambda n: (torch.randn(2, n),), recordings=FEW, branches=5)


def test_division_by_a_size():
    def fn(x):
        return 10 // x.shape[0], 10 % x.shape[0]

    check(fn, rows, recordings=FEW)


def test_sizes_that_agree_at_first():
    def fn(x, y):
        return torch.cat([x, y]).sum(0) / (x.shape[0] + y.shape[0]), x.shape[0] == y.shape[0], x.shape == y.shape

    check(fn, lambda n: (torch.randn(n, 2), torch.randn(n if n % 2 else 13 - n, 2)), recordings=2, branches=3)


def test_broadcasting():
    def fn(x, y):
        return x + y, x.shape == y.shape, torch.broadcast_shapes(x.shape, y.shape)

    check(fn, lambda n: (torch.randn(n, 2), torch.randn(n if n % 3 else 1, 2)), recordings=2, branches=4)


def test_errors_are_those_of_eager():
    def fn(x):
        return x.view(x.shape[0] // 2, 4)

    check(fn, lambda n: (torch.randn(n, 2),), recordings=2, branches=4)


def test_one_and_none_need_no_recording_of_their_own():
    def fn(x, y):
        z = x.squeeze(0) + y
        return z, z.dim(), x.expand(x.shape[0], 3).t(), "one" if x.shape[0] == 1 else x.sum(0), x.is_contiguous(), x.stride()

    check(fn, lambda n: (torch.randn(n, 3), torch.randn(3)), [4, 6, 1, 0, 1, 5, 0, 2, 1], recordings=2, branches=4)
    check(lambda x, y: (x * y).sum(0), lambda n: (torch.randn(n, 3), torch.randn(max(n, 2) if n % 2 else n, 3)), [1, 6, 1, 0, 5, 2, 1], recordings=2)


def test_a_backend_of_the_program_gets_graphs_for_one_and_none():
    met = []

    def backend(graph, inputs):
        met.append([tuple(i.shape) for i in inputs if isinstance(i, torch.Tensor)])
        return graph.forward

    check(lambda x: (x + 1).sum(0), rows, [4, 6, 1, 7, 1], recordings=3, backend=backend)
    assert len(met) == 3, met


class Room:
    def __init__(self, most):
        self.most = most


def test_numbers_that_change_together_are_free_at_once():
    def fn(x, rooms):
        return [x.sum() + room.most for room in rooms]

    check(fn, lambda n: (torch.ones(2), [Room(n) for _ in range(4)]), [20, 30, 40, 50], recordings=2)


def test_sizes_that_nobody_asks_for_change_with_a_number():
    def fn(table, x, room):
        y = torch.nn.functional.embedding(x, table)
        return y.reshape(y.shape[1], -1), torch.zeros(room.most, 2)

    table = torch.randn(7, 4)
    with kintsugi.config.patch(kernels=True):  # without them a size that only something computed shows is noted once it differs
        check(fn, lambda n: (table, torch.arange(n).unsqueeze(0) % 7, Room(n + 20)), [5, 9, 12, 17], recordings=2)


def test_layers_that_are_looked_at_later_are_alike():
    def fn(x, rooms):
        first = x + rooms[0].most
        torch._dynamo.graph_break()
        return [first * room.most for room in rooms]

    with kintsugi.config.patch(kernels=True):
        check(fn, lambda n: (torch.ones(2), [Room(n) for _ in range(4)]), [20, 30, 40, 50], recordings=2)


@pytest.mark.parametrize("times", [1, 9])
def test_a_computed_size_that_changes_late(times):
    def fn(table, x):
        y = torch.nn.functional.embedding(x, table)
        return y.view(y.shape[0] * 2, -1) * 2 + 1

    table = torch.randn(7, 4)
    with kintsugi.config.patch(kernels=True):
        check(fn, lambda n: (table, torch.arange(n) % 7), [5] * times + [9, 9, 12, 17, 5], recordings=2)


def test_all_that_changed_is_free_at_once():
    def fn(a, b, c):
        return a.shape[0] + b.shape[1], (a + b.t()[: c.shape[0]]).sum()

    compiled = check(fn, lambda n: (torch.randn(n, n), torch.randn(n, n), torch.randn(n)), [5, 7, 3, 9], recordings=2)
    assert compiled.stats()["replays"] == 2


def test_growing_cache():
    class Cache:
        def __init__(self):
            self.keys = torch.randn(1, 2, 4)

        def update(self, k):
            self.keys = torch.cat([self.keys, k], 1)
            return self.keys

    def step(x, cache):
        k = cache.update(x)
        mask = torch.ones(x.shape[1], k.shape[1]).tril(k.shape[1] - x.shape[1])
        return (x @ k.transpose(1, 2)) * mask

    engine.reset()
    compiled = kintsugi.compile(step)
    torch.manual_seed(0)
    a, b = Cache(), Cache()
    b.keys = a.keys
    for _ in range(20):
        x = torch.randn(1, 1, 4)
        assert same(step(x, a), compiled(x, b))
    stats = compiled.stats()
    assert stats["recordings"] <= 3 and stats["branches"] <= 1, stats
    assert not any(stats["eager_calls"].values())


def test_a_fixed_size_stays_fixed():
    def fn(x):
        return x + x.shape[0]

    engine.reset()
    compiled = kintsugi.compile(fn, dynamic=False)
    for n in (5, 7, 3):
        assert same(fn(torch.ones(n)), compiled(torch.ones(n)))
    assert compiled.stats()["recordings"] == 3


def test_dynamic_from_the_start():
    def fn(x, weight):
        return (x @ weight).view(x.shape[0], 2, -1) + x.shape[1]

    weight = torch.nn.Parameter(torch.randn(4, 6))
    with torch.no_grad():
        check(fn, lambda n: (torch.randn(n, 4), weight), [n for n in LENGTHS if n > 1], recordings=1, dynamic=True)


def test_marked_dimensions():
    def fn(x):
        return x * x.shape[0]

    engine.reset()
    compiled = kintsugi.compile(fn)
    for n in (5, 7, 3):
        x = torch.ones(n, 2)
        x._dynamo_dynamic_indices = {0}  # as torch._dynamo.mark_dynamic does
        assert same(fn(x), compiled(x))
    assert compiled.stats()["recordings"] == 1

    fixed = kintsugi.compile(fn)
    for n in (5, 7, 3):
        x = torch.ones(n, 2)
        x._dynamo_static_indices = {0}  # torch._dynamo.mark_static
        assert same(fn(x), fixed(x))
    assert fixed.stats()["recordings"] == 3


def test_what_became_dynamic_is_told():
    def fn(x):
        return x * x.shape[0]

    engine.reset()
    compiled = kintsugi.compile(fn)
    before = max((e["seq"] for e in engine.events()), default=-1)
    for n in (5, 7, 3):
        compiled(torch.ones(n))
    told = [e["failures"] for e in engine.events() if e["event"] == "recompile" and e["seq"] > before]
    assert len(told) == 1 and "size mismatch at index 0. expected 5, actual 7" in told[0]
    assert "size changed from 5 to 7 at L['x'] dim 0; now dynamic" in told[0]


@pytest.mark.parametrize("kernels", [False, True])
def test_a_replay_may_be_left_anywhere(kernels):
    """Shapes that were not built, and sizes of tensors that no kernel has made, are there in the frames that CPython goes on with."""
    def fn(x, y):
        b, t = x.shape
        z = (torch.cat([x, y], 1) * 2).relu()
        shape = z.shape[:-1] + (z.shape[1] // 2, -1)
        total = z.numel() + b * t
        if z.shape[1] > 3:
            z = z + total
        text = f"{shape} {total}"
        z = z.view(z.shape[0], -1).sum(1).cumsum(0)
        return z, shape, total, text, z.shape

    engine.reset()
    engine.set_option("trials", 0)
    old = kintsugi.config.kernels
    kintsugi.config.kernels = kernels
    try:
        compiled = kintsugi.compile(fn)
        for n in (4, 6, 6, 6):
            compiled(torch.ones(2, n), torch.ones(2, n))
        for k in range(1, 60):
            n = 3 + k % 7
            args = torch.rand(2, n).round(decimals=1), torch.rand(2, n).round(decimals=1)
            engine.force_exit(k)
            got = compiled(*args)
            engine.force_exit(None)
            expected = fn(*args)
            torch.testing.assert_close(got[0], expected[0])
            assert got[1:] == expected[1:] and type(got[1]) is torch.Size
    finally:
        engine.force_exit(None)
        engine.set_option("trials", 7)
        kintsugi.config.kernels = old
    assert compiled.stats()["bail_outs"] > 10
    assert not [e for e in engine.events() if e["event"] == "bug" and e["name"] == compiled.__name__]


def test_a_backend_gets_symbols_for_dynamic_sizes():
    graphs = []

    def backend(gm, examples):
        graphs.append([type(e).__name__ for e in examples])
        return gm.forward

    def fn(x):
        y = torch.cat([x, x]).relu()
        z = y.view(y.shape[0] // 2, -1) + x.shape[0]
        return z.sum(0) * y.size(0)

    engine.reset()
    compiled = kintsugi.compile(fn, backend=backend)
    for n in (4, 6, 9, 3, 12):
        x = torch.randn(n, 3)
        assert torch.equal(fn(x), compiled(x))
    assert compiled.stats()["recordings"] == 2
    assert any("SymInt" in kinds for kinds in graphs)


def test_guards_tell_what_is_free():
    compiled = kintsugi.compile(lambda x: x * x.shape[0])
    for n in (4, 6):
        compiled(torch.ones(n, 3))
    first, second = sorted(str(engine.dump(entry)) for entry in compiled.entries())
    assert ("dynamic dims [0]" in first) != ("dynamic dims [0]" in second)


@pytest.mark.parametrize("seed", range(20))
def test_random_lengths(seed):
    """A chain of operators that read sizes, on lengths in random order, two sizes that change on their own."""
    rng = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, 6, (6,), generator=rng).tolist()

    def fn(x, y):
        out = []
        for p in picks:
            b, t = x.shape[0], x.shape[1]
            if p == 0:
                x = x.reshape(b * t, -1).view(b, t, -1)
            elif p == 1:
                x = x + torch.arange(t).view(1, t, 1)
            elif p == 2:
                x = torch.cat([x, x.new_zeros(b, 1, x.size(2))], dim=1)
            elif p == 3:
                x = x[:, : t // 2 + 1] if t > 3 else x * 2
            elif p == 4:
                x = x.transpose(1, 2).contiguous().view(b, -1).view(b, -1, t).transpose(1, 2)
            else:
                x = x + y.sum() / y.numel() if y.shape[0] != t else x - 1
            out.append((x.shape, x.numel()))
        return x, out

    def make(_):
        n = torch.randint(2, 12, (2,), generator=rng).tolist()
        return torch.randn(2, n[0], 3), torch.randn(n[1])

    check(fn, make, range(14), recordings=2, branches=14)
