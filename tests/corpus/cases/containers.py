"""Containers and strings: lists, dicts, sets, deques, ordering, mutation of arguments, formatting."""
import collections
import functools
import string

import torch

from kincorpus.case import T, built, case, do, glob, seq

D = {"a": 1, "b": 2}
OD = collections.OrderedDict([("p", 1), ("q", 2)])
L = [1, 2, 3]
S = {"r", "s"}
NEST = {"m": {"n": [1, {"k": 2}]}}
DQ = collections.deque([1, 2], maxlen=3)
DD = collections.defaultdict(list)
CNT = collections.Counter()
CACHE = {}
NAMES = ("u", "v")
PARAMS = {"w": T(1, 3), "b": T(2, 3)}
HISTORY = []
WEIGHTS = [T(4, 3), T(5, 3)]
STATE = collections.defaultdict(dict)
MADE = collections.defaultdict(lambda: {"n": 7})
OF_MODULE = {}
LAYER = torch.nn.Linear(3, 3)


def _reorder(s):
    v = D.pop("a")
    D["a"] = v


@case(mutate=do(3, _reorder))
def dict_order(x):
    return [x * v for v in D.values()], list(D), next(iter(D)), repr(D)


@case(mutate=do(3, lambda s: D.__setitem__("c", 5)))
def dict_grows(x):
    return x + len(D), sum(D.values())


@case(mutate=do(3, lambda s: D.__setitem__("zz", 5)), inert=True, again=0)
def dict_gets_unrelated_key(x):
    return x * D["a"] + D["b"]


@case(mutate=do(3, lambda s: D.__setitem__("missing", 8)))
def dict_key_appears(x):
    return x + D.get("missing", 0), "missing" in D


@case(mutate=do(3, lambda s: OD.move_to_end("p")))
def ordereddict_move(x):
    return x * list(OD.values())[0], list(OD)


@case(mutate=do(3, lambda s: L.__setitem__(1, 20)))
def list_item_changes(x):
    return x * L[1] + L[-1]


@case(mutate=do(3, lambda s: L.reverse()))
def list_order(x):
    return x * L[0], L[::-1], 2 in L, L.index(2)


@case(mutate=do(3, lambda s: S.add("t")))
def set_changes(x):
    return x + len(S), sorted(S), "t" in S, sorted(S | {"u"}), S & {"r"}, S - {"r"}, S ^ {"s"}


@case(mutate=do(3, lambda s: NEST["m"]["n"][1].__setitem__("k", 7)))
def nested_containers(x):
    return x * NEST["m"]["n"][1]["k"]


@case(mutate=do(3, lambda s: DQ.append(9)))
def deque_changes(x):
    return x + DQ[0], list(DQ), len(DQ)


@case(replays=2)
def deque_mutated(x):
    DQ.append(x.shape[0])
    left = DQ.popleft()
    DQ.appendleft(left)
    DQ.rotate(1)
    return x + 1


@case(args=lambda i, s: (T(i, 3), ("k", "k", "j", "k", "j", "j")[i]), again=1, replays=1)
def defaultdict_mutated(x, key):
    DD[key].append(x.shape[0])
    return x * len(key), len(DD)


@case(mutate=do(3, lambda s: setattr(DD, "default_factory", lambda: [5])), replays=1)
def defaultdict_factory_changes(x):
    v = DD["fresh"]
    del DD["fresh"]
    return x + len(v)


@case(replays=2)
def counter_object(x):
    CNT.update("abca")
    return x, CNT.most_common(1)[0][0], CNT["zz"]


@case(args=lambda i, s: (T(i, 3), [], {}), again=0)
def mutates_arguments(x, out, info):
    out.append(x * 2)
    out.extend([1, x + 1])
    info["shape"] = tuple(x.shape)
    info.setdefault("list", []).append(x)
    info.update(n=1)
    return len(out)


