"""One compilation for all sizes (docs/design/sizes.md): from the second size on machine code takes sizes as arguments, and a further size
takes a plan only. Each program runs over many sizes, one element and none included, and is compared with eager."""

import collections

import pytest
import torch
from launches import OWN_PRODUCTS, engine, engine_of, kintsugi, needs_own_products, runs, versions

MOST_VERSIONS = 520  # LIVE_PLANS, and a few that were made ahead
pytestmark = pytest.mark.usefixtures("kernels")


def softmax(x, w):
    y = (x - x.mean(-1, keepdim=True)).softmax(-1)
    return y.transpose(0, 1).contiguous() * 2, y.sum(0)


def normed(x, w):
    h = torch.nn.functional.layer_norm(x @ w, (24,))
    return torch.nn.functional.gelu(h) + h.amax(0), h.cumsum(0)


def masked(x, w):
    n = x.shape[0]
    mask = torch.arange(n).unsqueeze(0) <= torch.arange(n).unsqueeze(1)
    scores = (x @ x.t()).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ x


def joined(x, w):
    y = torch.cat([x, x.flip(0), x[:1].expand(3, -1)])
    return y.reshape(-1, 4).roll(1, 0), y[::2].sqrt(), torch.nn.functional.pad(x, (1, 2, 3, 0))


def indexed(x, w):
    order = x.sum(1).argsort(descending=True)
    return x[order], x.gather(1, (x > 0.5).long()), torch.zeros_like(x).scatter_add(0, order.unsqueeze(1).expand_as(x), x)


def blocks(x, w):
    n = x.shape[0]
    y = x.view(n, 4, 4).permute(1, 0, 2).reshape(4, -1)
    return y.var(1), (y > y.mean()).sum(), y.argmax(1)


places = torch.arange(300).unsqueeze(0)
table = torch.randn(300, 16)


def placed(x, w):
    """The size is part of a slice, and that of a tuple, whose slots are free when the code runs."""
    return torch.tanh(x + table[places[:, 0:x.shape[0] + 0]].squeeze(0)) @ w


USUAL = (17, 12, 33, 64, 130, 9, 257, 31, 100, 24, 18)
ODD = (7, 2, 1, 5, 3, 4, 6, 8)


def compilations(name):
    """By graph: how often a kernel of it was not there yet."""
    counts = collections.Counter()
    for event in kintsugi.events():
        if event["event"] == "lower" and event["name"] == name:
            counts[event["entry"], event["graph"]] += event["compiled"] + event["from_disk"] > 0
    return counts


@pytest.mark.parametrize("fn", (softmax, normed, masked, joined, indexed, blocks, placed), ids=lambda fn: fn.__name__)
def test_one_compilation_serves_all_sizes(fn):
    torch.manual_seed(0)
    w = torch.rand(16, 24)
    name = "open " + fn.__name__
    compiled = kintsugi.compile(fn, name=name, dynamic=True)
    for sizes, most in ((USUAL, 7), (ODD, 12)):   # where sizes are small, other loops are better, and 1 repeats
        for size in sizes * 2:
            x = torch.rand(size, 16)
            torch.testing.assert_close(compiled(x, w), fn(x, w), rtol=2e-5, atol=2e-5)
        made = compilations(name)
        assert made and max(made.values()) <= most


@pytest.mark.parametrize("fn", (softmax, joined, blocks), ids=lambda fn: fn.__name__)
def test_sizes_without_elements(fn):
    w = torch.rand(16, 24)
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in (4, 6, 0, 9, 0, 1):
        x = torch.rand(size, 16)
        try:
            expected = fn(x, w)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x, w)
            continue
        torch.testing.assert_close(compiled(x, w), expected, equal_nan=True)


def test_two_sizes_that_vary_apart():
    def fn(x, y):
        return (x.unsqueeze(1) * y.unsqueeze(0)).softmax(1).sum(-1), (x @ y.t()).amax(1)

    compiled = kintsugi.compile(fn, dynamic=True)
    for a, b in [(3, 5), (5, 3), (4, 4), (9, 4), (4, 17), (1, 6), (6, 1), (1, 1), (40, 33), (33, 40), (2, 70)] * 2:
        x, y = torch.rand(a, 8), torch.rand(b, 8)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


