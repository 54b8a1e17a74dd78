"""Exceptions inside of what C code asks for one item at a time: handled by a generator or a callback, or passed on by them. Sequences and mappings in Python."""
import collections
import collections.abc
import functools
import sys
import traceback

import torch

from kincorpus.case import T, case, do, glob

LIMIT, TABLE, LOG, KEPT = 2, {"a": 2}, [], []


class Failed(Exception):
    def __init__(self, *args):
        self.first = args[0]


class Plain(LookupError):
    pass


class Row(collections.abc.Sequence):
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class Table(collections.abc.Mapping):
    def __init__(self, items):
        self.items_ = items

    def __getitem__(self, key):
        return self.items_[key] * LIMIT

    def __len__(self):
        return len(self.items_)

    def __iter__(self):
        return iter(self.items_)


def looked_up(key):
    try:
        return TABLE[key]
    except KeyError:
        return -1


def failing(x, n):
    for k in range(4):
        if k == n:
            raise Plain("at", k)
        yield x * k


@case(mutate=glob(3, TABLE={"a": 2, "b": 5}))
def callback_handles_an_exception(x):
    return x * sum(map(looked_up, "abc")), list(map(looked_up, ["b", "a"])), sorted("cab", key=looked_up)


@case(mutate=glob(3, TABLE={}))
def generator_handles_an_exception(x):
    def values():
        for key in "ab":
            try:
                yield x * TABLE[key]
            except KeyError:
                LOG.append(key)
            else:
                LOG.append("found")
            finally:
                LOG.append("end")
    del LOG[:]
    return list(values()), [v + 1 for v in values()], sum(values()), list(LOG)


@case(args=lambda i, s: (T(i, 4, 3), i % 3), replays=2)
def generator_raises_by_itself(x, n):
    def values():
        for k in range(3):
            try:
                if k == n:
                    raise Plain(k)
                yield x * k
            except Plain as e:
                yield x + 1
                del e
    return list(values()), sum(values())


@case(args=lambda i, s: (T(i, 4, 3), [1, 5, 1, 5, 9, 1][i]), replays=2)
def exceptions_leave_generators(x, n):
    def inner():
        yield from failing(x, n)
        yield x

    def outer():
        try:
            yield from inner()
        except Plain:
            yield x - 1
        yield x

    def several():
        return sum(failing(x, n))
    found = []
    for ask in (list, tuple, sum, next):
        try:
            found.append(ask(failing(x, n)))
        except Plain as e:
            found.append(e.args)
    try:
        found.append([v for v in inner()])
    except LookupError:
        found.append("loop")
    try:
        found.append(several())
    except Plain:
        found.append("called")
    total = x
    for v in outer():
        total = total + v
    return found, total


@case(args=lambda i, s: (T(i, 4, 3), 1 if i in (2, 4) else 5), raises=(2, 4), replays=2)
def exception_of_a_generator_ends_the_call(x, n):
    y = x * 2
    return list(failing(y, n))


@case(args=lambda i, s: (T(i, 4, 3), 1 if i % 2 else 5), replays=0)
def traceback_of_a_generators_exception(x, n):
    try:
        return list(failing(x, n))
    except Plain as e:
        return [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)], e.__traceback__.tb_next.tb_frame.f_locals["k"], x * 2


@case(mutate=glob(3, LIMIT=3), replays=0)
def exception_is_kept(x):
    def values():
        for k in range(2):
            try:
                yield [x * LIMIT][k]
            except IndexError as e:
                KEPT.append(e)
    del KEPT[:]
    return list(values()), [(type(e).__name__, e.__traceback__.tb_lineno) for e in KEPT]


@case(mutate=glob(3, LIMIT=3), replays=0)
def exception_lives_over_a_yield(x):
    def values():
        saved = None
        for k in range(3):
            try:
                v = [x, x][k] * LIMIT
            except IndexError as e:
                saved, v = e, x
            yield v
        yield saved.__traceback__.tb_lineno
    return list(values())


@case(args=lambda i, s: (T(i, 4, 3), 1 if i % 2 else 5), replays=0)
def opaque_code_sees_a_generators_exception(x, n):
    try:
        return list(failing(x, n))
    except Plain:
        return [line.split('"')[-1] for line in traceback.format_exc().splitlines() if "File" in line], x * 2


@case(args=lambda i, s: (T(i, 4, 3), 1 if i % 2 else 5), replays=0)
def exit_sees_a_generators_exception(x, n):
    class Lines:
        def __enter__(self):
            return self

        def __exit__(self, cls, exc, tb):
            self.names = [f.name for f in traceback.extract_tb(tb)]
            return True
    with Lines() as lines:
        return list(failing(x, n)), x * 2
    return lines.names


@case(mutate=glob(3, LIMIT=3), replays=0)
def context_of_an_exception(x):
    def chained(key):
        try:
            try:
                return TABLE[key]
            except KeyError:
                raise Plain(key)
        except Plain as e:
            return type(e.__context__).__name__

    def again(key):
        try:
            try:
                return TABLE[key]
            except KeyError:
                raise
        except KeyError as e:
            return e.args[0]
    return list(map(chained, "az")), list(map(again, "az")), x * LIMIT


