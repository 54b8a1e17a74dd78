"""Methods of strings, numbers, tuples ... give constants, but for those that give a new list, dict or iterator in each call."""

import pytest
import torch

import kintsugi

VALUES = ["a b c", 3, 2.5, b"a b", (1, 2), range(3), 2j, slice(1, 2), True]
ARGUMENTS = [(), (1,), (5,), ("a",), (b"a",), ("a", "b"), ({1: 2},), (2, "big")]


def is_value(obj):
    return isinstance(obj, (str, bytes, int, float, complex, range, slice, type(None), type(NotImplemented))) or isinstance(obj, tuple) and all(map(is_value, obj))


def calls_that_give_new_objects():
    for value in VALUES:
        for name in dir(value):
            if name in ("__reduce__", "__reduce_ex__", "__class__", "__class_getitem__"):  # tuples of classes; no methods of the value
                continue
            for args in ARGUMENTS:
                try:
                    given = getattr(value, name)(*args)
                except Exception:
                    continue
                if not is_value(given):
                    yield value, name, args
                    break


@pytest.mark.parametrize("value, name, args", [pytest.param(*c, id=f"{type(c[0]).__name__}.{c[1]}") for c in calls_that_give_new_objects()])
@pytest.mark.parametrize("way", ["method", "bound", "of the class"])
def test_each_call_gives_a_new_object(value, name, args, way):
    def method(x):
        return x + 1, getattr(value, name)(*args)

    def bound(x):
        call = getattr(value, name)
        return x + 1, call(*args)

    def of_class(x):
        return x + 1, getattr(type(value), name)(*(args if name == "maketrans" else (value, *args)))

    compiled = kintsugi.compile({"method": method, "bound": bound, "of the class": of_class}[way])
    results = [compiled(torch.ones(3))[1] for _ in range(5)]
    expected = getattr(value, name)(*args)
    assert len({id(r) for r in results}) == 5
    assert all(type(r) is type(expected) for r in results)
    unpacked = list(expected)
    for result in results:
        assert list(result) == unpacked


def skips_one(x):
    it = x.shape.__iter__()
    next(it)
    return x + next(it)


def of_a_tuple_of_tensors(x):
    it = (x, x * 2).__iter__()
    next(it)
    return next(it), it


def backwards(x):
    it = range(5).__reversed__()
    return x * next(it) + next(it)


def words(x):
    found = "a b".split()
    found.append("c")
    return x + len(found)


@pytest.mark.parametrize("fn", [skips_one, of_a_tuple_of_tensors, backwards, words])
def test_what_was_taken_is_taken_in_this_call_only(fn):
    compiled = kintsugi.compile(fn)
    for rows in (3, 3, 3, 4, 5, 3):
        x = torch.randn(rows, 2)
        got, expected = compiled(x), fn(x)
        if isinstance(expected, tuple):
            assert list(got[1]) == list(expected[1]) == []
            got, expected = got[0], expected[0]
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
