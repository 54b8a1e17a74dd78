"""locals() and f_locals: in CPython 3.11 a frame has one dict for them, which each look at the frame fills again."""
import inspect
import sys
import traceback

import pytest
import torch

import kintsugi


def names(d):
    return {k: type(v).__name__ if isinstance(v, (torch.Tensor, dict, list)) else v for k, v in d.items() if k != "d"}


def looks():
    return sys._getframe(1).f_locals


def kept_across_a_look(x):
    a = 1
    d = locals()
    b = 2
    looks()
    return names(d), a, b


def asked_twice(x):
    a = x + 1
    d = locals()
    b = 2
    e = locals()
    return d is e, names(d), a.sum() + b


def looked_at_twice(x):
    d = looks()
    b = x.sum()
    e = looks()
    return d is e, names(d), b


def a_name_goes(x):
    d = locals()
    b = 1
    before = sorted(d)
    looks()
    del b
    looks()
    return before, names(d)


def own_frame(x):
    d = sys._getframe().f_locals
    b = x * 2
    e = locals()
    return d is e, names(e), b


def inner(x):
    d = locals()
    y = x + 1
    looks()
    return d, y


def two_frames(x):
    d = locals()
    q = inner(x)[0]
    z = inner(x + 1)[0]
    looks()
    return names(d), names(q), names(z), q is z


def an_entry_of_its_own(x):
    d = locals()
    d["extra"] = 1
    b = 2
    return names(locals()), b


def in_a_loop(x):
    out = []
    for i in range(3):
        out.append(locals())
    return len({id(o) for o in out}), out[0]["i"]


def in_a_handler(x):
    d = locals()
    try:
        y = x + 1
        raise ValueError
    except ValueError:
        z = inspect.currentframe().f_locals
    return d is z, sorted(d), y


def by_vars(x):
    d = vars()
    b = 2
    return d is locals(), names(d), b


def by_exec(x):
    a = 1
    d = locals()
    b = 2
    exec("c = a + b")
    return names(d), eval("a + b"), a, b


def by_traceback(x):
    d = locals()
    b = 3
    traceback.StackSummary.extract(traceback.walk_stack(sys._getframe()), limit=1, capture_locals=True)
    return names(d), b


class Holder:
    def method(self, x):
        d = locals()
        b = x + 1
        looks()
        return sorted(d), b


def in_a_method(x):
    return Holder().method(x), Holder().method(x)


def on_either_way(x):
    d = locals()
    if x.sum() > 0:
        b = 1
    else:
        c = 1
    looks()
    return names(d)


@pytest.mark.parametrize("function", [kept_across_a_look, asked_twice, looked_at_twice, a_name_goes, own_frame, two_frames,
                                      an_entry_of_its_own, in_a_loop, in_a_handler, by_vars, by_exec, by_traceback, in_a_method,
                                      on_either_way], ids=lambda f: f.__name__)
def test_one_dict_for_each_frame(function):
    compiled = kintsugi.compile(function)
    for call in range(6):
        x = torch.ones(3) * (-1) ** call
        assert str(compiled(x)) == str(function(x))
    assert kintsugi.stats(compiled)["replays"] > 0