def thinned(x):
    """Every second row and column: where the height is even, the next image's rows follow as the next rows of the same image would."""
    return x[:, ::2, ::2].contiguous() * 2


def turned(x):
    """What divides a size says nothing about how it is turned."""
    return x.flatten(1, 2).transpose(1, 2).contiguous()


def few_rows(x):
    """Below 32 rows one kernel was better than two."""
    rows = x.flatten(0, 2)
    return torch.nn.functional.layer_norm(rows, (rows.shape[-1],)) * 2


LARGE = ((2, 12, 14), (3, 13, 15), (2, 15, 12), (4, 16, 14), (3, 11, 23), (5, 10, 10), (2, 17, 13), (6, 20, 11))
PRIME = ((2, 12, 14), (3, 2, 37), (2, 15, 12), (4, 2, 41), (3, 11, 23), (5, 10, 10), (2, 2, 101))
SMALL = ((2, 5, 4), (6, 7, 8), (2, 3, 5), (3, 5, 9), (4, 5, 5), (2, 3, 4), (5, 9, 7))


@pytest.mark.parametrize("fn, sizes", [(thinned, LARGE), (turned, PRIME), (few_rows, SMALL)], ids=lambda x: getattr(x, "__name__", ""))
def test_no_more_compilations_for_what_sizes_happen_to_be(fn, sizes):
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in sizes:
        x = torch.rand(*size, 20)
        torch.testing.assert_close(compiled(x), fn(x), rtol=2e-5, atol=2e-5)
    made = [e["compiled"] + e["from_disk"] for e in kintsugi.events() if e["event"] == "lower" and e["seq"] > since]
    assert len(made) >= 5 and sum(n > 0 for n in made) <= 2  # for the first sizes, and for all


def test_code_for_each_size_where_that_is_asked_for():
    engine.set_option("open_sizes", False)
    compiled = kintsugi.compile(softmax, name="closed", dynamic=True)
    for size in (5, 7, 9):
        x = torch.rand(size, 300)
        torch.testing.assert_close(compiled(x, None), softmax(x, None))
    made = [event for event in kintsugi.events() if event["event"] == "lower" and event["name"] == "closed"]
    assert all(event["compiled"] + event["from_disk"] > 0 for event in made)


def test_thousands_of_sizes():
    compiled = kintsugi.compile(softmax, name="thousands", dynamic=True)
    for size in list(range(2, 900)) * 2:
        x = torch.ones(size, 4)
        compiled(x, None)
    for size in (2, 500, 899):
        x = torch.rand(size, 4)
        torch.testing.assert_close(compiled(x, None), softmax(x, None), rtol=1e-5, atol=1e-5)
    assert max(compilations("thousands").values()) <= 8
    assert len(versions(compiled)) <= MOST_VERSIONS


def scaled(x, by):
    return torch.nn.functional.gelu(x * by).softmax(-1) + (x + by).mean(0)


def numbered(x, n):
    return x * n + 1


@pytest.mark.parametrize("step", [1, 1e-3], ids=["int", "float"])
def test_a_number_that_changes_in_each_call(step):
    """What was made for a number that never comes again was of little use: for a small function less and less is made."""
    engine.set_option("trials", 7)
    compiled = kintsugi.compile(numbered)
    x = torch.rand(8, 64)
    for n in range(2, 6002):
        result = compiled(x, n * step)
    torch.testing.assert_close(result, numbered(x, 6001 * step), rtol=1e-5, atol=1e-5)
    assert len(versions(compiled)) <= 250


def test_there_is_an_end_to_versions():
    compiled = kintsugi.compile(scaled)
    x = torch.rand(8, 96)
    for n in range(700):
        result = compiled(x, 0.3 + n * 1e-3)
    torch.testing.assert_close(result, scaled(x, 0.3 + 699e-3), rtol=1e-5, atol=1e-5)
    assert len(versions(compiled)) <= MOST_VERSIONS


@pytest.fixture(params=["own products", "BLAS"])
def own(request):
    """Do products of many rows run in code of ours here?"""
    yield engine._set_products(request.param != "BLAS")
    engine._set_products(True)


