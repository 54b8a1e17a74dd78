"""Compares the shape rules of src/core/shape with what eager's operators return: dtype, sizes, strides, shared memory.

`Watch` is a dispatch mode that writes down each ATen call with the layout of its real results; `verdicts` asks the rules
about each call of that text.
"""

import atexit
import ctypes
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from torch.utils._pytree import tree_leaves

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lower"))
from lowering import NAMES, Capture  # noqa: E402


def _build():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    sources = [str(p) for part in ("base", "ir", "aten", "shape", "diag") for p in sorted((ROOT / "src/core" / part).glob("*.c"))]
    target = folder + "/shapes.so"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE=", "-O1", "-g", "-shared", "-fPIC", "-I" + str(ROOT / "src"), *sources,
                    str(ROOT / "tests/shape/shapes.c"), "-lm", "-o", target], check=True)
    lib = ctypes.CDLL(target)
    lib.shapes_check.restype = ctypes.c_void_p
    lib.shapes_free.argtypes = [ctypes.c_void_p]
    return lib


_lib = None


def verdicts(text):
    """For each call of the text: "none" (no rule), "declined", "ok", "ok list", or "differs: ..."."""
    global _lib
    _lib = _lib or _build()
    at = _lib.shapes_check(text.encode(), NAMES[torch.get_default_dtype()].encode())
    made = ctypes.string_at(at).decode() if at else ""
    _lib.shapes_free(at)
    return made.splitlines()


class Watch(Capture):
    """`ops`: the overload of each call in the text, `expected`: what a rule says that is right."""

    def __init__(self, inputs=()):
        super().__init__(inputs)
        self.ops, self.expected = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.ops.append(func)
        places = "".join("-x"[r is not None] for r in result) if isinstance(result, tuple) else ""
        self.expected.append("ok" + " list" * isinstance(result, list) + f" {places}" * ("-" in places))
        return result


def results_of(fn, inputs):
    """(what fn gives, [(overload, verdict)]). Raises what fn raises."""
    watch = Watch(inputs)
    with torch.no_grad(), watch:
        made = fn(*inputs)
    return made, list(zip(watch.ops, check_places(watch, verdicts(text_of(watch)))))


def text_of(watch):
    return "\n".join([*watch.lines, "return"]) + "\n"


def check_places(watch, said):
    """A rule also says whether results come as a list, and which are None."""
    assert len(said) == len(watch.ops), said
    for verdict, expected in zip(said, watch.expected):
        wrong = verdict.startswith("ok") and verdict != expected
        yield f"differs: {verdict}, eager {expected}" if wrong else verdict


def rule_answers(op, args, kwargs=None):
    """Does a rule answer for this call? For calls that eager refuses."""
    tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
    watch = Watch(list(dict.fromkeys(tensors)))
    parts = [watch.argument(a) for a in args] + [f"{k}={watch.argument(v)}" for k, v in (kwargs or {}).items()]
    name = f"{op._schema.name.replace('::', '.')}.{op._schema.overload_name or 'default'}"
    watch.lines.append(f"{name}({', '.join(parts)})")
    said = verdicts(text_of(watch))
    return said[0] not in ("none", "declined")
