"""Names may hold what UTF-8 cannot (a lone surrogate, as os.fsdecode() makes of a file name that is not valid text): calls and reports work all the same."""

import types

import pytest
import torch

import kintsugi

BAD = "b\udcffd"


def named_function():
    def fn(x):
        return x + 1
    fn.__name__ = fn.__qualname__ = fn.__module__ = BAD
    return fn


def called_function():
    def inner(x):
        return x * 2
    inner.__name__ = inner.__qualname__ = inner.__module__ = BAD
    return lambda x: inner(x) + 1


def disabled_function():
    inner = torch.compiler.disable(called_function())
    return lambda x: inner(x) + 1


def of_a_file():
    space = {"torch": torch}
    exec(compile("def inner(x):\n    return x.sin() if x.sum() > 0 else x.cos()\n\n\ndef fn(x):\n    return inner(x) + 1\n", f"/{BAD}/x.py", "exec"), space)
    return space["fn"]


def code_name():
    def inner(x):
        return x + 1
    fn = types.FunctionType(inner.__code__.replace(co_name=BAD, co_qualname=BAD), globals())
    return lambda x: fn(x) * 2 if x.sum() > 0 else fn(x)


def parameter_name():
    def fn(x):
        return x + 1
    return types.FunctionType(fn.__code__.replace(co_varnames=(BAD,)), globals())


def attribute():
    holder = types.SimpleNamespace(**{BAD: 3})
    return lambda x: x + getattr(holder, BAD) + getattr(x, BAD, 2)


def attribute_of_code():
    code = named_function().__code__
    return lambda x: x + getattr(code, BAD, 2)


def buffer():
    module = torch.nn.Linear(3, 3)
    module.register_buffer(BAD, torch.ones(3))
    return lambda x: module(x) + getattr(module, BAD)


def missing_module():
    def fn(x):
        try:
            __import__(BAD)
        except (ImportError, UnicodeError):
            x = x + 1
        return x
    return fn


@pytest.mark.parametrize("make", [named_function, called_function, disabled_function, of_a_file, code_name, parameter_name, attribute, attribute_of_code, buffer,
                                  missing_module])
def test_names_without_utf8(make):
    fn, x = make(), torch.ones(3)
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        assert torch.equal(compiled(x), fn(x))
    found = kintsugi.explain(compiled)(x)
    assert found.graph_count >= 1
    assert str(found) and found.summary()
    assert kintsugi.stats(compiled)["calls"] >= 4
