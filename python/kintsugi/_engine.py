"""The C engine, imported once. Where it does not fit, everything runs eagerly and a warning says why."""

from . import _eager

_reason = _eager.why_not()
if _reason is None:
    try:
        from . import _kintsugi as engine
    except ImportError as error:
        _reason = (f"the C extension is missing or does not fit this interpreter ({error}). Install a wheel for this version of Python, or "
                   "build it with `make build`")
if _reason is not None:
    _eager.warn(_reason)
    engine = _eager.Engine(_reason)

reason = _reason  # why there is no engine; None: there is one

__all__ = ["engine", "reason"]
