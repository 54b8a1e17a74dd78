"""The C engine, imported once, with a clear error when it was not built."""

try:
    from . import _kintsugi as engine
except ImportError as error:
    raise ImportError(
        "kintsugi's C extension is missing or does not fit this interpreter: "
        f"{error}. Build it with `make build` (CPython 3.11 with torch 2.13)."
    ) from error

__all__ = ["engine"]
