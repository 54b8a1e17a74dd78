"""Random programs over every kind of tensor (tensor_kinds.py), compiled against eager: no crash, no difference.

    python tests/diff/fuzz_tensor_kinds.py --seed 100 --count 500    seeds 100..599; prints each program that differs, made smaller
    python tests/diff/fuzz_tensor_kinds.py --seed 137 --show

A program is a few lines over two tensors. It is called with one kind, so that it is recorded and replayed, then with tensors of other kinds
and sizes, some of them under torch.no_grad or inside of torch.vmap; then all of it again with each replay left before a step. Compared:
results, exceptions with their text, warnings with file and line, the arguments afterwards. Programs run in forked children, many in each; one
that ends its child is found and run alone.
"""
import argparse
import collections
import copy
import math
import pathlib
import random
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]

import torch   # noqa: E402
import torch._lazy.ts_backend   # noqa: E402

import kintsugi   # noqa: E402
from kincorpus.isolate import Died, in_child   # noqa: E402
from kintsugi import _kintsugi as engine   # noqa: E402
import tensor_kinds   # noqa: E402
from tensor_kinds import KINDS, NO_DATA, functions   # noqa: E402

LOOKS, WORK, REFILLS = functions(tensor_kinds.LOOKS), functions(tensor_kinds.WORK), functions(tensor_kinds.REFILLS)
FOLLOW = ("w = {v} + 1", "w = [i for i in range({v})] if isinstance({v}, int) and 0 <= {v} < 9 else None", "w = d * {v}",
          "w = 'many' if {v} else 'none'", "w = d.sum() if {v} == 3 else d.sum() * 2", "w = ({v}, {v})", "w = str({v})[:20]", "w = d + {v}",
          "w = {v}.shape", "w = len({v})")
EXITS = 6


class Program:
    def __init__(self, seed, lines, calls, mode):
        self.seed, self.lines, self.calls, self.mode = seed, lines, calls, mode

    def source(self):
        """Lines marked True may raise: what they raised is their result."""
        body = ["    v = w = None", "    out = []"]
        for text, guarded in self.lines:
            if guarded:
                body += ["    try:", f"        {text}", "    except Exception as e:", "        v = type(e).__name__ + ('' if isinstance(e, RecursionError) else ': ' + str(e))"]
            else:
                body.append(f"    {text}")
            body.append("    out.append((v, w))")
        return "def f(x, y, d):\n" + "\n".join(body) + "\n    return out\n"

    def function(self):
        space = {"torch": torch, "math": math, "copy": copy, "a_first": a_first, "zip_sizes": zip_sizes}
        exec(compile(self.source(), f"<kinds {self.seed}>", "exec"), space)
        return space["f"]


def a_first(first, *rest):
    return first, len(rest)


def zip_sizes(x, y):
    return [a * b for a, b in zip(x.shape, y.shape)]


def generate(seed):
    r = random.Random(seed)
    names = sorted(KINDS)
    first = names[seed % len(names)]
    others = r.sample(names, 2)
    chosen = [first] * 3 + r.choice(([first], others, [first, others[0], first]))
    seconds = [r.choice(names) if r.random() < 0.3 else "plain"] * len(chosen)
    calls = [(k, s, r.randrange(4) if i > 2 else 0) for i, (k, s) in enumerate(zip(chosen, seconds))]
    careful = bool(NO_DATA & {*chosen, *seconds})   # only what looks at no element
    pool = LOOKS + REFILLS if careful else LOOKS * 2 + WORK * 2 + REFILLS
    lines = []
    for _ in range(r.randrange(1, 5)):
        lines.append((f"v = {r.choice(pool)}", r.random() < 0.8))
        if r.random() < 0.4 and not careful:
            lines.append((r.choice(FOLLOW).format(v="v"), True))
    return Program(seed, lines, calls, r.choice(("plain",) * 4 + ("no_grad", "vmap", "grad")))


# -- running ------------------------------------------------------------------------------------------------------------


