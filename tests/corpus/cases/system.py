"""The surroundings: imports, context variables, thread-locals, weak references, inspect, exec, compiled callees."""
import builtins
import collections
import contextvars
import inspect
import io
import itertools
import json
import math
import operator
import random
import re
import sys
import threading
import time
import types
import weakref

import torch

from kincorpus.case import T, built, case, do, glob, seq

VAR = contextvars.ContextVar("VAR", default=1)
LOCAL = threading.local()
LOCAL.value = 2
FAST = False
SINK = io.StringIO()
IDS = itertools.count()


@case(mutate=do(3, lambda s: VAR.set(5)))
def context_variable(x):
    return x * VAR.get()


@case()
def context_variable_set_inside(x):
    token = VAR.set(VAR.get() + 1)
    y = x + VAR.get()
    VAR.reset(token)
    return y, VAR.get()


@case(mutate=do(3, lambda s: setattr(LOCAL, "value", 7)))
def thread_local(x):
    return x * LOCAL.value


@case()
def import_inside(x):
    import math as m
    from collections import OrderedDict
    return x * m.floor(2.5), OrderedDict(a=1)


@case(mutate=glob(3, FAST=True))
def conditional_import(x):
    if FAST:
        from operator import mul as op
    else:
        from operator import add as op
    return op(x, 3)


def _fake_module(s):
    m = types.ModuleType("world_optional")
    m.k = 10
    sys.modules["world_optional"] = m


@case(mutate=do(3, _fake_module))
def optional_import(x):
    try:
        import world_optional
    except ImportError:
        return x, "absent"
    return x * world_optional.k


@case(mutate=do(3, lambda s: setattr(math, "kin_tau", 3.0)), raises=(0, 1, 2),
      after=lambda i, s, r: delattr(math, "kin_tau") if i == 5 else None)
def module_attribute_appears(x):
    return x * math.kin_tau


@case(replays=0)
def weak_references(x):
    class Node:
        pass
    n = Node()
    r = weakref.ref(n)
    alive = r() is n
    del n
    return x + alive, r() is None


@built(mutate=do(3, lambda s: setattr(s, "target", None)), replays=2)
def weak_reference_dies(s):
    class Node:
        k = 3
    s.target = Node()
    ref = weakref.ref(s.target)

    def f(x):
        o = ref()
        return x if o is None else x * o.k
    return f


@case(replays=2)
def writes_to_stream(x):
    SINK.write("line\n")
    print("to sink", file=SINK)
    print("to stderr", file=sys.stderr)
    return x, SINK.tell() > 0


def shown(a, b=2, *c, d: int = 3, **e) -> int:
    """Doc."""


@case(mutate=do(3, lambda s: setattr(shown, "__doc__", "Other.")))
def introspection(x):
    sig = inspect.signature(shown)
    return x, list(sig.parameters), shown.__doc__, shown.__annotations__, inspect.isfunction(shown)


CODE = "v * 2"


@case(mutate=glob(3, CODE="v + 1"), replays=2)
def eval_and_exec(x):
    ns = {"v": x}
    exec("w = v - 1", ns)
    return eval(CODE, ns), ns["w"]


@case(replays=2)
def counts_with_itertools(x):
    return x + next(IDS)


@case()
def regular_expressions(x):
    m = re.match(r"(\w+)\.(\d+)", "layer.12")
    return x + int(m.group(2)), re.sub(r"\d", lambda k: "#", "a1b2"), m.groups()


