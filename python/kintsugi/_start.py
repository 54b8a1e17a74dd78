"""The engine with its settings and its listener, and the callables that it makes."""

import functools
import sys

from . import _compiled
from ._config import config

_started = False


def start_engine():
    """The engine with the settings and the listener in place."""
    global _started
    from ._engine import engine

    if not _started:
        from . import _errors, _logs

        config._attach(engine)
        engine.set_option("error_class", _errors.EngineError)
        _logs.start(engine)
        _started = True
    return engine


def make_compiled(fn, kwargs, name=None):
    """The engine's callable for `fn`, listed for reports."""
    engine = start_engine()
    _leave_out_validation()
    compiled = engine.Compiled(fn, name=name or "", **kwargs)
    _compiled.add(compiled)
    from . import _logs

    _logs.note_new(compiled)
    return compiled


@functools.cache
def _leave_out_validation():
    """Distributions look at the content of their parameters (`if not valid.all(): raise`), which ends a graph each time. torch.compile switches
    that off when it first compiles something, for the whole process; so does this. Who wants it says so afterwards, or to the distribution."""
    distributions = sys.modules.get("torch.distributions")
    if distributions is not None:
        distributions.Distribution.set_default_validate_args(False)