def test_weights_are_packed_once_for_all_sizes(own):
    """What BLAS packs is for one number of rows: where these vary, weights are packed in our own form, or not at all."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).eval()
    compiled = kintsugi.compile(model, dynamic=True)
    with torch.no_grad():
        for size in (8, 24, 9, 100, 33, 57):
            x = torch.rand(size, 64)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert runs(compiled) >= 3
        kept = [row["frozen"] for row in versions(compiled) if row["frozen"]]
        assert len(kept) >= 3 if OWN_PRODUCTS else len(kept) <= 1
        late = kept if own else kept[1:]   # until sizes vary, BLAS packs for the first
        assert {row["renewals"] for row in late} <= {1} and len({row["bytes"] for row in late}) <= 1   # made once, seen by all
        for parameter in model.parameters():
            parameter.mul_(1.5)
        for size in (9, 100, 33, 57, 41):   # each notices, once is enough
            x = torch.rand(size, 64)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert all(row["frozen"]["renewals"] <= 2 for row in versions(compiled) if row["frozen"])


def test_late_inputs_of_another_kind_end_the_wait():
    """Calls are deferred before all inputs are there: other sizes are no reason to give that up, other kinds of objects are."""
    class Box:
        pass

    def fn(x, box):
        y = x * 2
        box.first = y
        z = y.sin() + box.late
        box.second = z
        return z.sum(0), box.late

    compiled = kintsugi.compile(fn, dynamic=True)
    lates = [1.5, 1.5, 1.5, 2.5, torch.ones(()), 1.5, torch.nn.Parameter(torch.ones(())), 2.5]
    for size, late in zip((5, 6, 7, 8, 9, 10, 11, 12) * 2, lates * 2, strict=True):
        ours, eager, x = Box(), Box(), torch.rand(size, 3)
        ours.late = eager.late = late
        a, b = compiled(x, ours), fn(x, eager)
        torch.testing.assert_close(a[0], b[0])
        torch.testing.assert_close(ours.second, eager.second)
        assert a[1] is late and list(vars(ours)) == list(vars(eager)) and a[0].requires_grad == b[0].requires_grad


class Positions(torch.nn.Module):
    """Reads sizes of what it has computed, and keeps a table that is cut to the length."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(50, 64), torch.nn.Embedding(128, 64)
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        batch, length, width = x.shape
        y = x.view(batch, length, 4, 16).transpose(1, 2)
        x = x + torch.nn.functional.scaled_dot_product_attention(y, y, y).transpose(1, 2).reshape(batch, length, width)
        return self.down(torch.nn.functional.gelu(self.up(x)))


def run_over(compiled, model, sizes):
    with torch.no_grad():
        for batch, length in sizes:
            tokens = torch.randint(0, 50, (batch, length))
            torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-4, atol=1e-5)


