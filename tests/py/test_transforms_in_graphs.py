"""What torch.func.jacrev, jacfwd and hessian make of functions that only compute is a node of the graph, wherever it is made; and the graphs for custom backends
hold objects that text has no expression for (a Python module in a cell, a generator of random numbers)."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402

SCALE = 2.0


def v(n=4, start=0.0):
    return torch.arange(float(n)) / 3 - 0.7 + start


def quadratic(w, x):
    return (w * x.sin()).sum() * SCALE


JACOBIAN, HESSIAN = torch.func.jacrev(quadratic), torch.func.hessian(quadratic, argnums=1)


def of_builtin(x):
    return torch.func.jacrev(torch.sin)(x) @ x


def forward(x):
    jacobian, aux = torch.func.jacfwd(lambda p: (p.sin(), p * 2), has_aux=True)(x)
    return jacobian.sum() + aux


def with_closure(x):
    w = x * 3

    def f(p):
        return p.sin() * w
    return torch.func.jacrev(f)(x) @ w


def two_arguments(x):
    a, b = torch.func.jacrev(lambda p, q: p.sin() * q, argnums=(0, 1))(x, x * 2)
    return a + b


def made_before(x):
    return JACOBIAN(x * 2, x) + HESSIAN(x * 2, x).sum()


def over_rows(x):
    return torch.vmap(torch.func.jacrev(lambda p: p.sin()))(torch.stack([x, x * 2])) * 2


def energy(p):
    return (p ** 4).sum() + (p * p).sum()


def newton(x):
    for _ in range(2):
        x = x - torch.linalg.solve(torch.func.hessian(energy)(x), torch.func.grad(energy)(x))
    return x


PROGRAMS = [of_builtin, forward, with_closure, two_arguments, made_before, over_rows, newton]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph_that_is_used_from_the_first_call_on(fn):
    backend = Counting()
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for i in range(5):
        x = v(4, i / 7)
        assert torch.allclose(compiled(x), fn(x)), i
    assert len(backend.inputs) == 1 and backend.runs == 5
    assert torch.allclose(compiled(v(6)), fn(v(6)))
    assert kintsugi.explain(fn)(v()).graph_count == 1


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_gradients_through_them(fn):
    compiled = kintsugi.compile(fn, backend=Counting())
    for i in range(3):
        x, y = (v(4, i / 7).requires_grad_() for _ in range(2))
        compiled(x).sum().backward()
        fn(y).sum().backward()
        assert torch.allclose(x.grad, y.grad), i


def test_what_the_functions_read_is_guarded(monkeypatch):
    by = 3.0

    def made(x):
        return torch.func.jacrev(lambda p: p.sin() * by)(x)
    for fn in (made_before, made):
        compiled = kintsugi.compile(fn, backend=Counting())
        assert torch.equal(compiled(v()), fn(v())) and torch.equal(compiled(v()), fn(v()))
        monkeypatch.setitem(globals(), "SCALE", 5.0)
        by = 7.0
        assert torch.equal(compiled(v()), fn(v())) and torch.equal(compiled(v()), fn(v()))
        monkeypatch.undo()
        by = 3.0


def test_functions_with_an_effect_are_called_each_time():
    seen = []

    def fn(x):
        def f(p):
            seen.append(1)
            return p.sin()
        return torch.func.jacrev(f)(x) * 2
    compiled = kintsugi.compile(fn, backend=Counting())
    for i in range(4):
        assert torch.equal(compiled(v()), torch.diag(v().cos()) * 2)
    assert len(seen) == 4


def test_made_function_keeps_the_name_of_what_it_wraps():
    def fn(x):
        jacobian = torch.func.jacrev(quadratic)
        return jacobian(x, x) + 1, jacobian.__name__, jacobian.__wrapped__
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        y, name, wrapped = compiled(v())
        assert torch.equal(y, fn(v())[0]) and name == "quadratic" and wrapped is quadratic


def test_objects_without_a_text_stand_in_graphs():
    generator = torch.Generator()

    def fn(x):
        return x + torch.rand(4, generator=generator) * 2
    backend = Counting()
    compiled = kintsugi.compile(fn, backend=backend)
    generator.manual_seed(3)
    found = [compiled(v()) for _ in range(4)]
    generator.manual_seed(3)
    assert all(torch.equal(a, fn(v())) for a in found)
    assert backend.runs > 0
