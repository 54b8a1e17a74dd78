"""Warnings that C code raises name the file and line of the program, and are counted there, as without compiling."""
import warnings

import numpy as np
import pytest
import torch

import kintsugi
from kintsugi import _kintsugi as engine


def nested(x):
    y = x + 1
    return torch.nested.nested_tensor([y, y[:1]]).size(0)


def below(x):
    return x.to_sparse_csr()


def sparse(x):
    y = x * 2
    return below(y).shape, below(y + 1).shape


def no_leaf(x):
    y = (x * 2).requires_grad_() * 1
    return y.grad


def transposed(x):
    return x[None].T.shape


def resized(x):
    out = torch.zeros(1)
    torch.add(x, 1, out=out)
    return out.shape


def numbers(x):
    return float(np.float64(1.0) / np.zeros(1)[0] + x.shape[0])


def in_a_handler(x):
    try:
        raise ValueError
    except ValueError:
        return below(x).shape


class Model(torch.nn.Module):
    def forward(self, x):
        return [below(t[None] if t.dim() == 1 else t).shape for t in (x, x + 1)]


FUNCTIONS = [nested, sparse, no_leaf, transposed, resized, numbers, in_a_handler, Model()]


@pytest.fixture(autouse=True)
def each_time():
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)
    engine.force_exit(None)


def said(function, x, filters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filters)
        function(x)
    return [(w.category, str(w.message), w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("k", [None, 0, 2])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", "Model"))
def test_file_and_line(function, k):
    engine.force_exit(k)
    compiled = kintsugi.compile(function)
    for size in (3, 3, 3, 4, 5):
        x = torch.ones(size, 4)
        expected = said(function, x, "always")
        assert expected and said(compiled, x, "always") == expected


def test_counted_where_they_belong():
    """Once for each place: what was said before the call is not said again."""
    x = torch.ones(3, 4)
    compiled = kintsugi.compile(sparse)
    compiled(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            sparse(x)
            compiled(x)
    assert len(caught) == 1


def test_a_look_at_the_frame():
    """showwarning() of the program may ask for frames, and keep one."""
    kept = []

    def show(message, category, filename, lineno, file=None, line=None):
        import sys
        frame = sys._getframe(1)
        while frame.f_code.co_filename != __file__:
            frame = frame.f_back
        kept.append((frame, frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)[:0]))

    compiled = kintsugi.compile(below)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        for _ in range(4):
            compiled(torch.ones(3, 4))
    assert {name for _, name, _, _ in kept} == {"below"}
    assert len({line for _, _, line, _ in kept}) == 1
    assert all(frame.f_code is below.__code__ and frame.f_lineno == line for frame, _, line, _ in kept)
