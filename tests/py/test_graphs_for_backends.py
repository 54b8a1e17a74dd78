"""What stands between the calls of a graph and does not part it: a custom backend gets as many graphs as explain() counts."""
import enum

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield
    torch.set_grad_enabled(True)


def nested_modes(w, x):
    with torch.no_grad():
        y = w * x
        with torch.enable_grad():
            z = w * y
        frozen = z + 1
    return z.sum(), frozen, torch.is_grad_enabled()


def switched_by_hand(w, x):
    y = w * x
    torch.set_grad_enabled(False)
    z = y * 2
    torch.set_grad_enabled(True)
    return (y + z).sum(), z, torch.is_grad_enabled()


def left_switched(w, x):
    y = (w * x).sum()
    torch.set_grad_enabled(False)
    return y, w * 2, torch.is_grad_enabled()


def raises_inside(w, x):
    y = w * x
    with torch.no_grad():
        z = y.view(7, 7)
    return y.sum(), z, True


@pytest.mark.parametrize("backend", ["counts", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [nested_modes, switched_by_hand, left_switched, raises_inside])
@pytest.mark.parametrize("enabled", [True, False])
def test_switching_gradients_is_a_node(program, backend, enabled):
    """One graph with torch._C._set_grad_enabled in it, as in stock; gradients, and the mode that is left behind, are eager's."""
    seen = []

    def counts(gm, inputs):
        seen.append([str(node.target) for node in gm.graph.nodes if node.op.startswith("call")])
        return gm

    def run(fn):
        w = torch.arange(4.0).requires_grad_()
        with torch.set_grad_enabled(enabled):
            try:
                loss, other, mode = fn(w, torch.ones(4))
            except RuntimeError as error:
                return str(error), torch.is_grad_enabled()
            after = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), loss.requires_grad, other.detach(), other.requires_grad, mode, after, w.grad

    def flat(result):
        return [v.tolist() if isinstance(v, torch.Tensor) else v for v in result]
    compiled = kintsugi.compile(program, backend=counts if backend == "counts" else backend, fullgraph=True)
    for _ in range(4):
        assert flat(run(compiled)) == flat(run(program))
    if backend == "counts" and program is not raises_inside:
        assert len(seen) == 1, seen


def test_a_number_that_another_way_knows_is_no_constant():
    """The first side trace tests n == 0; the graph of a later one must not have that 0 in it."""
    log = []

    def fn(x, n):
        a = x * 1
        note(log)
        if n > 2:
            a = a.sum() * n
        return a

    @torch.compiler.disable
    def note(log):
        log.append(1)
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for n in (0, 1, 2, 3, 4, 5, 3):
        assert torch.equal(compiled(torch.ones(4), n), fn(torch.ones(4), n))


def count(fn, *args, calls=3):
    """Graphs that a backend gets under fullgraph; results are eager's."""
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for _ in range(calls):
        assert torch.equal(compiled(*args), fn(*args))
    return len(seen)


def test_generators_take_and_give():
    def running(x):
        total = x
        while True:
            total = total + (yield total)

    def fn(x, n):
        it = running(x)
        first = next(it) * 2
        second = it.send(n)
        third = it.send(first)
        it.close()
        return first + second + third
    assert count(fn, torch.arange(4.0), 3) == 1


def test_values_are_sent_through_a_generator_to_another():
    def inner(x):
        a = yield x
        b = yield a + x
        return a * b

    def outer(x):
        got = yield from inner(x)
        yield got + 1

    def fn(x, n):
        it = outer(x)
        next(it)
        return it.send(n) + it.send(x)
    compiled = kintsugi.compile(fn, backend="eager")
    for n in (2, 2, 3, 4, 2):
        assert torch.equal(compiled(torch.arange(4.0), n), fn(torch.arange(4.0), n))


def test_members_of_flags():
    class Flag(enum.IntFlag):
        A = 1
        B = 2
        C = 4

    def fn(x, flags):
        y = x + 1
        if Flag.A in flags:
            y = y * 2
        return y - 1 if Flag.C not in flags else y
    assert count(fn, torch.arange(4.0), Flag.A | Flag.B) == 1
    compiled = kintsugi.compile(fn, backend="eager", fullgraph=True)
    for flags in (Flag.A, Flag.A, Flag.B | Flag.C, Flag.A | Flag.C, Flag.B, Flag.A):
        assert torch.equal(compiled(torch.ones(3), flags), fn(torch.ones(3), flags))
