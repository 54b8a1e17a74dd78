"""Comparisons of conditions, whose result CPython 3.13 and later make a bool in the same instruction."""
import torch

import kintsugi


def test_tensor_in_a_condition():
    @kintsugi.compile(backend="eager")
    def f(y):
        if y.sum() > 1.0:
            raise KeyError("k")
        return 5

    for value in (3.0, 0.0, 3.0, 0.0, 0.0):
        try:
            got = f(torch.tensor([value]))
        except KeyError:
            got = "raised"
        assert got == ("raised" if value > 1 else 5)


def test_unmatched_exception():
    """The handler of an except clause keeps an offset on the stack, from 3.14 on one that is no object."""
    @kintsugi.compile(backend="eager")
    def f(x):
        try:
            raise KeyError(x.shape[0])
        except ValueError:
            return 1

    for _ in range(4):
        try:
            f(torch.ones(2))
        except KeyError as error:
            assert error.args == (2,) and error.__traceback__.tb_next is not None
