"""Random programs that train (training_programs.py), compiled against eager: finds, replays and shrinks differences.

    python tests/diff/fuzz_training.py --seed 100 --count 500              steps, every bit as in eager
    python tests/diff/fuzz_training.py --seed 100 --count 500 --kernels    compiled forward and backward: floats but for last digits
    python tests/diff/fuzz_training.py --seed 137 --show

Compared after each of five steps, from the same seed: what the step returns, exceptions with their text, gradients (values, strides, which are
None), parameters and buffers, how often buffers were written to, the optimizer's state, the state of random numbers, what hooks saw, warnings. Programs
run in forked children, several in each; one that ends its child is found and run alone.

With kernels a difference counts only if eager itself is steady: where parameters moved by a millionth move eager's numbers as far, the program
decides by last digits (a relu at zero) and says nothing.
"""
import argparse
import copy
import dataclasses
import functools
import pathlib
import re
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]

import torch   # noqa: E402

import kintsugi   # noqa: E402
from kincorpus.isolate import Died, in_child   # noqa: E402
from kintsugi import _kintsugi as engine   # noqa: E402
from training_programs import STEPS, generate   # noqa: E402

BOUND = 2e-4   # of the largest element of a tensor
COARSE = 6e-2  # where bfloat16 is computed with


# -- running ------------------------------------------------------------------------------------------------------------


def space_of(program):
    space = {"__name__": f"training_{program.seed}"}
    exec(compile(program.source(), f"<training {program.seed}>", "exec"), space)
    return space


def identity(fn):
    return fn