@case(args=lambda i, s: (T(i, 3), {"n": i // 3, "l": [1, None]}), again=1, replays=1)
def json_round_trip(x, d):
    text = json.dumps(d, sort_keys=True)
    return x * (1 + json.loads(text)["n"]), text


@case()
def operator_module(x):
    get = operator.itemgetter("a", "b")
    name = operator.attrgetter("shape")
    return operator.mul(x, 2), get({"a": 1, "b": 2}), name(x), operator.methodcaller("sum")(x)


@case()
def math_functions(x):
    return x * math.sqrt(x.shape[0]), math.prod([1, 2]), math.isclose(0.1 + 0.2, 0.3), math.inf > 1, math.gcd(12, 18)


@case()
def itertools_functions(x):
    a = list(itertools.product([1, 2], [3]))
    b = [list(g) for _, g in itertools.groupby([1, 1, 2])]
    c = list(itertools.islice(itertools.count(5), 2))
    d = list(itertools.accumulate([x, x, x], operator.add))
    return a, b, c, d, list(itertools.combinations("ab", 2)), list(itertools.zip_longest([1], [2, 3]))


@case(replays=1)
def runs_a_thread(x):
    out = []
    t = threading.Thread(target=lambda: out.append(torch.is_grad_enabled()))
    t.start()
    t.join()
    return x, out


@case()
def locks(x):
    lock = threading.Lock()
    with lock:
        y = x + lock.locked()
    return y, lock.locked()


@built(mutate=do(3, lambda s: s.fns.reverse()))
def picks_function_from_list(s):
    s.fns = [torch.sin, torch.cos, lambda v: v * 2]
    return lambda x: s.fns[0](x)


@built(mutate=do(3, lambda s: setattr(s.ns, "act", torch.tanh)))
def function_from_namespace(s):
    s.ns = types.SimpleNamespace(act=torch.relu, k=2)
    return lambda x: s.ns.act(x) * s.ns.k


@built(mutate=do(3, lambda s: setattr(s, "act", "gelu")))
def function_by_name(s):
    s.act = "relu"
    return lambda x: getattr(torch.nn.functional, s.act)(x)


@case(replays=4)
def builtins_of_many_kinds(x):
    return (x + ord("a"), chr(98), bin(5), hex(255), oct(8), callable(len), id(x) == id(x), type(x).__name__,
            isinstance(x, object), hash("a") == hash("a"), vars(types.SimpleNamespace(a=1)), bool([]), int(3.9),
            float("2.5"), complex(1, 2), str(1), list("ab"), dict(a=1), set([1]), tuple([1]), iter([1]) is not None)


@case(args=lambda i, s: (T(i, 3), s), again=0, replays=2)
def writes_into_namespace(x, ns):
    ns.last = x * 2
    ns.count = getattr(ns, "count", 0) + 1
    return ns.last


async def coro(x):
    return x * 2


@case(replays=1)
def drives_a_coroutine(x):
    c = coro(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value


@case(replays=1)
def deep_recursion(x):
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)
    return x + down(60)


@case(replays=1)
def recursion_error_caught(x):
    def forever():
        return forever()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(220)
    try:
        forever()
    except RecursionError as e:
        return x + 1, type(e).__name__
    finally:
        sys.setrecursionlimit(limit)


def original(x):
    return x * 2


@case(mutate=do(3, lambda s: setattr(torch.nn.functional, "kin_patch", lambda v: v + 9)), raises=(0, 1, 2),
      after=lambda i, s, r: delattr(torch.nn.functional, "kin_patch") if i == 5 else None)
def patched_torch_namespace(x):
    return torch.nn.functional.kin_patch(x)


@case(mutate=do(3, lambda s: setattr(builtins, "kin_builtin", 4)), raises=(0, 1, 2),
      after=lambda i, s, r: delattr(builtins, "kin_builtin") if i == 5 else None)
def builtin_added(x):
    return x * kin_builtin   # noqa: F821


class ByAddress:
    pass


@case(replays=4)
def addresses_are_free(x):
    a, b = ByAddress(), ByAddress()
    names = {id(a): "a", id(b): "b"}
    text = f"{id(x)}/{hash(a)}"
    return (x + 1, names[id(b)], id(x) in names, hash(x) == id(x), hash(a) == hash(b), text == str(id(x)) + "/" + str(hash(a)),
            min(id(a), id(b)) < max(id(a), id(b)), {a: 1}[a], hash((1, "k", 2.5)) == hash((1, "k", 2.5)), hash(ByAddress) != 0)


@case(replays=4)
def clocks_are_free(x):
    seconds, parts = time.time_ns() // 10 ** 18, time.monotonic_ns()
    return x * seconds, f"{seconds}", parts <= time.monotonic_ns(), (parts + 1) % 1 == 0, str(parts).isdigit()


@case(replays=4)
def random_numbers_are_free(x):
    n = random.randint(0, 10 ** 9)
    own = random.Random(5)
    k = own.getrandbits(40)
    return x + n % 1, n, random.uniform(0.0, 1.0) < 2, k, own.choice([1, 2, 3]), sorted([n, 1, k])[0]


@case(replays=5)
def namespace_made_here(x):
    ns = types.SimpleNamespace(a=2.0, b=x)
    ns.c = ns.b * ns.a
    ns.a = 4.0
    del ns.b
    other = types.SimpleNamespace(inner=ns)
    return other.inner.c + ns.a, hasattr(ns, "b"), vars(ns), other, repr(types.SimpleNamespace(k=1))


@case(replays=5)
def objects_of_c_classes(x):
    first, second = object(), object()
    rows = collections.deque([x, x * 2], maxlen=2)
    pick = operator.itemgetter(1)
    text = io.StringIO()
    rows.append(x + 1)
    text.write("ab")
    return rows[1], first is second, pick([3, x]), text.getvalue(), len(rows), next(itertools.count())


@case(replays=4)
def inference_mode_inside(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            z = x + 1
    w = x * 3
    return y.is_inference(), z.is_inference(), w.is_inference(), y, z, w, inside, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


class Managed:
    def __init__(self, n):
        self.n, self.rest = n, 5


@case(replays=4)
def attributes_deleted_here(x):
    m = Managed(2)
    del m.rest
    return x * m.n, hasattr(m, "rest"), vars(m)


@case(replays=4)
def sorts_in_place(x):
    rows = [3, 1, int(x.shape[0])]
    rows.sort()
    return x * rows[0], rows
