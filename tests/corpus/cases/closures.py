"""Closures, cells, defaults, globals, nested functions, recursion."""
import functools

import torch

from kincorpus.case import Args, T, attr, built, case, do, glob, seq

SCALE = 2.0
OFFSET = 1
MODE = "mul"
TABLE = {"k": 3.0}
COUNT = 0
BIAS = T(90, 3)
STEPS = [1, 2, 3]


@case(mutate=glob(3, SCALE=3.0))
def reads_global(x):
    return x * SCALE


@case(mutate=glob(3, MODE="add"))
def branches_on_global(x):
    if MODE == "mul":
        return x * 2
    return x + 2


@case(mutate=glob(3, UNRELATED=1), again=0, inert=True)
def unrelated_global_appears(x):
    return x - OFFSET


@case(mutate=do(3, lambda s: TABLE.__setitem__("k", 7.0)))
def reads_dict_global(x):
    return x * TABLE["k"]


@case(again=1)
def counts_in_global(x):
    global COUNT
    COUNT += 1
    return x + COUNT


def _swap_builtin(s):
    global len
    len = lambda v: 10   # noqa: E731


@case(mutate=do(3, _swap_builtin))
def global_shadows_builtin(x):
    return x * len(x)


@case(mutate=do(3, lambda s: globals().__setitem__("BIAS", T(91, 3))), again=0)
def global_tensor_replaced(x):
    return x + BIAS


@case(mutate=do(3, lambda s: BIAS.add_(1)), again=0)
def global_tensor_data_changes(x):
    return x + BIAS


@case(mutate=do(3, lambda s: STEPS.append(4)))
def loops_over_global_list(x):
    for n in STEPS:
        x = x + n
    return x


def _make_cell(s):
    factor = 2

    def inner(x):
        return x * factor

    def change(v):
        nonlocal factor
        factor = v
    s.change = change
    return inner


@built(mutate=do(3, lambda s: s.change(5)))
def closure_cell_changes(s):
    return _make_cell(s)


@built(again=1)
def closure_counter(s):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n
    return f


@built(mutate=do(3, lambda s: s.set(T(5, 3))), again=0)
def closure_cell_tensor(s):
    w = T(4, 3)

    def f(x):
        return x * w

    def set_w(v):
        nonlocal w
        w = v
    s.set = set_w
    return f


@case()
def two_functions_share_a_cell(x):
    total = 0

    def add(v):
        nonlocal total
        total += v

    def read():
        return total
    add(2)
    add(3)
    return x * read()


@case(after=lambda i, s, r: (r[0](1), r[1](T(i, 2))))
def returns_closures(x):
    m = x.mean()
    k = 3

    def times(n):
        return m * n * k
    return times, lambda t: t + m


@case(after=lambda i, s, r: [f() for f in r])
def late_binding_lambdas(x):
    out = []
    for n in range(3):
        out.append(lambda: n)
    for n in range(3):
        out.append(lambda n=n: x.sum() + n)
    return out


def scaled(x, factor=2.0, *, shift=1.0):
    return x * factor + shift


def _set_defaults(s):
    scaled.__defaults__ = (5.0,)


def _set_kwdefaults(s):
    scaled.__kwdefaults__["shift"] = -1.0


@case(calls=7, mutate=seq(do(2, _set_defaults), do(4, _set_kwdefaults)))
def callee_defaults_change(x):
    return scaled(x)


@case(calls=7, mutate=do(3, lambda s: setattr(own_default, "__defaults__", (3, "b"))))
def own_default(x, k=2, tag="a"):
    return x * k, tag


@case(args=lambda i, s: (T(i, 3),), again=1)
def mutable_default(x, seen=[]):
    seen.append(len(seen))
    return x + seen[0], len(seen)