def run_program(program, compiler, nudge=0.0):
    """What each step does, as a list of dicts."""
    space = space_of(program)
    torch.manual_seed(program.seed)
    net = space["Net"]()
    optimizer = space["make_optimizer"](net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    with torch.no_grad():
        for p in net.parameters() if nudge else ():
            p.data.mul_(1 + nudge)   # which does not count as a write
    forward, step, state, called = space["forward"], space["step"], {}, net
    compiled = None
    if program.compiled == "module":
        called = compiled = compiler(net)
    elif program.compiled == "step":
        step = compiled = compiler(step)
    else:
        forward = compiled = compiler(forward)
        if program.compiled == "optimizer":
            optimizer_step = compiler(optimizer.step)
            optimizer_zero = optimizer.zero_grad
            optimizer = type("Optimizer", (), {"step": staticmethod(optimizer_step), "zero_grad": staticmethod(optimizer_zero), "inner": optimizer,
                                               "param_groups": optimizer.param_groups})
    seen = []
    for i in range(STEPS):
        space["between"](i, net, getattr(optimizer, "inner", optimizer), state)
        torch.manual_seed(1000 * program.seed + i)
        x, t = space["data"](i)
        seen.append(observe(program, space, lambda: step(i, called, forward, optimizer, scheduler, x, t, state), net,
                            getattr(optimizer, "inner", optimizer), x, state))
    return seen, compiled


def observe(program, space, action, net, optimizer, x, state):
    with warnings.catch_warnings(record=True) as caught, torch.autocast("cpu", torch.bfloat16, enabled=program.autocast):
        warnings.simplefilter("always")
        try:
            value = action()
            raised = None
        except Exception as e:   # noqa: BLE001
            value, raised = None, f"{type(e).__name__}: {e}"
    seen = {"raised": raised, "result": keep(value) if not isinstance(value, float) else torch.tensor(value),
            "wants": isinstance(value, torch.Tensor) and value.requires_grad, "log": repr(space["LOG"]),
            "warnings": sorted(str(w.message)[:80] for w in caught), "random": torch.get_rng_state(), "grad of x": keep(x.grad), "mode": (torch.is_grad_enabled(), net.training)}
    space["LOG"].clear()
    for name, p in net.named_parameters():
        seen[f"grad {name}"], seen[f"param {name}"], seen[f"writes {name}"] = keep(p.grad), keep(p), p._version
    for name, b in net.named_buffers():
        seen[f"buffer {name}"], seen[f"writes {name}"] = keep(b), b._version
    for k, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        for name, value in sorted(optimizer.state.get(p, {}).items()):
            seen[f"optimizer {name} {k}"] = keep(value) if isinstance(value, torch.Tensor) else value
    for name, value in state.items():
        seen[f"state {name}"] = keep(value)
    return seen


def keep(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value.clone() if value.layout != torch.strided else torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)


# -- comparing ----------------------------------------------------------------------------------------------------------


def plain_text(text):
    """An exception's text without what differs where one node stands for many."""
    if text is None:
        return None
    return "modified by an inplace operation" if "modified by an inplace operation" in text else re.sub(r"0x[0-9a-f]+", "0x", text)


def far(a, b):
    """How far apart, in parts of the largest element; None for the same, a text where it is no number that differs."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
            return f"{a.dtype} {tuple(a.shape)} {a.layout} against {b.dtype} {tuple(b.shape)} {b.layout}"
        if a.layout != torch.strided:
            a, b = a.to_dense(), b.to_dense()
        strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (a, b)]
        if a.numel() and strides[0] != strides[1]:
            return f"strides {a.stride()} against {b.stride()}"
        if torch.equal(a, b) or (a.is_floating_point() and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())):
            return None
        if not a.is_floating_point():
            return f"{a.flatten()[:8].tolist()} against {b.flatten()[:8].tolist()}"
        scale = max(1e-3, float(a[a.isfinite()].abs().max())) if a.isfinite().any() else 1.0
        worst = float((a.double() - b.double()).abs().max())
        return worst / scale if worst == worst and torch.equal(a.isfinite(), b.isfinite()) else "not finite in one of them"
    return None if a == b else f"{a!r} against {b!r}"


def has_diverged(step):
    """Numbers without bounds: whether they overflow in this step or the next hangs on the last digit."""
    return any(isinstance(v, torch.Tensor) and v.layout == torch.strided and v.is_floating_point() and v.numel() and not float(v.detach().abs().max()) < 1e12 for v in step.values())


def differences(expected, found, bound):
    """(step, name, what) of the first step that differs."""
    out = []
    for i, (e, f) in enumerate(zip(expected, found)):
        if bound and has_diverged(e):
            break
        broken = bound and None not in (e["raised"], f["raised"])   # half a backward: which gradients are there already is left open
        names = ("raised", "random", "log", "warnings") if broken else {*e, *f}
        for name in sorted(names, key=lambda n: (n.split()[0] not in ("raised", "result", "random", "log"), n)):
            a, b = e.get(name, "nothing"), f.get(name, "nothing")
            if name == "raised" and bound:
                a, b = plain_text(a), plain_text(b)
            apart = far(a, b)
            if apart is None or (isinstance(apart, float) and apart <= bound):
                continue
            out.append((i, name, apart))
        if out or broken:
            break
    return out


def is_steady(program, expected, found, bound):
    """Does eager say the same of the names that differ where its parameters are moved a little?"""
    names = {name for _, name, apart in found if isinstance(apart, float)}
    if not names or any(isinstance(apart, str) for _, name, apart in found):
        return True
    for nudge in (1e-6, -1e-6, 3e-6):
        moved = differences(expected, run_program(program, identity, nudge)[0], bound / 4)
        if any(isinstance(apart, str) or name in names or name == "result" for _, name, apart in moved):
            return False
    return True


def is_repeatable(program, expected):
    return not differences(expected, run_program(program, identity)[0], 0)


@dataclasses.dataclass
class Way:
    kernels: bool

    def check(self, program):
        """(differences in words, launches of graphs that give gradients)."""
        torch._dynamo.reset() if "torch._dynamo" in sys.modules else None
        kintsugi.reset()
        engine.set_option("trials", 0)
        expected, _ = run_program(program, identity)
        try:
            with kintsugi.config.patch(kernels=self.kernels, training=True):
                got, compiled = run_program(program, self.compiler)
                stats = kintsugi.stats(compiled)
        finally:
            engine.set_option("trials", 7)
        bound = 0 if not self.kernels else COARSE if program.autocast or any("bfloat16" in line for line in program.forward) else BOUND
        found = differences(expected, got, bound)
        launched = sum(row["launches"] for row in stats["kernels"])
        if found and not is_repeatable(program, expected):
            return [], launched
        if found and self.kernels and not is_steady(program, expected, found, bound):
            return [], launched
        return [f"step {i}, {name}: {apart if isinstance(apart, str) else f'off by {apart:.2g} of the largest element'}" for i, name, apart in found], launched

    def compiler(self, fn):
        return kintsugi.compile(fn) if self.kernels else kintsugi.compile(fn, backend="eager")


def check_all(way, programs):
    return [way.check(p) for p in programs]


@functools.lru_cache(maxsize=None)
def warm_up():
    """Imports that torch makes at first use, once."""
    torch.set_num_threads(1)
    for seed in range(3):
        run_program(generate(seed), identity)


def check_apart(way, programs, seconds=120):
    """In a child; where it ends early, each program in one of its own."""
    warm_up()
    try:
        return in_child(lambda: check_all(way, programs), seconds)
    except Died as e:
        if len(programs) == 1:
            return [([str(e)] if eager_survives(programs[0], seconds) else [], 0)]
        return [check_apart(way, [p])[0] for p in programs]


def eager_survives(program, seconds):
    try:
        return in_child(lambda: bool(run_program(program, identity)), seconds)
    except Died:
        return False


# -- shrinking ----------------------------------------------------------------------------------------------------------


def smaller(program):
    for part in ("forward", "between", "loss", "step", "init"):
        lines = getattr(program, part)
        for k in range(len(lines) - 1, -1, -1):
            candidate = copy.deepcopy(program)
            del getattr(candidate, part)[k]
            yield candidate
    for name, plain in (("compiled", "forward"), ("autocast", False), ("optimizer", "return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)")):
        if getattr(program, name) != plain:
            yield dataclasses.replace(program, **{name: plain})


def kind_of(found):
    first = found[0]
    return first.split(":")[0] if first.startswith(("crash", "hang", "the harness")) else re.sub(r"step \d+, (\w+).*", r"\1", first.split(":")[0])


def shrink(way, program, found, limit=150):
    kind, tries, progress = kind_of(found), 0, True
    while progress and tries < limit:
        progress = False
        for candidate in smaller(program):
            tries += 1
            if tries > limit:
                break
            now = check_apart(way, [candidate])[0][0]
            if now and kind_of(now) == kind:
                program, found, progress = candidate, now, True
                break
    return program, found


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--no-isolate", action="store_true", help="in this process (for a debugger)")
    parser.add_argument("--batch", type=int, default=25, help="so many in a child")
    options = parser.parse_args(argv)
    way, failures, launched = Way(options.kernels), 0, 0
    seeds = list(range(options.seed, options.seed + options.count))
    for first in range(0, len(seeds), options.batch):
        programs = [generate(seed) for seed in seeds[first:first + options.batch]]
        results = check_all(way, programs) if options.no_isolate else check_apart(way, programs)
        for program, (found, launches) in zip(programs, results):
            launched += launches > 0
            if options.show:
                print(program.source())
            if not found:
                continue
            failures += 1
            if not options.no_shrink:
                program, found = shrink(way, program, found)
            print(f"--- seed {program.seed} ({program.compiled}{', autocast' * program.autocast}) differs from eager", flush=True)
            print(program.source().split("class Net", 1)[1] if not options.show else "", flush=True)
            print("\n".join(found[:6]), flush=True)
    print(f"{failures} of {len(seeds)} programs differ from seed {options.seed} on, {launched} ran as kernels")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
