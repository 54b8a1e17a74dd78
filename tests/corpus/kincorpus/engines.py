"""What the harness needs of an engine: compile, counters, forced exits.  `broken_*` are wrong on purpose (self-tests)."""
import contextlib
import functools
import importlib
import io
import types

from . import tolerance


class Eager:
    """The stand-in: nothing is compiled, so a case compared against it must agree with itself."""
    name = "eager"
    counts = False   # has replay counters
    close = None     # what may differ from eager (tolerance.py); None: nothing

    def reset(self):
        pass

    def compile(self, fn):
        return fn

    def stats(self, compiled):
        return {}

    def force_exit(self, k):
        pass

    def bugs(self):
        """What the engine itself found to be wrong since the last reset, in words."""
        return []


class Kintsugi:
    """Recording and replay alone, without kernels: every bit is eager's."""
    name = "kintsugi"
    counts = True
    close = None
    kernels = False

    def __init__(self):
        self.module = importlib.import_module("kintsugi")

    def reset(self):
        self.module.reset()
        self.since = self.module.events()[-1:]
        self.module.config.kernels = self.kernels
        self.module._kintsugi.set_option("trials", 0)   # kernels are used even where the steps would be faster

    def compile(self, fn):
        return self.module.compile(fn)

    def stats(self, compiled):
        return self.module.stats(compiled)

    def force_exit(self, k):
        self.module._kintsugi.force_exit(k)

    def bugs(self):
        since = self.since[0]["seq"] if self.since else -1
        return [f"{event['where']}: {event['message']}" for event in self.module.events() if event["event"] == "bug" and event["seq"] > since]


class KintsugiKernels(Kintsugi):
    """With kernels, each graph that can be compiled: last digits may differ."""
    name = "kintsugi_kernels"
    close = staticmethod(tolerance.close)
    kernels = True


class KintsugiBackend(Kintsugi):
    """With a custom backend that gives its graphs back: what stands between their calls waits, or goes on with their results."""
    name = "kintsugi_backend"

    def compile(self, fn):
        return self.module.compile(fn, backend=lambda gm, inputs: gm)


# -- engines that are wrong ---------------------------------------------------------------------------------------

class _Broken(Eager):
    def compile(self, fn):
        if not isinstance(fn, types.FunctionType):
            return fn
        return self.wrap(fn)


class StaleGlobals(_Broken):
    """Reads globals as they were at the first call."""
    name = "broken_stale_globals"

    def wrap(self, fn):
        copy = []

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if not copy:
                copy.append(types.FunctionType(fn.__code__, dict(fn.__globals__), fn.__name__, fn.__defaults__,
                                               fn.__closure__))
                copy[0].__kwdefaults__ = fn.__kwdefaults__
                return fn(*args, **kwargs)
            return copy[0](*args, **kwargs)
        return call


class StaleDefaults(_Broken):
    """Binds the default arguments of the first call, and the closure contents too."""
    name = "broken_stale_defaults"

    def wrap(self, fn):
        cells = []
        for cell in fn.__closure__ or ():
            try:
                cells.append(types.CellType(cell.cell_contents))
            except ValueError:
                cells.append(types.CellType())
        copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells))
        copy.__kwdefaults__ = dict(fn.__kwdefaults__) if fn.__kwdefaults__ else None
        return copy


class DropsPrints(_Broken):
    """Replays without the printed output."""
    name = "broken_drops_prints"

    def wrap(self, fn):
        seen = []

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if not seen:
                seen.append(1)
                return fn(*args, **kwargs)
            with contextlib.redirect_stdout(io.StringIO()):
                return fn(*args, **kwargs)
        return call


class RunsTwice(_Broken):
    """Performs effects twice from the second call on."""
    name = "broken_runs_twice"

    def wrap(self, fn):
        seen = []

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if seen:
                try:
                    fn(*args, **kwargs)
                except Exception:
                    pass
            seen.append(1)
            return fn(*args, **kwargs)
        return call


class KeepsResult(_Broken):
    """Returns the first result again: as if the data did not matter and there were no effects."""
    name = "broken_keeps_result"

    def wrap(self, fn):
        results = []

        @functools.wraps(fn)
        def call(*args, **kwargs):
            if not results:
                results.append(fn(*args, **kwargs))
            return results[0]
        return call


class WrongLines(_Broken):
    """Code objects whose lines are off by one: tracebacks, warnings and frames tell."""
    name = "broken_wrong_lines"

    def wrap(self, fn):
        code = fn.__code__.replace(co_firstlineno=fn.__code__.co_firstlineno + 1)
        copy = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        copy.__kwdefaults__ = fn.__kwdefaults__
        return copy


class Rounds(_Broken):
    """Results differ in the last bit."""
    name = "broken_rounds"

    def wrap(self, fn):
        import torch

        @functools.wraps(fn)
        def call(*args, **kwargs):
            out = fn(*args, **kwargs)
            if type(out) is torch.Tensor and out.dtype == torch.float32 and out.numel():
                with torch.no_grad():
                    out.data.view(torch.int32).view(-1)[0] ^= 1
            return out
        return call


BROKEN = (StaleGlobals, StaleDefaults, DropsPrints, RunsTwice, KeepsResult, WrongLines, Rounds)


def make_engine(name):
    for cls in (Eager, Kintsugi, KintsugiKernels, KintsugiBackend) + BROKEN:
        if cls.name == name:
            return cls()
    raise ValueError(f"unknown engine {name!r}")
