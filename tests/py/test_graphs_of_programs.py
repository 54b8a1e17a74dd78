"""What Python programs do between torch calls, and what a custom backend gets of it: one graph, whose result is used from the first call on."""
import collections
import contextlib
import enum
import functools
import itertools
import operator
import random
import weakref

import pytest
import torch
import torch.nn.attention

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

FLAG = [0]


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield


class Backend:
    def __init__(self):
        self.graphs, self.runs = 0, 0

    def __call__(self, gm, inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return gm(*args)
        return run


def vector():
    return torch.linspace(-1.0, 2.0, 6)


def flat(value):
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in torch.utils._pytree.tree_leaves(value)]


def check(fn, *args, at_once=True):
    """One graph under fullgraph; at_once: what the backend returned is run in the first call, too."""
    backend = Backend()
    expected = flat(fn(*args))
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        assert flat(compiled(*args)) == expected
    assert (backend.graphs, backend.runs) == (1, 3 if at_once else 2)


# -- blocks -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def factor(k):
    yield k * 2


@contextlib.contextmanager
def flagged():
    old = FLAG[0]
    FLAG[0] = 1
    try:
        yield
    finally:
        FLAG[0] = old


@contextlib.contextmanager
def without_gradients():
    with torch.no_grad():
        yield


def uses_a_factor(x):
    with factor(3) as k:
        y = x * k
    return y + 1


def uses_a_flag(x):
    y = x * 2
    with flagged():
        y = y + FLAG[0]
    return y.sin() + FLAG[0]


def uses_no_gradients(x):
    y = x * 3
    with without_gradients():
        y = y * 2
    return y + 1


def test_block_that_changes_the_program():
    check(uses_a_flag, vector(), at_once=False)


# -- the first call ---------------------------------------------------------------------------------------------------------


def splits_a_text(x, text="a, bc,d"):
    for word in text.split(","):
        x = x + len(word.strip())
    return x * 2, "-".join(text.split(","))


def counts_different(x):
    return x * len(set([1, 2, 2])) + len({t.shape for t in (x, x)})


def rotates_a_deque(x):
    queue = collections.deque([x, x + 1])
    queue.append(x * 2)
    queue.rotate(1)
    return queue.popleft() - queue.pop() + len(queue)


def handles_an_error(x):
    table = {"a": 1}
    try:
        y = x * table["b"]
    except KeyError:
        y = x * table["a"]
    return y + 1


def values_of_a_dict(x):
    table = {"a": x, "b": x + 1}
    table["c"] = x * 3
    return sum(value for value in table.values()), list(table)


def in_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + 1


@pytest.mark.parametrize("fn", [splits_a_text, counts_different, rotates_a_deque, handles_an_error, values_of_a_dict, in_no_grad, uses_a_factor,
                                uses_no_gradients])
def test_result_is_used_at_once(fn):
    check(fn, vector())


def test_what_changes_the_program_is_not_done_twice():
    """The first call is done by the program itself where doing it again would show."""
    seen = []

    class Counter:
        count = 0
    counter = Counter()

    def fn(x):
        counter.count += 1
        seen.append(counter.count)
        return x * 2

    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for _ in range(3):
        compiled(vector())
    assert counter.count == 3 and seen == [1, 2, 3]


# -- dicts ------------------------------------------------------------------------------------------------------------------


class Plain(dict):
    pass


class Attributes(dict):
    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