@needs_own_products
def test_graphs_of_a_function_share_what_is_packed():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).eval()
    compiled = kintsugi.compile(lambda x, mode: model(x) if mode == "plain" else model(x).neg(), dynamic=True)
    with torch.no_grad():
        for size in (8, 24, 9, 100, 33, 57):
            x = torch.rand(size, 64)
            torch.testing.assert_close(compiled(x, "plain"), model(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(compiled(x, "other"), -model(x), rtol=1e-4, atol=1e-5)
    graphs = [[v["frozen"] for v in graph["versions"] if v["frozen"]] for entry in engine_of(compiled).entries() for graph in engine.kernels(entry)]
    rows = sum(graphs, [])
    assert sum(1 for kept in graphs if kept) == 2 and {row["renewals"] for row in rows} == {1} and {row["sharers"] for row in rows} == {len(rows)}


def test_what_follows_from_sizes_is_not_kept_with_the_weights(own):
    model = Positions().eval()
    compiled = kintsugi.compile(model, dynamic=True)
    run_over(compiled, model, [(2, 9), (3, 21), (2, 33), (5, 13), (4, 50), (3, 8)])
    kept = [row["frozen"] for row in versions(compiled) if row["frozen"] and row["runs"]]
    late = kept if own else kept[1:]   # until sizes vary, BLAS packs for the first
    assert runs(compiled) >= 3 and (len(kept) >= 3 if OWN_PRODUCTS else len(kept) <= 1)
    assert len({row["bytes"] for row in late}) <= 1 and {row["renewals"] for row in late} <= {1}


def test_code_runs_where_sizes_come_as_numbers():
    model = Positions().eval()
    compiled = kintsugi.compile(model)
    run_over(compiled, model, [(2, 9), (3, 21), (2, 33), (5, 13), (4, 50), (3, 8), (6, 17)])
    assert kintsugi.stats(compiled)["recordings"] == 2   # where one size of a tensor differs, its first is left open as well
    assert runs(compiled) >= 3


def test_sizes_of_what_was_computed_are_recorded_anew():
    """No guard asks for the length: it is read of what was computed, so a replay finds that it differs. One more recording serves all."""
    class Reads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = torch.nn.Embedding(50, 64), torch.nn.Linear(64, 64)

        def forward(self, a, b):
            x, y = self.words(a), self.words(b)
            n, m = x.shape[1], y.shape[1]
            return self.out(x.reshape(-1, n * 64).view(-1, n, 64)).sum(1) + self.out(y.reshape(-1, m * 64).view(-1, m, 64)).sum(1)

    model = Reads().eval()
    compiled = kintsugi.compile(model)
    with torch.no_grad():
        for n, m in [(5, 9), (7, 12), (21, 8), (6, 30), (17, 4), (11, 11), (40, 3)]:
            a, b = torch.randint(0, 50, (2, n)), torch.randint(0, 50, (2, m))
            torch.testing.assert_close(compiled(a, b), model(a, b), rtol=1e-4, atol=1e-5)
    assert kintsugi.stats(compiled)["recordings"] <= 2 and runs(compiled) >= 2


def test_a_length_that_nobody_asked_for_grows_with_the_others():
    """Of the cache only the keys' length is read before; that of the values is first asked of what they are extended to."""

    def fn(x, keys, values):
        at = torch.arange(keys.shape[1], keys.shape[1] + 1)
        keys, values = torch.cat((keys, x.sin()), 1), torch.cat((values, x.cos()), 1)
        y = torch.softmax(x @ keys.transpose(1, 2), -1) @ values
        return y * 2 if keys.shape[-1] == values.shape[-1] <= 64 else y + at, keys, values

    compiled = kintsugi.compile(fn)
    for n in range(5, 30):
        args = torch.randn(2, 1, 8), torch.randn(2, n, 8), torch.randn(2, n, 8)
        for ours, theirs in zip(compiled(*args), fn(*args), strict=True):
            torch.testing.assert_close(ours, theirs)
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 2 and stats["branches"] == 0, stats


def test_a_computed_size_makes_the_recording_anew_without_a_side_trace():
    table = torch.randn(50, 8)

    def fn(tokens):
        x = torch.nn.functional.embedding(tokens, table).relu()
        return torch.cat((x, x), 1).view(x.shape[0], -1) * x.shape[1] + 1

    compiled = kintsugi.compile(fn)
    for n in range(5, 15):
        tokens = torch.randint(0, 50, (2, n))
        torch.testing.assert_close(compiled(tokens), fn(tokens))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 2 and stats["branches"] == 0, stats


def _rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1024, 2048), torch.nn.Linear(2048, 1024)

    def forward(self, x, y):
        return self.down(torch.relu(self.up(x))) + (y * y.sigmoid()).sum(-1, keepdim=True)


def _kept(sizes):
    """(bytes of machine code for the first ten sizes, for the others; growth of the process since then, kinds with a plan or code) of a model with 16 MB of weights."""
    engine.reset()
    model, x, before, first = Wide().eval(), torch.randn(3, 1024), 0, 0
    code = engine.kernel_totals()["code_bytes"]
    with torch.no_grad(), kintsugi.config.patch(step_aside=False):
        compiled = kintsugi.compile(model)
        for number, n in enumerate(sizes):
            if number == 10:
                before, first = _rss(), engine.kernel_totals()["code_bytes"]
            y = torch.randn(3, n)
            result = compiled(x, y)
            if number % 97 == 0:
                torch.testing.assert_close(result, model(x, y), rtol=1e-3, atol=1e-3)
    return first - code, engine.kernel_totals()["code_bytes"] - first, _rss() - before, len(kintsugi.stats(compiled)["kernels"])


def test_a_thousand_sizes_keep_no_more_than_two_kinds():
    """Weights are packed once, code is there once; what grows are plans, of which LIVE_PLANS are kept."""
    code, more, growth, kinds = _kept(range(2, 1002))
    assert kinds > 300
    assert more <= code, f"{more} bytes of code for further sizes, {code} for the first ten"
    assert growth < 32 << 20, f"{growth / 2**20:.1f} MB more than at the tenth size; weights of two kinds are 32 MB"


@pytest.mark.compiled_gradients
def test_training_where_no_batch_comes_twice():
    """The first sizes are only met; all calls stay in one subgraph, which gives gradients for any of them, the smaller batch at an epoch's end included."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 4))

    def loss(x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    def step(fn, x, y):
        model.zero_grad()
        value = fn(x, y)
        value.backward()
        return [value.detach()] + [p.grad.clone() for p in model.parameters()]

    compiled = kintsugi.compile(loss)
    for batch in [64, 61, 67, 40, 3, 90, 33, 1, 2]:
        x, y = torch.randn(batch, 16), torch.randint(0, 4, (batch,))
        for a, b in zip(step(compiled, x, y), step(loss, x, y), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert max(v["native"] + v["extern"] for v in versions(compiled)) > 20


def padded(x):
    return torch.nn.functional.pad(x.reshape(-1) * 2, (1, 2), value=0.5).tanh()


def sorted_across(x):
    return x.transpose(0, 1).sort(0).values * 1, x.transpose(0, 1).sort(1).values


def sorted_copies(x):
    return (x + 1).view(x.shape[0], x.shape[1] // 4, 4).transpose(0, 1).contiguous().sort(2).values


@pytest.mark.parametrize("fn", [padded, sorted_across, sorted_copies], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("shape", [(4, 0), (0, 4), (0, 8)], ids=str)
def test_nothing_to_read(fn, shape):
    """Views of tensors without elements: what is never read divides by no size, and lies as eager has it."""
    x = torch.empty(shape)
    eager = fn(x)
    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(3):
        found = compiled(x)
        for a, b in zip(found if isinstance(found, tuple) else (found,), eager if isinstance(eager, tuple) else (eager,), strict=True):
            assert torch.equal(a, b) and a.shape == b.shape and a.stride() == b.stride()


def test_sizes_of_other_arguments_are_open_as_well():
    """Which argument's size differs first says little: a cache grows before the next prompt has another length."""

    def fn(token, cache, mask):
        return (token * cache.sum(0) / cache.shape[0] + mask.sum() / mask.shape[0]).relu()

    compiled = kintsugi.compile(fn, name="other arguments")
    for step, length in enumerate((7, 7, 7, 7, 9, 9, 12, 5)):
        args = torch.rand(2, 3), torch.rand(4 + step, 3), torch.rand(length)
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert compiled.stats()["recordings"] == 2


def test_effects_wait_for_calls_that_raise_at_some_sizes():
    """Calls are deferred over an effect only where they are known not to raise: for a size that comes for the first time, a plan is made before the effect runs."""
    seen = []

    def fn(x, n):
        y = x.view(2, -1).t().reshape(-1) * 2
        seen.append(n)
        return (y + x).tanh()

    compiled = kintsugi.compile(fn, name="effects wait")
    for n in (4, 6, 8, 12, 16, 10, 7, 20, 9, 1, 22, 6, 7) * 3:
        x = torch.rand(n)
        if n % 2 == 0:
            torch.testing.assert_close(compiled(x, n), fn(x, n))
            assert seen[-2:] == [n, n]
            continue
        before = len(seen)
        with pytest.raises(RuntimeError, match="shape"):
            compiled(x, n)
        assert len(seen) == before, n
    assert runs(compiled) > 4


@pytest.mark.parametrize("sizes", [(2, 9, 16, 6, 130, 20, 64, 17, 15, 31, 33, 131, 11), (32, 64, 96, 128, 40, 41, 48, 33, 57)], ids=["even first", "multiples first"])
def test_sizes_that_do_not_divide_up(sizes):
    """A sum over pairs and the pairs in another order are one kernel where the number of rows is even, and two where it is not."""

    def fn(x):
        pairs = (x * 2).view(x.shape[0], 2, 4).transpose(0, 1).contiguous()
        return pairs.sum(0), pairs.transpose(0, 1) + 1

    compiled = kintsugi.compile(fn, dynamic=True, name="divides up")
    for n in sizes:
        x = torch.randn(n, 8)
        for a, b in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(a, b)
    assert not [event for event in kintsugi.events() if event["event"] == "bug" and event["name"] == "divides up"]
