"""What operators without a shape rule return is learned without importing torch._dynamo or sympy (kintsugi/_meta.py)."""

import builtins
import subprocess
import sys

import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from kintsugi import _meta

PROGRAM = """
import sys
import torch
from kintsugi import _meta

def calls():
    x = torch.rand(3, 4, device="meta")
    return [torch.logit(x).shape, torch.addr(x, x[:, 0], x[0]).shape, torch.special.entr(x).shape, (x + 1).shape]

_meta.prepare()
first = calls()
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert calls() == first == [torch.Size([3, 4])] * 4
wrapper = next(f for f in _meta._wrappers() if f.__name__ == "logit")
fn = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__))["fn"].cell_contents
assert fn.__dynamo_disable.__module__.startswith("torch._dynamo")
print("done")
"""

# What a function imports lasts as long as its call; what a module imports, and what the user's program does, is the real thing.
CONDITIONS = """
import builtins, sys, threading, types
import torch
from kintsugi import _meta

stock, x, mask = builtins.__import__, torch.rand(3, 4, device="meta"), torch.zeros(4, dtype=torch.bool, device="meta")

def is_unknown():
    return "sympy" not in sys.modules

_meta.prepare()
for op, args, sizes in ((torch.ops.aten.masked_fill_.Scalar, (x, mask, 0), [3, 4]), (torch.ops.aten.baddbmm.default, (x[None], x[None, :, :1], x[None, :1]), [1, 3, 4]),
                        (torch.ops.aten.grid_sampler_2d.default, (x[None, None], x[None, None, :, :2], 0, 0, False), [1, 1, 1, 3]),
                        (torch.ops.aten.binary_cross_entropy.default, (x, x), [])):
    assert list(_meta.call(op, args, {}).shape) == sizes and is_unknown() and builtins.__import__ is stock
for bad in ((x, mask[:3], 0), (x,)):
    try:
        _meta.call(torch.ops.aten.masked_fill_.Scalar, bad, {})
        raise AssertionError
    except RuntimeError:
        assert builtins.__import__ is stock

def of_torch(code):
    module = types.ModuleType("torch.something")
    exec(code, module.__dict__)
    return module

inside = of_torch("def call():\\n from torch.fx.experimental.symbolic_shapes import sym_or\\n import sympy\\n return sym_or, sympy.Basic")
sym_or, basic = _meta.call(inside.call, (), {})
assert sym_or(False, True) is True and not isinstance(x, basic) and is_unknown()

def in_user_code():
    from torch.fx.experimental.symbolic_shapes import sym_or
    return sym_or

def hook(*args, **kwargs):
    return _meta._import_for_meta(*args, **kwargs)

def with_hook():  # as a program that wraps what it finds
    builtins.__import__ = hook

CASE = sys.argv[1]
if CASE == "user":
    real = _meta.call(in_user_code, (), {})
elif CASE == "module":
    real = _meta.call(of_torch, ("from torch.fx.experimental.symbolic_shapes import sym_or",), {}).sym_or
elif CASE == "another name":
    inside = of_torch("def call():\\n from torch.fx.experimental.symbolic_shapes import ShapeEnv, sym_or\\n return ShapeEnv, sym_or")
    made, _ = _meta.call(inside.call, (), {})
    assert made is sys.modules["torch.fx.experimental.symbolic_shapes"].ShapeEnv
    real = _meta.call(inside.call, (), {})[1]
elif CASE == "hook":
    _meta.call(with_hook, (), {})
    assert builtins.__import__ is hook
    real = _meta.call(inside.call, (), {})[0]
    stock = hook
from torch.fx.experimental.symbolic_shapes import sym_or
assert real is sym_or and builtins.__import__ is stock
print("done")
"""


def test_meta_kernels_do_not_import_dynamo():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("case", ["user", "module", "another name", "hook"])
def test_meta_kernels_do_not_import_sympy(case):
    done = subprocess.run([sys.executable, "-c", CONDITIONS, case], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.filterwarnings("ignore:guard_size_oblivious")
def test_plain_conditions_are_answered_as_by_symbolic_shapes():
    x = torch.rand(3, 4, device="meta")
    values = {"sym_and": [(True,), (True, False), (False, True, True), (True, True)], "sym_or": [(True,), (False, False), (False, True)],
              "sym_eq": [(3, 3), (3, 4), ((3, 4), [3, 4]), ([3], (3, 4)), ([], []), (x.shape, (3, 4)), (x.shape, [3, 5])],
              "is_nested_int": [(3,)], "has_guarding_hint": [(3,), (True,), (2.5,)], "guarding_hint_or_throw": [(3,), (0,), (True,)],
              "free_unbacked_symbols": [(x,), (3,), ((3, 4),)]}
    for name in filter(lambda name: hasattr(symbolic_shapes, name), _meta._ANSWERS):
        stand_in, real = getattr(_meta._STAND_INS[symbolic_shapes.__name__], name), getattr(symbolic_shapes, name)
        for args in values.get(name, [(True,), (False,)]):
            said, expected = stand_in(*args), real(*args)
            assert said == expected and (type(said) is type(expected) or name == "free_unbacked_symbols"), (name, args, said, expected)


def test_symbols_are_left_to_symbolic_shapes():
    env = symbolic_shapes.ShapeEnv()
    size = env.create_unbacked_symint()
    ask = vars(_meta._STAND_INS[symbolic_shapes.__name__])
    assert ask["guard_or_false"](size == 3) is False and ask["guard_or_true"](size == 3) is True
    assert ask["statically_known_true"](size == size) is True and str(ask["sym_or"](size == 3, size == 4)) == str(symbolic_shapes.sym_or(size == 3, size == 4))
    assert len(ask["free_unbacked_symbols"](size)) == 1 and builtins.__import__ is not _meta._import_for_meta


def test_meta_kernels_are_told_the_device():
    """PyTorch's own function for it says "cuda" of every meta tensor; for another device the operator gives other sizes."""
    from kintsugi import _meta

    weight, rows, bags = torch.rand(50, 8), torch.randint(0, 50, (24,)), torch.arange(0, 24, 6)
    hint, meta = torch._meta_registrations.device_hint, torch.rand(2, device="meta")
    for mode in range(3):
        args = weight, rows, bags, False, mode, False, None
        real = torch.ops.aten._embedding_bag.default(*args)
        given = _meta.call(torch.ops.aten._embedding_bag.default, tuple(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args), {}, "cpu")
        assert [(t.shape, t.stride()) for t in given] == [(t.shape, t.stride()) for t in real]
    assert hint(meta) == "cuda" and hint(weight) == "cpu"
