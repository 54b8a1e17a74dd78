"""Every operator that a class can define, as it is written, as a special method, in a message and as a function of module operator."""
import operator

import pytest
import torch

from kintsugi._kintsugi import Compiled

BINARY = dict(zip("add and floordiv lshift matmul mul mod or pow rshift sub truediv xor".split(), "+ & // << @ * % | ** >> - / ^".split()))
COMPARE = dict(zip("lt le eq ne gt ge".split(), "< <= == != > >=".split()))
UNARY = {"neg": "-", "pos": "+", "invert": "~"}


def function(body):
    names = {}
    exec("def f(t, a, b):\n" + body, names)
    return names["f"]


def same(fn, *args):
    compiled = Compiled(fn)
    for _ in range(3):
        assert str(compiled(torch.ones(1), *args)) == str(fn(torch.ones(1), *args))
    assert compiled.stats()["replays"] == 2


@pytest.mark.parametrize("text", [*BINARY, *COMPARE])
def test_message_where_nobody_knows_the_operator(text):
    class Left:
        pass

    class Right:
        pass

    symbol = {**BINARY, **COMPARE}[text]
    for form in (f"r = a {symbol} b", f"a {symbol}= b")[:2 if text in BINARY else 1]:
        same(function(f"    r = None\n    try:\n        {form}\n    except TypeError as e:\n        r = str(e)\n    return t + 1, r is True, r if isinstance(r, str) else ''\n"), Left(), Right())


@pytest.mark.parametrize("method", [*(prefix + text for text in BINARY for prefix in ("", "r", "i")), *COMPARE, *UNARY])
def test_method(method):
    text = method if method in BINARY or method in COMPARE or method in UNARY else method[1:]
    cls = type("Number", (), {f"__{method}__": lambda self, *other: (method, other)})
    symbol = {**BINARY, **COMPARE, **UNARY}[text]
    form = f"{symbol}a" if text in UNARY else f"a {symbol} b" if method == text else f"b {symbol} a" if method[0] == "r" else f"a {symbol}= b"
    same(function(f"    {form}\n    return t * 2, a\n" if method[0] == "i" and method != text and text in BINARY else f"    return t * 2, {form}\n"), cls(), 3)


@pytest.mark.parametrize("name", "add and_ floordiv lshift mul mod or_ pow rshift sub truediv xor lt le eq ne gt ge is_ is_not iadd isub imul itruediv".split())
def test_function_of_two(name):
    fn = getattr(operator, name)
    same(lambda t, a, b: (t + 1, fn(a, b)), 7, 2)


@pytest.mark.parametrize("name", "neg pos invert inv not_ truth".split())
def test_function_of_one(name):
    fn = getattr(operator, name)
    same(lambda t, a: (t + 1, fn(a)), 7)
