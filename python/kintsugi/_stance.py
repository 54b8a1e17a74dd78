"""torch.compiler.set_stance and the settings that forbid recompiling, while torch.compile is served by Kintsugi.

PyTorch keeps the stance; `follow` makes the engine act on it. A hook of the engine is asked before a call is recorded, and
exists only while something may refuse.
"""

import logging

from ._config import config

_forced = None  # the backend that set_stance("default", force_backend=...) asks for
_flags = {"error_on_recompile": False, "fail_on_recompile_limit_hit": False}
_stance = "default"


STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")


def check(stance):
    """The error for a stance that does not exist, before it is in force."""
    if stance.stance not in STANCES:
        raise RuntimeError(f"set_stance({stance.stance!r}): invalid torch.compile stance, expected one of: {', '.join(STANCES)}")


def follow(stance):
    """Takes over a stance (torch._dynamo's object)."""
    global _forced, _stance
    _stance, _forced = stance.stance, stance.backend
    config._force_eager(_stance == "force_eager")
    _update_hook()


def set_flag(name, value):
    """error_on_recompile, fail_on_recompile_limit_hit of torch._dynamo.config."""
    _flags[name] = bool(value)
    _update_hook()


def is_flag(name):
    return name in _flags


def forget():
    """As if nobody had asked for anything."""
    global _forced, _stance
    _stance, _forced = "default", None
    _flags.update(dict.fromkeys(_flags, False))
    config._force_eager(False)
    _update_hook()


def backend_for(backend):
    """The backend of a torch.compile call under this stance."""
    return backend if _forced is None else _forced


def warn_backend():
    """Functions that exist keep theirs, which stock does not do."""
    from . import _api

    if _api.live_compiled():
        logging.getLogger("torch._dynamo").warning(
            "set_stance(force_backend=%r): holds for functions that are compiled from now on; those that exist keep their backend",
            _forced)


def _update_hook():
    from . import _api

    wanted = _stance in ("eager_on_recompile", "fail_on_recompile") or any(_flags.values())
    _api.start_engine().set_option("miss_hook", _ask if wanted else None)


def _ask(name, code, cause, limited):
    """True: the call may be recorded; False: it runs eagerly; or the error."""
    if _stance == "eager_on_recompile":
        return False
    place = f"{name} ({code.co_filename}:{code.co_firstlineno})"
    if _stance == "fail_on_recompile":
        reason = "nothing was recorded before" if cause is None else _lines(cause)
        raise RuntimeError("Detected recompile when torch.compile stance is 'fail_on_recompile'. "
                           f"function: {place}\nReason:\n{reason}")
    if limited:
        if _flags["fail_on_recompile_limit_hit"]:
            from torch._dynamo.exc import FailOnRecompileLimitHit

            raise FailOnRecompileLimitHit(f"Hard failure due to fail_on_recompile_limit_hit: {place}\n{_lines(cause or '')}")
        return True
    if cause is not None and _flags["error_on_recompile"]:
        from torch._dynamo.exc import RecompileError

        raise RecompileError(f"Recompiling function {place}\n    triggered by the following guard failure(s):\n{_lines(cause)}")
    return True


def _lines(cause):
    return "\n".join(f"    - {line}" for line in cause.splitlines())
