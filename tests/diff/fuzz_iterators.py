"""Random programs around iterators in C that ask others (map, zip, islice, takewhile, chain ...), compared with eager: results, order of effects, what
iterators still have afterwards, exceptions. Calls differ in the data that decide, so iterators are also found half used by an exit.

    python tests/diff/fuzz_iterators.py --seed 7 --count 200
"""
import argparse
import itertools  # noqa: F401 - for the programs
import operator  # noqa: F401
import os
import random

import torch

LOG = []


def quiet(n):
    for i in range(n):
        yield i + 1


def noisy(n):
    for i in range(n):
        LOG.append(i)
        yield i
    LOG.append("end")


def rows(x, n):
    for i in range(n):
        yield x * i


def fails(v):
    if v == 3:
        raise ValueError("three")
    return v + 1


def notes(v):
    LOG.append(v if isinstance(v, int) else "?")
    return v


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines, self.names = [], 0

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def numbers(self):
        """An expression for an iterable of numbers."""
        n = self.random.randint(0, 5)
        return self.random.choice([
            f"{list(range(1, n + 1))}", f"tuple({list(range(n))})", f"range({n})", f"quiet({n})", f"iter({list(range(n))})", "itertools.count(1)",
            f"itertools.cycle({list(range(n))})", f"itertools.repeat({n})", f"itertools.repeat(2, {n})", f"(i * 2 for i in range({n}))",
            f"dict.fromkeys({list(range(n))})", *([f"noisy({n})"] if self.random.random() < 0.3 else []), *self.known * 4])

    known = ()

    def condition(self):
        return self.random.choice(["lambda v: v < 3", "lambda v: v % 2", "lambda v: v != 2", "bool", "lambda v: v > 1",
                                   *(["notes"] if self.random.random() < 0.2 else [])])

    def function(self):
        return self.random.choice(["lambda v: v + 1", "lambda v: v * 2", "abs", "operator.neg", *(["notes", "fails"] if self.random.random() < 0.2 else [])])

    def key(self):
        return self.random.choice(["lambda v: v // 2", "lambda v: v % 2", "lambda v: (v > 2, 'k')", "None", "bool", *(["notes"] if self.random.random() < 0.2 else [])])

    def iterator(self, depth=0):
        """An expression for an iterator over numbers."""
        inner = self.numbers if depth > 1 or self.random.random() < 0.4 else lambda: self.iterator(depth + 1)
        k = self.random.randint(0, 4)

        def few():  # these would go on asking an endless one
            return f"itertools.islice({inner()}, 9)"
        return self.random.choice([
            lambda: f"map({self.function()}, {inner()})", lambda: f"map(operator.add, {inner()}, {inner()})", lambda: f"filter({self.condition()}, {few()})",
            lambda: f"itertools.filterfalse({self.condition()}, {few()})", lambda: f"itertools.takewhile({self.condition()}, {inner()})",
            lambda: f"itertools.dropwhile({self.condition()}, {few()})", lambda: f"itertools.chain({inner()}, {inner()})",
            lambda: f"itertools.islice({inner()}, {k})", lambda: f"itertools.islice({inner()}, {k}, {k + self.random.randint(0, 4)}, {self.random.randint(1, 3)})",
            lambda: f"itertools.islice({inner()}, {k}, None)", lambda: f"itertools.accumulate({inner()})", lambda: f"itertools.accumulate({inner()}, lambda a, b: a + 2 * b, initial={k})",
            lambda: f"map(lambda p: p[0] + p[1], zip({inner()}, {inner()}))", lambda: f"map(lambda p: p[0] + 2 * p[1], enumerate({inner()}, {k}))",
            lambda: f"itertools.chain.from_iterable((i, i + 1) for i in {inner()})", lambda: f"itertools.chain.from_iterable([{inner()}, {inner()}])",
            lambda: f"itertools.chain.from_iterable(map(quiet, {few()}))", lambda: f"(a - b for a, b in itertools.pairwise({inner()}))",
            lambda: f"map(lambda p: p[0] * p[1], itertools.pairwise({inner()}))",
            lambda: f"map(lambda p: p[0] + p[1], itertools.zip_longest({self.numbers()}, quiet({k}), fillvalue={k}))",
            lambda: f"(k + sum(g) for k, g in itertools.groupby({few()}, {self.key()}))", lambda: f"(len(list(g)) for k, g in itertools.groupby({few()}))",
            lambda: f"(next(g) for k, g in itertools.groupby({few()}, {self.key()}))", lambda: f"itertools.tee({inner()})[{k % 2}]",
            lambda: f"(a + b for a, b in zip(*itertools.tee({inner()})))",
            lambda: f"itertools.starmap(lambda a, b: a - b, zip({inner()}, {inner()}))", lambda: f"(i + 1 for i in {inner()})",
        ])()

    def use(self, it):
        k = self.random.randint(0, 4)
        name = self.name()
        return self.random.choice([
            [f"out.append(next({it}, None))"], [f"out.append(next({it}))"], [f"out.append(list(itertools.islice({it}, {k})))"],
            [f"for {name} in itertools.islice({it}, 6):", f"    x = x + {name}", f"    if {name} > {k}: break"],
            [f"for {name} in {it}:", f"    x = x * 2 + {name}", "    if len(out) > 12 or x.sum() > 40: break", f"    out.append({name})"],
            [f"for {name}, w in zip({it}, (1, 2, 3)):", f"    x = x + {name} * w"],
            [f"for w, {name} in enumerate(itertools.islice({it}, 5)):", f"    x = x - {name} * w", f"    if x.mean() > {k}: continue", "    out.append(w)"],
            [f"out.append(sum(itertools.islice({it}, {k + 1})))"], [f"if x.sum() > {k}:", f"    out.append(next({it}, 'none'))"],
            [f"a, *b = itertools.chain(itertools.islice({it}, 2), [7])", "out.append((a, b))"],
            [f"out.append(any(map({self.condition()}, itertools.islice({it}, 4))))"], ["x = x.sin()"],
            ["try:", f"    out.append(next({it}))", "except StopIteration:", "    out.append('stop')"],
            [f"x = x + sum(t.mean() for t in map(lambda t, n: t * n, rows(x, 3), {it}))"],
        ])

    def program(self):
        body = ["out = []"]
        its = []
        for _ in range(self.random.randint(1, 3)):
            self.known = tuple(its)
            name = self.name()
            kind = self.random.random()
            if kind < 0.15:
                other = self.name()
                body.append(f"{name}, {other} = itertools.tee({self.iterator()})")
                its.append(other)
            elif kind < 0.3:
                groups = self.name()
                body += [f"{groups} = itertools.groupby(itertools.islice({self.iterator()}, 9), {self.key()})",
                         f"{name} = next({groups}, (0, iter(())))[1]"] + [f"next({groups}, None)"] * self.random.randint(0, 1)
            else:
                body.append(f"{name} = iter({self.iterator()})")
            its.append(name)
        for _ in range(self.random.randint(2, 6)):
            body += self.use(self.random.choice(its))
        kept = self.random.choice([True, False])
        body.append(f"return x, out, [{', '.join(its) if kept else ''}]")
        return "def program(x):\n" + "".join(f"    {line}\n" for line in body)