@case(mutate=glob(3, LIMIT=3), replays=0)
def exception_in_a_handler_of_the_caller(x):
    def values():
        for k in range(2):
            try:
                yield [x][k]
            except IndexError:
                yield sys.exc_info()[0].__name__
    try:
        TABLE["none"]
    except KeyError:
        found = list(values()), list(map(looked_up, "az")), sys.exc_info()[0].__name__
        try:
            raise
        except KeyError as e:
            return found, str(e), x * LIMIT


@case(mutate=glob(3, LIMIT=3))
def handled_while_the_caller_handles(x):
    def values():
        for k in range(2):
            try:
                v = [x * LIMIT][k]
            except IndexError:
                v = x
            yield v
    try:
        TABLE["none"]
    except KeyError:
        return list(values()), list(map(looked_up, "az"))


@case(mutate=glob(3, LIMIT=1))
def generator_asks_with_next(x):
    def pairs(items):
        items = iter(items)
        while True:
            try:
                a, b = next(items), next(items)
            except StopIteration:
                return
            yield a * b

    def doubled(items):
        while True:
            try:
                v = next(items)
            except StopIteration:
                return
            yield v * LIMIT
    return list(pairs([x, x + 1, x + 2])), list(doubled(v for v in (x, x))), sum(doubled(iter([x])))


@case(mutate=glob(3, LIMIT=1))
def torch_raises_in_a_callback(x):
    def product(t):
        try:
            return t @ t
        except RuntimeError:
            return t.sum() * LIMIT
    return list(map(product, [x, x[:3]]))


@case(args=lambda i, s: (T(i, 4, 3), Row([1, 2, 3][:3 - i // 3])), replays=4)
def sequence_with_iterations(x, items):
    total = x
    for v in items:
        total = total + v
    return total, list(items), sum(items), 2 in items, items.index(1), items.count(2), sorted(items), list(reversed(items))


@case(mutate=glob(3, LIMIT=1))
def sequence_of_tensors(x):
    rows = Row([x, x * LIMIT, x + 1])
    a, b, c = rows
    first = next(v for v in rows if v.ndim == 2)
    for v in rows:
        if v.shape[0] == 4:
            break
    return ([v * 2 for v in rows], list(rows), tuple(rows), a + b + c, sum(rows), [*rows], (lambda *r: r)(*rows), list(map(torch.sin, rows)),
            list(zip(rows, rows)), list(enumerate(rows)), first, v, torch.stack(list(rows)), list(collections.UserList([x, x])))


@case(mutate=glob(3, LIMIT=1))
def mapping_of_tensors(x):
    table = Table({"a": x, "b": x + 1})
    filled = {"b": 1}
    filled.update(table)
    return (dict(table), dict(table, c=3), {"a": 1, **table, "z": 2}, (lambda **k: k)(q=1, **table), filled, list(table), list(table.items()), list(table.values()),
            "a" in table, table.get("z", 3), len(table), dict(collections.UserDict(a=x)), dict(collections.ChainMap({"a": x}, {"b": x, "a": 1})))


@case(raises=tuple(range(6)), replays=0)
def mapping_gives_a_keyword_twice(x):
    return (lambda **k: k)(a=x * 2, **Table({"a": x}))


@case(args=lambda i, s: (T(i, 4, 3), Table({"a": 1, "b": 2} if i < 3 else {"b": 1})), replays=4)
def older_mapping(x, table):
    return x * sum(table.values()), dict(table), {**table}, (lambda **k: k)(**table)


@case(mutate=glob(3, LIMIT=1), replays=0)
def mapping_whose_items_show(x):
    class Loud(collections.UserDict):
        def __getitem__(self, key):
            LOG.append(key)
            return self.data[key]
    del LOG[:]
    loud = Loud(a=x, b=x * LIMIT)
    return dict(loud), {**loud}, functools.reduce(lambda a, b: a + b, loud.values()), list(LOG)


class Steps:
    def __init__(self, x, n):
        self.x, self.n, self.i = x, n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.x * self.i * LIMIT


class Data:
    def __init__(self, x, n):
        self.x, self.n = x, n

    def __iter__(self):
        return Steps(self.x, self.n)


class Failing(Steps):
    def __next__(self):
        if self.i == 1:
            raise ValueError("failing", self.i)
        return super().__next__()


@case(mutate=glob(3, LIMIT=3))
def iterators_with_next(x):
    begun = Steps(x, 3)
    first = next(begun)
    return (list(Steps(x, 3)), tuple(Data(x, 2)), sum(Data(x, 2)), sum(Steps(x, 2), x), first, list(begun), list(begun), begun.i, next(Steps(x, 0), None), next(Data(x, 1).__iter__(), None),
            any(Steps(0, 3)), all(Steps(1, 3)), max(Steps(2, 3)), sorted(Steps(-1, 3)), set(Steps(1, 3)), [*Data(x, 2)], (lambda a, b: a + b)(*Steps(x, 2)), torch.stack(list(Data(x, 2))))


@case(mutate=glob(3, LIMIT=3))
def iterators_that_raise(x):
    found = []
    for ask in (list, sum, tuple):
        try:
            found.append(ask(Failing(x, 3)))
        except ValueError as e:
            found.append(e.args)
    try:
        next(Steps(x, 0))
    except StopIteration:
        found.append(x * LIMIT)
    return found


@case(args=lambda i, s: (T(i, 4, 3), Steps(2, [2, 3, 0][i % 3])), replays=2)
def older_iterators_with_next(x, steps):
    return x * sum(steps), list(steps), steps.i, list(Data(x, steps.n))