class Filled(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.extra = 3


class Ordered(collections.OrderedDict):
    def total(self):
        return sum(self.values())


def numbers_as_keys(x):
    table = {}
    for i in range(3):
        table[i] = x * i
    table.setdefault(5, []).append(x)
    return table[1] + table[2] + table[5][0], list(table), table.get(7, 1), 2 in table


def dict_of_an_own_class(x):
    table = Plain(a=x, b=x + 1)
    table["c"] = table["a"] * 2
    table.update(d=x)
    return table["b"] + table["c"] * table.get("d"), list(table), "q" in table, len(table)


def dict_with_attributes(x):
    table = Attributes(a=x, b=x + 1)
    table.c = x * 3
    return table.a * table.b + table.c


def dict_that_fills_itself(x):
    table = Filled({"q": x}, a=x * 2)
    return table["a"] * table["q"] + table.extra


def ordered_dict_of_an_own_class(x):
    table = Ordered(a=x, b=x + 1)
    table["c"] = x
    return table.total()


def defaults_of_a_function(x):
    table = collections.defaultdict(lambda: x * 0)
    for i in range(4):
        table[i % 2] = table[i % 2] + x * i
    return table[0] - table[1] + table[7]


def defaults_of_a_class(x):
    table = collections.defaultdict(list)
    for i in range(4):
        table[i % 2].append(x * i)
    return [torch.stack(rows).sum() for rows in table.values()]


@pytest.mark.parametrize("fn", [numbers_as_keys, dict_of_an_own_class, dict_with_attributes, dict_that_fills_itself, ordered_dict_of_an_own_class,
                                defaults_of_a_function, defaults_of_a_class])
def test_dicts(fn):
    check(fn, vector())


# -- tuples ----------------------------------------------------------------------------------------------------------------


class Pair(tuple):
    @property
    def first(self):
        return self[0]


def tuple_of_an_own_class(x):
    pair = Pair([x, x + 1])
    first, second = Pair((pair.first * 2, x))
    return first * pair[1] + second, len(pair)


def test_tuples():
    check(tuple_of_an_own_class, vector())


# -- enums -----------------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Mode(str, enum.Enum):
    A = "a"
    B = "b"


SCALES = {Color.RED: 2.0, Color.BLUE: 3.0}
FUNCTIONS = {Mode.A: torch.sin, Mode.B: torch.cos}


def table_of_members(x):
    return x * SCALES[Color.RED] + SCALES.get(Color.BLUE, 1) + (Color.RED in SCALES)


def functions_by_members(x):
    return FUNCTIONS[Mode.A](x * 2) + FUNCTIONS[Mode.B](x)


def table_of_members_made_inside(x):
    table = {Color.RED: x * 2, Color.BLUE: x}
    table[Color.RED] = table[Color.RED] + 1
    return table[Color.RED] - table[Color.BLUE]


def members_of_a_set(x):
    y = x * 2
    if Color.RED in {Color.RED, Color.BLUE}:
        y = y + 1
    return y * 2


@pytest.mark.parametrize("fn", [table_of_members, functions_by_members, table_of_members_made_inside, members_of_a_set])
def test_enums(fn):
    check(fn, vector())


# -- functions that go through an iterator ------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "a b c")


def reduces_a_map(x):
    return functools.reduce(operator.add, map(torch.sin, [x, x + 1, x + 2]))


def reduces_a_generator(x):
    return functools.reduce(lambda a, b: a * b, (x + i for i in range(3)), x) + functools.reduce(operator.mul, (torch.sin(x * i) for i in range(3)))


def ordered_dict_of_a_generator(x):
    table = collections.OrderedDict((str(i), x * i) for i in range(3))
    table.move_to_end("0")
    return sum(table.values()), list(table)


def deques_of_iterators(x):
    rows = collections.deque((x * i for i in range(5)), maxlen=2)
    more = collections.deque(map(torch.sin, [x, x + 1]))
    more.extendleft(map(torch.cos, [x, x + 2]))
    return rows[0] + rows[1] + more.popleft()


def named_tuples_of_iterators(x):
    point = Point._make(x * i for i in range(3))
    other = Point._make(map(torch.cos, Point(*map(torch.sin, point))))
    return point.a * point.b + point.c, other


def longest_of_tensors(x):
    return max([x, x[:3], x[:5]], key=len) + 1, torch.cat(sorted([x, x[:3], x[:5]], key=len, reverse=True))


def twice_the_same(x):
    first, second = itertools.tee([x, x + 1, x + 2])
    next(second)
    return [t * 2 for t in first], [t * 3 for t in second]


def marked_for_the_profiler(x):
    x = x.sin()
    with torch.profiler.record_function("a range"):
        y = x * 2
    return y + 1


@pytest.mark.parametrize("fn", [reduces_a_map, reduces_a_generator, ordered_dict_of_a_generator, named_tuples_of_iterators, longest_of_tensors,
                                twice_the_same])
def test_functions_that_go_through_an_iterator(fn):
    check(fn, vector())


def test_deques_are_no_break():
    compiled = kintsugi.compile(deques_of_iterators, backend=lambda gm, inputs: gm, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(vector()), deques_of_iterators(vector()))


def test_ranges_of_the_profiler():
    check(marked_for_the_profiler, vector())
    compiled = kintsugi.compile(marked_for_the_profiler, backend="eager")
    compiled(vector())
    with torch.profiler.profile() as profile:
        compiled(vector())
    assert [event.key for event in profile.key_averages()].count("a range") == 1


# -- what backends can ask ------------------------------------------------------------------------------------------------


def test_contexts_of_a_compilation():
    from torch._guards import CompileContext, TracingContext

    seen = []

    def backend(gm, inputs):
        seen.append((str(CompileContext.get().compile_id), CompileContext.current_compile_id(), TracingContext.get().fake_mode))
        return gm

    one, other = kintsugi.compile(lambda x: x.sin() + 1, backend=backend), kintsugi.compile(lambda x: x.cos(), backend=backend, dynamic=True)
    one(torch.ones(3)), one(torch.ones(3, dtype=torch.float64)), other(torch.ones(3))
    ids = [text.split("/") for text, _, _ in seen]
    assert all(current is not None and mode is not None for _, current, mode in seen)
    assert ids[0][0] == ids[1][0] != ids[2][0]


# -- iterators in C that ask others ---------------------------------------------------------------------------------------------


def some(x, n=3):
    for k in range(n):
        yield x * k


ITERATORS = {
    "map": lambda x: sum(y for y in map(lambda t: t * 2, some(x))),
    "loop_over_map": lambda x: [x := x * k + 1 for k in map(int, "123")][-1],
    "filter": lambda x: [x := x * k + 1 for k in filter(lambda v: v > 1, [1, 2, 3])][-1],
    "filterfalse": lambda x: [x := x * k + 1 for k in itertools.filterfalse(lambda v: v > 1, [1, 2, 1])][-1],
    "takewhile": lambda x: [x := x * k + 1 for k in itertools.takewhile(lambda v: v < 4, itertools.count(1))][-1],
    "dropwhile": lambda x: [x := x * k + 1 for k in itertools.dropwhile(lambda v: v < 2, [1, 2, 1])][-1],
    "chain": lambda x: sum(itertools.chain(some(x), [x], some(x + 1))),
    "islice": lambda x: sum(itertools.islice(some(x, 9), 1, 7, 2)),
    "accumulate": lambda x: [x := x * k + 1 for k in itertools.accumulate([1, 2, 3])][-1],
    "starmap": lambda x: [x := x * k + 1 for k in itertools.starmap(pow, zip(itertools.count(1), [1, 2]))][-1],
    "from_iterable": lambda x: sum(itertools.chain.from_iterable([y, y + 1] for y in some(x))),
    "pairwise": lambda x: sum(a * b for a, b in itertools.pairwise(some(x))),
    "zip_longest": lambda x: sum(a * b for a, b in itertools.zip_longest(some(x), [1, 2], fillvalue=3)),
    "product": lambda x: sum(a * b for a, b in itertools.product(some(x), [1, 2])),
    "sizes": lambda x: x * sum(map(torch.numel, [x, x])) + max(map(torch.Tensor.dim, [x])),
    "cycle": lambda x: sum(a * b for a, b in zip(itertools.cycle([1.0, 2.0]), some(x))),
    "repeat": lambda x: [x := x * k + 1 for k in map(pow, [1, 2], itertools.repeat(2))][-1],
    "count": lambda x: (lambda ids: x * next(ids) + next(ids))(itertools.count(3)),
    "named": lambda x: (lambda it: x * next(it) + sum(it) + len(list(it)))(iter([1, 2, 3])),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_iterators(name):
    check(ITERATORS[name], vector())


def test_chunks_of_an_iterator():
    def fn(x):
        it = iter(range(5))
        while chunk := list(itertools.islice(it, 2)):
            x = x * sum(chunk) + 1
        return x
    check(fn, vector())


def test_parameters_of_several_modules():
    a, b = torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)

    def fn(x):
        for p in itertools.chain(a.parameters(), b.parameters(), b.buffers()):
            x = x + p.detach().sum()
        return x
    check(fn, vector())


def test_classes_of_pybind():
    def fn(x):
        y = x * 2
        backend = torch.nn.attention.SDPBackend.MATH
        z = y + 1
        return z * 2 if backend is torch.nn.attention.SDPBackend.MATH else z
    check(fn, vector())


def test_counters():
    def fn(x):
        count = collections.Counter("abca")
        y = x * count["a"] + count["z"]
        count["z"] += 1
        return y * count["z"]
    check(fn, vector())


# -- keys of dicts --------------------------------------------------------------------------------------------------------------


def test_dicts_of_functions_and_tuples():
    def fn(x):
        table = {torch.sin: 1.0, torch.cos: 2.0}
        shapes = {(t.shape, t.dtype): t for t in (x, x[:2])}
        return sum(f(x) * w for f, w in table.items()) + shapes[torch.Size([6]), torch.float32]
    check(fn, vector())


def test_counter_of_a_generator_of_dtypes():
    def fn(x):
        dtypes = collections.Counter(t.dtype for t in (x, x + 1, x.long()))
        return x * dtypes[torch.float32] + len(dtypes)
    check(fn, vector())


def test_dicts_from_keys():
    def fn(x):
        ordered, default = collections.OrderedDict.fromkeys("ab", x), collections.defaultdict.fromkeys((1, 2), x + 1)
        return ordered["a"] + default[2] + len(dict.fromkeys(c for c in "aab"))
    check(fn, vector())


def test_attributes_and_methods_by_name():
    def fn(x):
        return operator.methodcaller("mean", dim=0, keepdim=True)(x) + operator.attrgetter("real")(x * 2)
    check(fn, vector())


# -- iterators that share a source -------------------------------------------------------------------------------------------------


def test_groups_of_shapes():
    def fn(x):
        rows = [x, x + 1, x[:3], x[:3] * 2]
        return [torch.stack(list(g)) for _, g in itertools.groupby(sorted(rows, key=len), key=lambda t: t.shape)]
    check(fn, vector())


def test_tee_of_a_generator():
    def fn(x):
        a, b = itertools.tee(x * k for k in range(4))
        next(b)
        return [p + q for p, q in zip(a, b)]
    check(fn, vector())


# -- locals() ------------------------------------------------------------------------------------------------------------------------


def test_locals_and_texts_made_of_them():
    def fn(x):
        n, name = 3, "n"
        config = {k: v for k, v in locals().items() if k != "x"}
        text = "{name}={n}".format(**locals())
        return x * config["n"] + locals()["x"] + len(text), text
    check(fn, vector())


# -- weak references ---------------------------------------------------------------------------------------------------------------


def test_weak_reference_to_what_a_variable_has():
    def fn(x):
        y = x * 2
        reference, other = weakref.ref(y), weakref.ref(x)
        return reference() + other(), reference() is y
    check(fn, vector())


# -- stacks of blocks, settings, random numbers ------------------------------------------------------------------------------------

DEPTH = [0]


@contextlib.contextmanager
def deeper(n):
    DEPTH[0] += n
    try:
        yield DEPTH[0]
    finally:
        DEPTH[0] -= n


def test_exit_stack_over_generators():
    def fn(x):
        with contextlib.ExitStack() as stack:
            a, b = stack.enter_context(deeper(1)), stack.enter_context(deeper(2))
            y = x * a + b
        return y * 2 + DEPTH[0]
    check(fn, vector(), at_once=False)


def test_default_dtype_is_switched():
    def fn(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        y = torch.ones(6) / 3
        torch.set_default_dtype(before)
        return y, y.dtype, torch.zeros(6) + x
    check(fn, vector())
    assert torch.get_default_dtype() == torch.float32


def test_settings_are_switched_before_and_inside_of_a_graph():
    """What the backend returned was never run: it had been proved under the settings behind the graph."""
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.mm(x[None], x[:, None])
            with torch.autocast("cpu", enabled=False):
                z = torch.mm(x[None], x[:, None])
        return y.float(), z, x + 1
    check(fn, vector(), at_once=False)


def test_several_draws_of_a_generator():
    def fn(x):
        draws = random.Random(3)
        return x * draws.random() + draws.getrandbits(3) + draws.uniform(1, 2)
    check(fn, vector(), at_once=False)


# -- classes made inside ------------------------------------------------------------------------------------------------------------


def test_named_tuple_class_made_inside():
    def fn(x):
        Point = collections.namedtuple("Point", ["a", "b"], defaults=(3,))
        p, q = Point(x + 1), Point(b=2, a=x * 2)
        return p.a * q.b + q._replace(b=x).b, p._fields, q[1]
    check(fn, vector())
