"""Runs one small program twice, in eager and compiled, and compares everything that both let see.

    @rule
    def test_rule_07_absent_becomes_present(w):
        f = w.compile(lambda x: x * len(CONFIG))
        w.call(f, x)        # result, exception, printed text, warnings and logs go to the protocol
        w.hit(f, x)         # the same, and the compiled world must have replayed a recording
        w.see(some_object)  # any other state

The function is called once for each world, so the classes and objects it makes are separate.
"""
import contextlib
import functools
import io
import os
import sys

import torch

import kintsugi
from kincorpus import tolerance
from kincorpus.freeze import Freezer, differences, type_name
from kincorpus.world import ambient, fresh_ambient, rng

torch.set_num_threads(1)


class World:
    def __init__(self, compiled, module, caught, handler):
        self.compiled, self.module = compiled, module
        self.caught, self.handler = caught, handler
        self.protocol = []
        self.functions = []

    def compile(self, fn, count=True, **options):
        """`count`: keep the compiled function, to see that at least one call in the test was a replay."""
        if self.compiled:
            fn = kintsugi.compile(fn, **options)
            if count:
                self.functions.append(fn)
        return fn

    def replays(self):
        return sum(kintsugi.stats(fn)["replays"] for fn in self.functions)

    def see(self, *values):
        """Puts values into the protocol; aliasing among them counts."""
        self.protocol.append(tuple(Freezer(self.module)(v) for v in (values,)))

    def exception(self, e, depth=0):
        if e is None or depth > 4:
            return None
        lines, tb = [], e.__traceback__
        while tb is not None:
            code = tb.tb_frame.f_code
            if code.co_filename.endswith(".py") and os.path.basename(code.co_filename).startswith("test_rules"):
                lines.append((code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        return (type_name(type(e)), Freezer(self.module)(e.args), tuple(lines), self.exception(e.__cause__, depth + 1),
                self.exception(e.__context__, depth + 1), e.__suppress_context__)

    def _run(self, fn, args, kwargs):
        out = io.StringIO()
        warned, logged = len(self.caught), len(self.handler.rows)
        result = error = None
        with contextlib.redirect_stdout(out):
            try:
                result = fn(*args, **kwargs)
            except Exception as e:
                error = e
        freeze = Freezer(self.module)
        self.protocol.append((
            ("result", freeze(result)), ("arguments", freeze(args), freeze(kwargs)),
            ("exception", self.exception(error)), ("stdout", out.getvalue()),
            ("warnings", tuple((type_name(c.category), str(c.message), os.path.basename(c.filename), c.lineno)
                               for c in self.caught[warned:])),
            ("logs", tuple(self.handler.rows[logged:])), ("rng", rng()), ("ambient", ambient())))
        return result

    def call(self, fn, *args, **kwargs):
        return self._run(fn, args, kwargs)

    def hit(self, fn, *args, **kwargs):
        """A call that must be answered by a recording, to the end."""
        before = self._stats(fn)
        result = self._run(fn, args, kwargs)
        after = self._stats(fn)
        if self.compiled:
            assert after["replays"] > before["replays"], (
                f"call {len(self.protocol)} is no replay: {[v['cause'] or v['reason'] for v in after['variants']]} "
                f"{after['eager_calls']}")
            assert after["bail_outs"] == before["bail_outs"], f"call {len(self.protocol)} left its recording"
        return result

    def enters(self, fn, *args, **kwargs):
        """A call that must enter a recording; it may leave it on the way."""
        before = self._stats(fn)
        result = self._run(fn, args, kwargs)
        after = self._stats(fn)
        if self.compiled:
            assert after["replays"] + after["bail_outs"] > before["replays"] + before["bail_outs"], (
                f"call {len(self.protocol)} recorded again: {[v['cause'] or v['reason'] for v in after['variants']]}")
        return result

    def _stats(self, fn):
        return kintsugi.stats(fn) if self.compiled else {}


def _protocol(program, compiled):
    kintsugi.reset()
    with fresh_ambient("always") as (caught, handler):
        world = World(compiled, program.__module__, caught, handler)
        program(world)
        assert not world.functions or world.replays() > 0, "nothing was replayed"
        if compiled and os.environ.get("KIN_RULES_COUNT"):
            rows = [kintsugi.stats(fn) for fn in world.functions]
            print(program.__name__, {k: sum(r[k] for r in rows) for k in (
                "calls", "recordings", "replays", "guard_misses", "bail_outs", "branches")},
                [r["eager_calls"] for r in rows if r["eager_calls"]],
                {v["reason"] for r in rows for v in r["variants"] if v["reason"]}, file=sys.__stdout__)
        return world.protocol


def rule(program):
    """A test function that takes a World; both worlds must have the same protocol."""
    @functools.wraps(program)
    def test():
        expected = _protocol(program, False)
        actual = _protocol(program, True)
        assert len(expected) == len(actual)
        for i, (a, b) in enumerate(zip(expected, actual)):
            found = differences(a, b, close=tolerance.close if kintsugi.config.kernels else None)
            assert not found, f"observation {i + 1}: " + "; ".join(
                f"{path}: eager {x!r:.300} compiled {y!r:.300}" for path, x, y in found[:3])
        assert expected, "the program showed nothing"
    del test.__wrapped__
    return test


def T(*size):
    """A small tensor of different numbers."""
    size = size or (3,)
    count = 1
    for s in size:
        count *= s
    return torch.arange(1.0, count + 1).reshape(size)