def observe(function, x):
    LOG.clear()
    try:
        y, out, its = function(x)
        left = []
        for it in its:
            try:
                left.append(list(itertools.islice(it, 8)))
            except Exception as error:  # noqa: BLE001 - it is what is compared
                left.append(repr(error))
        return y.tolist(), repr(out), repr(left), [type(it).__name__ for it in its], list(LOG)
    except Exception as error:  # noqa: BLE001
        return repr(error), list(LOG)


def same(expected, got):
    """Kernels may round otherwise than eager in the last digits of a tensor's elements; without them nothing differs."""
    if repr(expected) == repr(got) or os.environ.get("KINTSUGI_KERNELS") == "0" or not isinstance(expected[0], list) or not isinstance(got[0], list):
        return repr(expected) == repr(got)
    return repr(expected[1:]) == repr(got[1:]) and torch.allclose(torch.tensor(expected[0]), torch.tensor(got[0]), rtol=1e-5, atol=1e-5, equal_nan=True)


def inputs(i):
    return torch.full((3,), [0.5, 0.5, 3.0, -4.0, 0.5, 20.0, 3.0][i % 7])


def run(seed, compile):
    """The text of the difference, or None."""
    text = Writer(seed).program()
    space = dict(globals())
    exec(text, space)  # noqa: S102
    compiled = compile(space["program"])
    for i in range(7):
        expected = observe(space["program"], inputs(i))
        got = observe(compiled, inputs(i))
        if not same(expected, got):
            return f"seed {seed}, call {i}\n{text}\nexpected {expected}\ngot      {got}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    args = parser.parse_args()
    import kintsugi

    failures = 0
    for seed in range(args.seed, args.seed + args.count):
        difference = run(seed, kintsugi.compile)
        if difference is not None:
            failures += 1
            print(difference, flush=True)
        kintsugi.reset()
    print(f"{failures} failures in {args.count} programs from seed {args.seed} on")
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
