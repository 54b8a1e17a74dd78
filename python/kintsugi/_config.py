"""Settings, checked when they are set.

>>> from kintsugi import config
>>> with config.patch(recompile_limit=4):
...     config.recompile_limit
4
"""

import contextlib
import os


def _count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _percent(value):
    return _count(value) and value <= 100


def _flag(value):
    return isinstance(value, bool)


def _path(value):
    return isinstance(value, (str, os.PathLike))


def _default_cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("KINTSUGI_CACHE_DIR", os.path.join(base, "kintsugi")) or None


def _folder(value):
    return value is None or _path(value)


def _set_cache(engine, values):
    folder = values["cache_dir"]
    engine._set_cache(None if folder is None else os.path.expanduser(folder), values["cache_limit_mb"] << 20)


def _set_disable(engine, values):
    engine.set_option("disable", values["disable"] or config._forced_eager)


def _set_threads(engine, values):
    engine._set_compile_threads(min(values["compile_threads"], 1024))


def _set_memory(engine, values):
    engine._set_kept_memory(min(values["kept_memory_mb"], 1 << 40) << 20)


def _set_weights_room(engine, values):
    engine._set_weights_room(values["weights_memory_percent"])


# name: (default, check, what is accepted, known to the engine or the function that tells it, meaning)
_ROWS = {
    "strict_breaks": (False, _flag, "True or False", True, "report deferred effects (print, logging) as graph breaks"),
    "recompile_limit": (8, _count, "a number from 0 on", True, "recordings of one function before calls run eagerly"),
    "side_trace_limit": (32, _count, "a number from 0 on", True, "side traces added to one cache entry"),
    "exit_limit": (64, _count, "a number from 0 on", True, "side exits at one place that may still be recorded"),
    "trace_limit": (10_000_000, _count, "a number from 0 on", True, "instructions that one recording may hold"),
    "failure_limit": (3, _count, "a number from 0 on", True, "recordings that may leave nothing usable"),
    "disable": (False, _flag, "True or False", _set_disable, "run everything eagerly"),
    "crosscheck": (False, _flag, "True or False", True, "check recordings against a torch-function mode"),
    "step_aside": (True, _flag, "True or False", True,
                   "calls that turn out to be slower than eager run eagerly (KINTSUGI_STEP_ASIDE=0: not)"),
    "kernels": (True, _flag, "True or False", True, "compile graphs to machine code (KINTSUGI_KERNELS=0: not)"),
    "training": (True, _flag, "True or False", True, "compile graphs that give gradients, and their backward (KINTSUGI_TRAINING=0: not)"),
    "freezing": (True, _flag, "True or False", True, "pack weights, fold them; made again when they change"),
    "fast_math": (False, _flag, "True or False", True, "half precision, and products that are added, are not rounded in between"),
    "open_sizes": (True, _flag, "True or False", True, "machine code takes sizes that vary as arguments; off: code for each kind of sizes (KINTSUGI_OPEN_SIZES=0)"),
    "threads": (0, _count, "a number from 0 on", True, "threads that a launch uses at most; 0: PyTorch's number"),
    "async_compile": (False, _flag, "True or False", True,
                      "compile in the background; calls run step by step until then (KINTSUGI_ASYNC)"),
    "async_sizes": (True, _flag, "True or False", True,
                    "where sizes vary, code for all of them is compiled in the background; calls run step by step until then (KINTSUGI_ASYNC_SIZES=0: not)"),
    "verbose": (False, _flag, "True or False", False, "longer reports: nothing is left out as a duplicate"),
    "suppress_errors": (False, _flag, "True or False", False, "errors of backends become warnings, and the graph runs eagerly; off: BackendCompilerFailed (TORCHDYNAMO_SUPPRESS_ERRORS)"),
    "cache_dir": (_default_cache_dir(), _folder, "a path, or None for no cache", _set_cache,
                  "folder for compiled kernels (KINTSUGI_CACHE_DIR; empty: none)"),
    "cache_limit_mb": (512, _count, "a number from 0 on", _set_cache,
                       "megabytes of compiled kernels kept on disk, those used last; 0: no limit"),
    "kept_memory_mb": (1024, _count, "a number from 0 on", _set_memory,
                       "megabytes of large outputs and intermediates kept for the next call; 0: none"),
    "weights_memory_percent": (50, _percent, "a number from 0 to 100", _set_weights_room,
                               "of the free memory, how much packed weights may take; what does not fit is not packed; 0: nothing is"),
    "compile_threads": (0, _count, "a number from 0 on", _set_threads,
                        "threads that compile kernels; 0: as many as PyTorch computes with"),
}


def _for_engine(value):
    """Limits beyond what the engine counts to (sys.maxsize, say) mean the same as the highest one it knows."""
    return value if isinstance(value, bool) else min(value, 2**31 - 1)


class Config:
    """The settings as attributes; `patch` changes some of them for a while."""

    def __init__(self):
        values = {name: row[0] for name, row in _ROWS.items()}
        values["verbose"] = os.environ.get("TORCHDYNAMO_VERBOSE") == "1"
        values["crosscheck"] = os.environ.get("KIN_CROSSCHECK") == "1"
        values["disable"] = "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))
        values["suppress_errors"] = os.environ.get("TORCHDYNAMO_SUPPRESS_ERRORS") == "1"
        values["kernels"] = os.environ.get("KINTSUGI_KERNELS") != "0"
        values["step_aside"] = os.environ.get("KINTSUGI_STEP_ASIDE") != "0"
        values["training"] = os.environ.get("KINTSUGI_TRAINING") != "0"
        values["open_sizes"] = os.environ.get("KINTSUGI_OPEN_SIZES") != "0"
        values["async_compile"] = os.environ.get("KINTSUGI_ASYNC") == "1"
        values["async_sizes"] = os.environ.get("KINTSUGI_ASYNC_SIZES") != "0"
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_engine", None)
        object.__setattr__(self, "_forced_eager", False)

    def __getattr__(self, name):
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(_unknown(name)) from None

    def __setattr__(self, name, value):
        if name not in _ROWS:
            raise AttributeError(_unknown(name))
        _, check, accepted, in_engine, _ = _ROWS[name]
        if not check(value):
            raise ValueError(f"kintsugi.config.{name} = {value!r}: expected {accepted}")
        self._values[name] = value
        if in_engine and self._engine is not None:
            self._tell(name, in_engine)

    def _tell(self, name, how):
        if how is True:
            self._engine.set_option(name, _for_engine(self._values[name]))
        else:
            how(self._engine, self._values)

    def __dir__(self):
        return [*_ROWS, "patch", "describe"]

    def _attach(self, engine):
        """Passes the settings on to the engine, now and at every change."""
        object.__setattr__(self, "_engine", engine)
        for name, row in _ROWS.items():
            if row[3]:
                self._tell(name, row[3])

    def _force_eager(self, value):
        """The stance "force_eager": everything runs eagerly, whatever `disable` is."""
        object.__setattr__(self, "_forced_eager", value)
        if self._engine is not None:
            self._tell("disable", _set_disable)

    @contextlib.contextmanager
    def patch(self, **changes):
        """Changes settings for the `with` block or the decorated function."""
        before = {name: getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield self
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def describe(self):
        """All settings with their values and meanings, one per line."""
        return "\n".join(f"{name} = {self._values[name]!r}  # {row[4]}" for name, row in _ROWS.items())


def _unknown(name):
    return f"kintsugi.config has no setting '{name}'; it has: {', '.join(_ROWS)}"


config = Config()
