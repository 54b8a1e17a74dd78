"""What a corpus case is, and the small vocabulary that topic files use to declare one.

A topic file is executed afresh for every run of every case (see world.py), so cases may change globals, classes and
defaults freely.  `@case(...)` registers the function below it as the compiled function; `@built(...)` registers a
function that is called with the state `s` and returns the callable to compile.

    @case(args=lambda i, s: (T(i, 4),), mutate=glob(3, SCALE=3.0))
    def reads_a_global(x):
        return x * SCALE
"""
import dataclasses
import os
import sys
import types

import torch

DEVICE = os.environ.get("KIN_DEVICE", "cpu")   # where T() puts its tensors


@dataclasses.dataclass
class Case:
    name: str
    fn: object             # the compiled function, or its builder
    build: bool            # fn(s) returns the callable to compile
    args: object           # args(i, s) -> tuple or Args
    setup: object          # setup(s): prepares the state namespace
    mutate: object         # mutate(i, s): runs before the arguments of call i are made
    after: object          # after(i, s, result): runs (eagerly, on both sides) after call i; its result is compared
    calls: int
    again: int             # calls after the first that legitimately record again
    min_replays: int       # how many of the later calls must be replays
    warn: str              # action of the warnings filter during the whole run
    raises: tuple          # calls that raise in eager; all others must not
    inert: bool            # the mutation must change nothing that can be seen in results (only state)

    state: bool            # state outside of the arguments changes between the calls, and a result shows it

    @property
    def could_replay(self):
        return self.calls - 1 - self.again


class Args:
    """Positional and keyword arguments of one call."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def T(seed, *shape, dtype=torch.float32, grad=False):
    """A tensor that depends on the seed and the shape only; leaves the global generator alone."""
    g = torch.Generator("cpu").manual_seed(1000 * seed + 7 * len(shape) + sum(shape))
    if dtype.is_floating_point or dtype.is_complex:
        t = torch.randn(*shape, generator=g, dtype=torch.float32, device="cpu").to(dtype)
    elif dtype == torch.bool:
        t = torch.randint(0, 2, shape, generator=g, device="cpu").bool()
    else:
        t = torch.randint(-9, 10, shape, generator=g, dtype=dtype, device="cpu")
    t = t.to(DEVICE)
    return t.requires_grad_() if grad else t


def seeded(seed, make):
    """make() with the global generator seeded, and the generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def do(when, action):
    """mutate: runs action(s) before call `when` (a number or a tuple of numbers)."""
    calls = when if isinstance(when, tuple) else (when,)

    def mutate(i, s):
        if i in calls:
            action(s)
    mutate.changes = len(calls)
    return mutate


def seq(*mutators):
    """mutate: several in order."""
    def mutate(i, s):
        for m in mutators:
            m(i, s)
    mutate.changes = sum(getattr(m, "changes", 1) for m in mutators)
    return mutate


def glob(when, **names):
    """mutate: assigns globals of the topic file before call `when`."""
    namespace = sys._getframe(1).f_globals

    def mutate(i, s):
        if i == when:
            namespace.update(names)
    mutate.changes = 1
    return mutate


def attr(when, owner, **names):
    """mutate: assigns attributes before call `when`; owner(s) gives the object."""
    def action(s):
        for name, value in names.items():
            setattr(owner(s), name, value)
    return do(when, action)


def _register(build, fn, options):
    namespace = fn.__globals__
    mutate = options.pop("mutate", None)
    again = options.pop("again", getattr(mutate, "changes", 1) if mutate else 0)
    calls = options.pop("calls", 6)
    record = Case(
        name=fn.__name__, fn=fn, build=build, calls=calls, again=again, mutate=mutate,
        args=options.pop("args", lambda i, s: (T(i, 4, 3),)),
        setup=options.pop("setup", None), after=options.pop("after", None),
        min_replays=options.pop("replays", calls - 1 - again), warn=options.pop("warn", "always"),
        raises=tuple(options.pop("raises", ())), inert=options.pop("inert", False),
        state=False)
    record.state = mutate is not None and not record.inert
    if options:
        raise TypeError(f"unknown case options {sorted(options)}")
    cases = namespace.setdefault("CASES", {})
    if fn.__name__ in cases:
        raise ValueError(f"two cases are named {fn.__name__}")
    cases[fn.__name__] = record
    return fn


def case(**options):
    return lambda fn: _register(False, fn, options)


def built(**options):
    return lambda fn: _register(True, fn, options)


def State():
    return types.SimpleNamespace()