@case(args=lambda i, s: (T(i, 3), list(range(2 + i // 3))), again=1)
def list_mutators(x, l):
    l.insert(0, x)
    p = l.pop()
    l.append(p)
    l.reverse()
    l += [7]
    del l[0]
    l[0:1] = [9, 9]
    return x + p, l[:2].count(9), l.copy()


@case(args=lambda i, s: (T(i, 3), {"a": 1, "b": 2, "c": i // 3}), again=1)
def dict_mutators(x, d):
    p = d.pop("a")
    q = d.popitem()
    d |= {"z": 26}
    e = d | {"b": 0}
    del d["b"]
    return x + p, q, e, {**d, "k": 1}, dict(d, m=2), list(d.items()), d.keys() & {"z"}


@case(args=lambda i, s: (T(i, 3), {1, 2}))
def set_mutators(x, s):
    s.add(5)
    s.discard(1)
    s |= {9}
    s -= {2}
    return x + len(s), s.isdisjoint({1}), frozenset(s)


@case(replays=2)
def history_grows(x):
    HISTORY.append(x.mean())
    if len(HISTORY) > 2:
        HISTORY.pop(0)
    return x + 1


@case(args=lambda i, s: (T(i, 3), i % 2), again=1, replays=1)
def python_level_cache(x, key):
    if key not in CACHE:
        CACHE[key] = torch.full((3,), float(key + 1))
    return x * CACHE[key]


@case(args=lambda i, s: (lambda a: (a, a) if i < 3 else (a, a.clone()))(T(i, 3)), again=1)
def same_tensor_twice(a, b):
    a.add_(1)
    return a + b, a is b


@case(args=lambda i, s: (lambda a: (T(i, 3), a, a) if i < 3 else (T(i, 3), a, list(a)))([1, 2]), again=1)
def same_list_twice(x, a, b):
    a.append(5)
    return x + len(b)


@case(args=lambda i, s: ((lambda t: [t, t, T(i + 9, 2)])(T(i, 2)),))
def aliasing_of_results(ts):
    return ts, ts[0], [ts[0], ts[1].view(2, 1)], ts[:]


@case(mutate=do(3, lambda s: PARAMS.__setitem__("w", T(7, 3))), again=0)
def dict_of_tensors(x):
    return x * PARAMS["w"] + PARAMS["b"]


@case(mutate=do(3, lambda s: PARAMS.__setitem__("w", T(7, 3).double())))
def dict_tensor_dtype(x):
    return x * PARAMS["w"]


@case(mutate=glob(3, NAMES=("u", "v", "w")))
def keys_built_from_strings(x):
    return {f"{n}.{k}": x * k for k, n in enumerate(NAMES)}, "-".join(NAMES), "_".join(sorted(NAMES))


string.Template("$a").substitute(a=0)  # from 3.14 on the first one of all makes the class's pattern


@case(args=lambda i, s: (T(i, 4 if i < 3 else 5),), again=1)
def format_strings(x):
    n, f = x.shape[0], 3.14159
    return (f"{n:>4}|{f:.2f}|{n!r}|{x.dtype}|{tuple(x.shape)}|{n=}", "%d %s %05.1f" % (n, "s", f),
            "{0} {k:,}".format(n, k=1234567), f"{n:{n}}", string.Template("$a").substitute(a=n))


@case()
def format_tensor(x):
    return f"{x}", f"{x[0, 0]:.3f}", str(x[:1]), repr(x.shape)


@case()
def prints(x):
    print("shape", tuple(x.shape), x.dtype, sep="|", end="!\n")
    y = x * 2
    print(f"sum is {y.sum():.4f}")
    print(y[0])
    return y


@case()
def prints_around_in_place(x):
    print(x[0, 0].item())
    x.add_(1)
    print(x[0, 0].item())
    x.mul_(2)
    print(x)
    return x


@case()
def string_methods(x):
    s = "Layer.0.weight"
    return (x + len(s), s.split("."), s.lower().replace("layer", "l"), s.startswith("Layer"), s[6:7].isdigit(),
            s.partition("."), s.encode(), "a" < "b", "abc".find("c"), s.title(), "x" * 3, "é".encode("utf-8"))


@case()
def bytes_and_bytearrays(x):
    b = bytearray(b"abc")
    b[0] = 120
    b.extend(b"de")
    return x + b[1], bytes(b), b.hex(), int.from_bytes(b"\x01\x02", "big"), memoryview(b)[1]


@case(args=lambda i, s: (T(i, 2), (1e300, 0.1, -0.0, float("inf"), 1 + 2j, 5)[i]), again=5)
def number_formats(x, v):
    return x, repr(v), f"{v}", str(v * 2), v == v


@case()
def integer_arithmetic(x):
    n = x.shape[0]
    return x * (7 // n), -7 // n, -7 % n, n ** 3, n << 2, n ^ 1, ~n, n & 6, int("12") + n, round(2.5), 10 ** 20, hash(n)


@case(args=lambda i, s: (T(i, 2), (0.5, 0.5, 0.25, 0.5, -0.0, 0.0)[i]), again=3, replays=1)
def float_argument(x, f):
    return x * f, f / 2


@case(args=lambda i, s: (T(i, 2), i + 300), again=1)   # the second call finds out that it varies
def integer_argument_varies(x, n):
    return x + n


@case()
def tuple_operations(x):
    t = (1, x, "s")
    u = t + (2,) * 2
    return u, u[1] is x, len(u), t[::-1], (1, 2) < (1, 3), 1 in (1, 2), tuple(reversed((1, 2)))


@case(args=lambda i, s: ([T(i, 2), T(i, 3)] if i < 3 else [T(i, 2), T(i, 3), T(i, 4)],), again=1)
def list_of_tensors_length(ts):
    return torch.cat(ts), [t.shape[0] for t in ts]


@case(args=lambda i, s: ({"a": T(i, 2), "b": (T(i, 3), [T(i, 4)])},))
def nested_structure_mapped(tree):
    def walk(v):
        if isinstance(v, dict):
            return {k: walk(w) for k, w in v.items()}
        if isinstance(v, (list, tuple)):
            return type(v)(walk(w) for w in v)
        return v * 2
    return walk(tree)


@case(args=lambda i, s: (T(i, 2), (lambda l: (l.append(l), l)[1])([1])))
def cyclic_list(x, l):
    return x + len(l[1]), l[1] is l


class MyDict(dict):
    def __missing__(self, key):
        return 5

    def __getitem__(self, key):
        return super().__getitem__(key) * BOOST


class MyList(list):
    def append(self, v):
        super().append((v, BOOST))


BOOST = 2


@case(mutate=glob(3, BOOST=3))
def subclasses_of_builtins(x):
    d, l = MyDict(a=1), MyList()
    l.append(1)
    return x + d["a"], d["zz"], d.get("a"), l, len(l)


@case()
def list_as_loop_source_mutated(x):
    items = [1, 2, 3]
    for v in items:
        if v == 2 and len(items) < 5:
            items.append(9)
        x = x + v
    return x, items


@case(raises=tuple(range(6)))
def dict_changes_during_iteration(x):
    d = {1: 2}
    for k in d:
        d[k + 1] = x
    return d


SHAPES = {"tail": (2, 3)}


@case(mutate=do(3, lambda s: SHAPES.update(tail=(3, 2))))
def shape_and_tuple(x):
    y = x.view(*(x.shape[:-1] + (1, 3)))
    return y, x.size()[:1] + SHAPES["tail"], y.view(*(y.size()[:1] + (y.shape[-1],)))


def _rows(i, s):
    return ([T(i, 2), T(i + 10, 2)] + [T(i + 20 + k, 2) for k in range(1 + (i > 2))], T(i, 3, 2))


@case(args=_rows, again=1)
def starred_unpacking(parts, x):
    first, *rest = parts
    *head, last = x.shape
    a, *middle, b = x
    rest.append(last)
    return first * 2, rest, head, middle, a + b, parts


@case(args=lambda i, s: ((T(i, 3) if i < 3 else [],),))
def starred_unpacking_raises_late(parts):
    try:
        first, *rest = parts
    except ValueError as e:
        return str(e)
    return first, rest


@case()
def named_results(x):
    best = x.max(-1)
    values, where = x.topk(2, -1)
    return best[0] + best.values, best[1], best[-1], values, where, torch.linalg.slogdet(x[:, :3] @ x[:, :3].T)[1]


@case()
def numbers_of_tensors(x):
    return abs(x), pow(x, 2), pow(2.0, x)


@case()
def unpacked_generators(x):
    a, b = (y * 2 for y in (x, x + 1))
    (c,) = (n for n in [3.0] if n)
    p, q = (i for i in range(2))
    return a - b, c, p, q


@case()
def unpacked_generators_of_other_lengths(x):
    errors = []
    for n in (1, 3):
        try:
            a, b = (x + i for i in range(n))
        except ValueError as e:
            errors.append(str(e))
    return x * 2, errors


PAIRS = [1.0, 2.0]


@case(mutate=do(3, lambda s: PAIRS.append(3.0)))
def numbered_and_strict(x):
    rows = [x, x + 1]
    total = 0
    try:
        for i, (row, w) in enumerate(zip(rows, PAIRS, strict=True), start=1):
            total = total + row * w * i
    except ValueError as e:
        total = str(e)
    return total, [i for i, _ in enumerate(rows, 5)], list(zip(rows, (1, 2), strict=False))


class Named:
    pass


@case(mutate=do(3, lambda s: setattr(Named, "__qualname__", "Renamed")))
def text_of_classes(x):
    return x * 2, str(Named), str(type(x)), str(torch.float32)


class Pair:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


PAIR = Pair(2.0, 3.0)


@case(mutate=do(3, lambda s: setattr(PAIR, "items", (5.0, 7.0))))
def unpacked_object(x):
    a, b = PAIR
    first, *rest = Pair(1.0, x, 4.0)
    return x * a + b, first, rest


@case(mutate=do(3, lambda s: setattr(PAIR, "items", (5.0, 7.0, 1.0))), again=1)
def unpacked_object_of_another_length(x):
    try:
        a, b = PAIR
    except ValueError as e:
        return x, str(e)
    return x * a + b


def halved(t):
    return t * 0.5


FACTORS = [2.0, 3.0]


@case(mutate=glob(3, FACTORS=[4.0, 5.0]))
def unpacked_map(x):
    a, b = map(lambda t, f: halved(t) * f, x.flatten()[:4].chunk(2), FACTORS)
    c, *d = map(halved, (x, a, b))
    return a + b, c, d


SEEN = []


@case(again=1)
def unpacked_map_with_effects(x):
    def seen(t):
        SEEN.append(len(SEEN))
        print(len(SEEN), t.shape)
        return t + 1

    a, b, c = map(seen, (x, x * 2, x * 3))
    return a + b * c


@case(mutate=do(3, lambda s: FACTORS.append(1.0)), raises=(3, 4, 5))
def unpacked_map_of_another_length(x):
    a, b = map(halved, [x * f for f in FACTORS])
    return a + b


class Circle:
    pass


class Square:
    pass


AREAS = {Circle: 3.0, Square: 2.0, halved: halved, len: "length"}


@case(args=lambda i, s: (T(i, 3), Circle()), mutate=do(3, lambda s: AREAS.__setitem__(Circle, 7.0)))
def dict_of_classes(x, shape):
    return x * AREAS[type(shape)], AREAS.get(type(x), 1.0), AREAS[halved](x), AREAS[len], type(shape) in AREAS


@case(mutate=do(3, lambda s: AREAS.__setitem__(torch.Tensor, 5.0)))
def class_appears_in_dict(x):
    return x * AREAS.get(type(x), 1.0), torch.Tensor in AREAS


class Loud(type):
    def __eq__(cls, other):
        print("compared")
        return cls is other

    __hash__ = type.__hash__


class Noisy(metaclass=Loud):
    pass


NOISY = {Noisy: 2.0}


@case()
def dict_of_classes_that_compare(x):
    return x * NOISY[Noisy], NOISY.get(Noisy)


@functools.lru_cache(maxsize=4)
def recipe(pattern, scale=1.0):
    print("made", pattern)
    return {"pattern": pattern, "scale": scale}


@case(mutate=do(3, lambda s: recipe.cache_clear()), again=2)
def cached_function(x):
    return x * recipe("a")["scale"] + len(recipe("bc", scale=2.0)["pattern"])


@case(mutate=do(3, lambda s: recipe("a").__setitem__("scale", 9.0)), again=1)
def cached_object_changes(x):
    return x * recipe("a")["scale"]


@functools.lru_cache
def table(n):
    return torch.arange(n, dtype=torch.float32)


@case(again=1)
def cached_tensor(x):
    return x + table(3).sum()


WARM = {}


@case(again=1)
def first_call_fills_a_cache(x):
    def made(t):
        if "k" not in WARM:
            WARM["k"] = [v for v in (2.0, 3.0)]
            print("filled")
        return t * WARM["k"][0]

    a, b = map(made, (x, x + 1))
    return a + b


class Lazy:
    items = None

    def __iter__(self):
        if self.items is None:
            self.items = sorted(eval("[2.0, 1.0]"))   # nothing that a recording could do again, the first time
        return iter(self.items)


LAZY = Lazy()


@case(again=1)
def recording_goes_on_where_it_ended(x):
    y = x.sin()
    a, b = LAZY
    return y * a + b


@case(again=2, inert=True, mutate=do(4, lambda s: setattr(LAZY, "items", None)))
def recording_goes_on_and_ends_again(x):
    y = x.sin()
    a, b = LAZY
    return y * a + b


def scaled(a, t, by=1.0, *, plus=0.0):
    return t * by + plus + a


@case()
def map_of_partials(x):
    by = functools.partial(scaled, 2.0, plus=3.0)
    a, b = map(by, (x, x + 1))
    return a, b, list(map(functools.partial(scaled, by=2.0), (1, 2), (x, a)))


@case(args=lambda i, s: (T(i, 2, 3), 3))
def repeated_lists(x, n):
    sizes = [-1] * n
    sizes[0] = 4
    pair = [x, x + 1] * 2
    pair.append(x)
    return x.expand(sizes), pair, [0] * 0, 2 * [n]


@case()
def pairs_from_zip(x):
    total = x
    for a, (b, c) in zip((1.0, 2.0), (Pair(3.0, 4.0), Pair(5.0, x))):
        total = total * a + b * c
    return total


class Registry(dict):
    """A dict that is asked through its own methods, by the names of classes."""

    def __setitem__(self, key, value):
        super().__setitem__(str(key.__class__), value)

    def get(self, key):
        return super().get(str(key.__class__)) or {}


class Registered:
    pass


REGISTRY = Registry()
REGISTRY[Registered()] = {"scale": 2}


@case(mutate=do(3, lambda s: REGISTRY.__setitem__(Registered(), {"scale": 5})))
def registry_by_class(x):
    return x * REGISTRY.get(Registered())["scale"], REGISTRY.get(3)


@case(mutate=do(3, lambda s: setattr(Registered, "__qualname__", "Other")), after=lambda i, s, r: None)
def registry_by_renamed_class(x):
    return x * REGISTRY.get(Registered()).get("scale", 1)


@case(mutate=do(3, lambda s: dict.clear(REGISTRY)))
def registry_emptied(x):
    return x * REGISTRY.get(Registered()).get("scale", 1)


def _forget_state(s):
    STATE.pop(WEIGHTS[1], None)


@case(mutate=do(3, _forget_state), replays=2)
def state_of_tensors(x):
    """What optimizers do: the state of each parameter, made when it is missing."""
    out = []
    for w in WEIGHTS:
        state = STATE[w]
        if len(state) == 0:
            state["step"] = torch.zeros(())
            state["seen"] = 0
        state["step"] += 1
        state["seen"] += 1
        out.append(x * w + state["step"])
    return out, len(STATE), state["seen"]


@case(mutate=do(3, lambda s: MADE.clear()))
def state_made_by_the_program(x):
    state = MADE[WEIGHTS[0]]
    state["n"] += 1
    return x + state["n"]


@case(mutate=do(3, lambda s: OF_MODULE.update({LAYER: 9})))
def entry_of_a_module(x):
    if LAYER not in OF_MODULE:
        OF_MODULE[LAYER] = 4
    return x * OF_MODULE[LAYER]


@case(mutate=do(3, lambda s: OF_MODULE.pop(WEIGHTS[1], None)))
def entry_of_a_tensor_is_missing(x):
    OF_MODULE[WEIGHTS[0]] = x
    try:
        return OF_MODULE[WEIGHTS[0]] + 1, OF_MODULE[WEIGHTS[1]]
    except KeyError as e:
        OF_MODULE[WEIGHTS[1]] = 2
        return x, e.args[0] is WEIGHTS[1]


@case()
def taken_out_again(x):
    """Tensors that a container of unknown contents once held are dead when the container is handed on."""
    table = LAYER.state_dict()
    for key in table:
        table[key] = table[key] * 0.5 + 0.1
    LAYER.load_state_dict(table)
    return LAYER(x[:, :3])