def describe(value, depth=0):
    """A value in words that are equal for equal values."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value, depth)
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + "(" + ", ".join(describe(v, depth + 1) for v in value) + ")"
    if isinstance(value, (int, float, str, bool, type(None), complex)):
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


def ask(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(function())
        except Exception as e:   # noqa: BLE001
            return type(e).__name__


def elements(t):
    if t._is_zerotensor():
        return "zeros"
    if t.untyped_storage().nbytes() < 4 * t.numel() and t.layout == torch.strided and t.numel():
        return "gone"
    return t.detach().tolist()


def describe_tensor(t, depth):
    parts = [type(t).__name__, ask(lambda: t.dtype), ask(lambda: t.device), ask(lambda: t.layout), ask(lambda: t.shape), ask(t.stride),
             ask(t.is_conj), ask(t.is_neg), ask(lambda: t.requires_grad), ask(lambda: type(t.grad_fn).__name__)]
    if depth < 6:
        if t.layout in (torch.sparse_coo,):
            parts += [ask(lambda: t._indices().tolist()), ask(lambda: t._values().tolist()), ask(t.is_coalesced)]
        elif t.layout != torch.strided and t.layout not in (torch._mkldnn, torch.jagged):
            parts += [ask(lambda: t.to_dense().tolist())]
        elif t.is_nested:
            parts += [ask(lambda: [u.tolist() for u in t.unbind()])]
        elif t.is_quantized:
            parts += [ask(lambda: t.int_repr().tolist())]
        elif t.is_mkldnn:
            parts += [ask(lambda: t.to_dense().tolist())]
        elif t.device.type == "cpu" and type(t).__name__ not in ("FakeTensor",):
            parts += [ask(lambda: elements(t))]
    return "[" + " ".join(parts) + "]"


def entered(mode, function):
    if mode == "no_grad":
        def run(*args):
            with torch.no_grad():
                return function(*args)
        return run
    if mode == "vmap":
        return lambda x, y, d: torch.vmap(lambda t: (t * 1, function(t, y, d))[0])(d) if isinstance(x, torch.Tensor) else None
    if mode == "grad":
        return lambda x, y, d: torch.func.grad(lambda t: (function(t, y, d), t.sum())[1])(d)
    return function


def run_calls(program, function):
    """What each call does: results or exception, warnings, arguments afterwards."""
    seen = []
    run = entered(program.mode, function)
    for name, second, number in program.calls:
        args = made(name, number), made(second, number), tensor_kinds.dense(number)
        torch.manual_seed(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.set_warn_always(True)
            try:
                outcome = describe(run(*args))
            except Exception as e:   # noqa: BLE001
                outcome = f"raises {type(e).__name__}" + ("" if isinstance(e, RecursionError) else f": {e}")
        if "RecursionError" in outcome:
            # Some kinds recurse without end. Which call meets the limit, and how often it has warned until then, depends on the depth of the caller's
            # frames, and a replay has fewer of them.
            caught = []
        said = [(w.category.__name__, str(w.message)[:200], pathlib.Path(w.filename).name, w.lineno) for w in caught]
        seen.append((outcome, said, [describe(a) for a in args]))
    return seen


def made(name, number):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[name](number)


def first_difference(expected, found):
    for i, (e, f) in enumerate(zip(expected, found)):
        for part, a, b in zip(("outcome", "warnings", "arguments"), e, f):
            if a != b:
                at = next((k for k, (p, q) in enumerate(zip(str(a), str(b))) if p != q), min(len(str(a)), len(str(b))))
                lo = max(0, at - 120)
                return f"call {i}, {part}: eager {str(a)[lo:at + 200]} | compiled {str(b)[lo:at + 200]}"
    return None


def check(program):
    """(None or the difference, number of replays) in this process."""
    expected = run_calls(program, program.function())
    again = run_calls(program, program.function())
    if first_difference(expected, again) is not None:
        return None, 0
    replays = 0
    exits = random.Random(program.seed + 7)
    for k in (None, *sorted(exits.sample(range(24), EXITS))):
        engine.force_exit(k)
        try:
            compiled = kintsugi.compile(program.function())
            wrong = first_difference(expected, run_calls(program, compiled))
            replays += kintsugi.stats(compiled)["replays"] if k is None else 0
        finally:
            engine.force_exit(None)
        if wrong:
            return (f"exit before step {k}: " if k is not None else "") + wrong, replays
    return None, replays


# -- many of them -------------------------------------------------------------------------------------------------------


def prepare(programs):
    """Once in a child, before its first program."""
    torch.set_num_threads(1)
    if any("lazy" in call[:2] for p in programs for call in p.calls):
        torch._lazy.ts_backend.init()


def check_all(programs):
    prepare(programs)
    return [check(p) for p in programs]


def eager_dies(program):
    def alone():
        prepare([program])
        run_calls(program, program.function())
    try:
        in_child(alone)
    except Died:
        return True
    return False


def check_apart(programs):
    """(difference, replays) for each program, run in children: all in one, or where that dies, in halves."""
    try:
        return in_child(lambda: check_all(programs), 20 + 5 * len(programs))
    except Died as e:
        if len(programs) == 1:
            return [(None if eager_dies(programs[0]) else str(e), 0)]
        half = len(programs) // 2
        return check_apart(programs[:half]) + check_apart(programs[half:])


def fails(program):
    return check_apart([program])[0][0]


def shrink(program):
    """The smallest program that still fails."""
    progress = True
    while progress:
        progress = False
        for i in range(len(program.lines)):
            fewer = Program(program.seed, program.lines[:i] + program.lines[i + 1:], program.calls, program.mode)
            if fewer.lines and fails(fewer):
                program, progress = fewer, True
                break
        for i in range(len(program.calls)):
            fewer = Program(program.seed, program.lines, program.calls[:i] + program.calls[i + 1:], program.mode)
            if not progress and len(fewer.calls) > 1 and fails(fewer):
                program, progress = fewer, True
                break
    return program


def warm_up():
    """What torch imports at first use, once for all children."""
    for name in sorted(KINDS):
        if name != "lazy":
            describe(made(name, 0))
    kintsugi.compile(lambda x: x + 1)(torch.ones(2))
    torch.vmap(torch.sin)(torch.ones(2))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--no-isolate", action="store_true", help="in this process (for a debugger)")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args(argv)
    warm_up()
    failures, replays, kinds = 0, 0, collections.Counter()
    for first in range(options.seed, options.seed + options.count, options.batch):
        programs = [generate(s) for s in range(first, min(first + options.batch, options.seed + options.count))]
        for p in programs:
            kinds.update({k for k, _, _ in p.calls})
            if options.show:
                print(p.mode, p.calls, p.source(), sep="\n")
        for p, (wrong, n) in zip(programs, check_all(programs) if options.no_isolate else check_apart(programs)):
            replays += n
            if wrong is None:
                continue
            failures += 1
            if not (options.no_shrink or options.no_isolate):
                p = shrink(p)
                wrong = fails(p) or wrong
            print(f"--- seed {p.seed}: {p.mode} {p.calls}\n{p.source()}{wrong}", flush=True)
    print(f"{failures} of {options.count} programs fail, {replays} replays, {len(kinds)} kinds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