@case(args=lambda i, s: Args(T(i, 3), *range(i % 2), k=i // 3), again=3)
def star_arguments(x, *rest, k=0, **extra):
    return x + len(rest) + k, rest, extra


@case(args=lambda i, s: Args(T(i, 3), **{"a": 1, "b": 2} if i < 3 else {"b": 2, "a": 1}), again=1)
def keyword_order(x, **kw):
    return x * len(kw), list(kw)


def helper(x, y):
    return x - y


def _replace_helper(s):
    global helper
    helper = lambda x, y: x + y   # noqa: E731


@case(mutate=do(3, _replace_helper))
def callee_replaced(x):
    return helper(x, 1)


def helper2(x):
    return x.sin()


def helper3(x):
    return x.cos()


@case(mutate=do(3, lambda s: setattr(helper2, "__code__", helper3.__code__)))
def callee_code_replaced(x):
    return helper2(x)


def power(x, n):
    return x if n == 1 else x * power(x, n - 1)


DEPTH = 3


@case(mutate=glob(3, DEPTH=4))
def recursion(x):
    return power(x, DEPTH)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@case()
def recursion_in_integers(x):
    return x + fib(8)


def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return fn(*args, **kwargs)
    wrapper.calls = 0
    return wrapper


@traced
def decorated(x, y=1):
    return x / 2 + y


@case(after=lambda i, s, r: decorated.calls, again=1)
def decorator_with_counter(x):
    return decorated(x, y=2), decorated.__name__, decorated.__wrapped__ is not None


@functools.lru_cache(maxsize=2)
def table_size(n):
    return n * n


@case(args=lambda i, s: (T(i, 3), 2 + i // 3), again=1)
def cached_function(x, n):
    return x * table_size(n)


part = functools.partial(scaled, factor=4.0)
base_part = functools.partial(scaled, shift=2.0, factor=3.0)


@case(mutate=do(3, lambda s: part.keywords.__setitem__("factor", 6.0)))
def partial_keywords_change(x):
    return part(x, shift=0.5)


@case(mutate=do(3, lambda s: globals().__setitem__("part", functools.partial(scaled, shift=9.0))))
def partial_replaced(x):
    return part(x)


@case()
def reduce_over_tensors(x):
    return functools.reduce(torch.add, [x, x * 2, x * 3]), functools.reduce(lambda a, b: a * b, [1, 2, 3])


@functools.singledispatch
def describe(v):
    return "object"


@describe.register
def _(v: int):
    return "int"


def _register_str(s):
    describe.register(str, lambda v: "str")


@case(mutate=do(3, _register_str), replays=2)
def singledispatch_registry(x):
    return x + 1, describe(1), describe("s"), describe(x)


@case(mutate=attr(3, lambda s: helper_with_attr, rate=0.75))
def function_attribute(x):
    return x * helper_with_attr.rate


def helper_with_attr():
    pass


helper_with_attr.rate = 0.25


@case(args=lambda i, s: (T(i, 2, 3), T(i + 50, 3)), replays=0)
def inner_class_and_function(x, y):
    class Local:
        weight = 2

        def apply(self, v):
            return v * self.weight + y
    return Local().apply(x), Local.__name__


@case(raises=(3, 4, 5), mutate=do(3, lambda s: globals().pop("GONE")))
def global_deleted(x):
    return x * GONE


GONE = 2


@case(raises=(0, 1, 2, 3, 4, 5), again=0, replays=0)
def unbound_local(x):
    if x is None:
        y = 1
    return x + y


@case()
def delete_local(x):
    y = x * 2
    z = y + 1
    del y
    try:
        y   # noqa: B018
    except UnboundLocalError as e:
        return z, str(e)


@case()
def lambda_defaults(x):
    f = lambda v, k=3, *, s=2: v * k + s   # noqa: E731
    return f(x), f(x, 1, s=0)


@case(mutate=do(3, lambda s: base_part.keywords.pop("shift")))
def partial_keywords_joined(x):
    return base_part(x), base_part(x, factor=1.5), functools.partial(base_part, x)(shift=0.25)
