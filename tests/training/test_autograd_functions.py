"""An autograd.Function of the program is part of the graph, with its own gradients, where its code only computes; else it divides the graph, and torch calls it."""
import pytest
import torch
from launches import kintsugi
from torch.autograd.function import once_differentiable

WEIGHT = torch.nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(7)) * 0.6)
SCALE = 2.0


def third(g):
    return g * 3


def fifth(g):
    return g * 5


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5 * (1 + torch.tanh(0.8 * x * (1 + 0.045 * x * x)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.8 * x * (1 + 0.045 * x * x))
        return (0.5 * x * (1 - t * t) * (0.8 + 0.108 * x * x) + 0.5 * (1 + t)) * g


class Rounded(torch.autograd.Function):
    """Straight through: its gradient is not that of its operators."""

    @staticmethod
    def forward(ctx, x, bits):
        return torch.round(x * 2**bits) / 2**bits

    @staticmethod
    def backward(ctx, g):
        return g, None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.by, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * SCALE


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y.sigmoid(), x.detach().sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        s = y.sigmoid()
        return (g * s if ctx.needs_input_grad[0] else None), (g * x * s * (1 - s) if ctx.needs_input_grad[1] else None)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.clamp_(min=0)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


class WritesToItsOwn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x - x.mean(-1, keepdim=True)
        y.div_(y.std(-1, keepdim=True) + 1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g = g.clone()
        g[y < 0] = 0
        return g


class RowByRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return torch.stack([x[i] * (i + 1) for i in range(ctx.n)])

    @staticmethod
    def backward(ctx, g):
        out = g.new_zeros(g.shape)
        for i in range(ctx.n):
            out[i] += g[i] * (i + 1)
        return out


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return third(g)


class ByHelper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return third(g)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.rand_like(x)

    @staticmethod
    def backward(ctx, g):
        return g * torch.rand_like(g)


def within(function, *more):
    def fn(x):
        y = function.apply((x @ WEIGHT) * 1.5, *more)
        y = y[0] + y[1] if isinstance(y, tuple) else y
        return (torch.tanh(y) + y).sin()
    fn.__name__ = function.__name__
    return fn


def with_two(x):
    y = x @ WEIGHT
    return WithSetup.apply(y, Same.apply(y) * 2)[0].sin()


def again_and_again(x):
    for _ in range(4):
        x = Gelu.apply(x @ WEIGHT)
    return x


WHOLE = [within(Gelu), within(Rounded, 3), within(Reversed, 0.3), within(Same), within(Dirty), within(WritesToItsOwn), within(RowByRow), within(Once),
         within(ByHelper), with_two, again_and_again]
DIVIDED = [within(Noisy)]  # it draws random numbers when torch goes back


def outcome(fn, x):
    x, WEIGHT.grad = x.clone().requires_grad_(), None
    torch.manual_seed(3)
    result = fn(x)
    (result * (torch.arange(result.numel()) % 5).reshape(result.shape)).sum().backward()
    return [result.detach().clone(), x.grad, WEIGHT.grad]


def same(fn, compiled, x):
    for a, b in zip(outcome(fn, x), outcome(compiled, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", WHOLE + DIVIDED, ids=lambda fn: fn.__name__)
def test_part_of_the_graph(fn):
    compiled = kintsugi.compile(fn)
    for _ in range(5):
        same(fn, compiled, torch.randn(7, 6))
    rows = kintsugi.stats(compiled)["kernels"]
    assert rows and all(row["compiled"] and row["parts"] == (1 if fn in WHOLE else 2) for row in rows), rows


@pytest.mark.parametrize("fn", WHOLE + DIVIDED, ids=lambda fn: fn.__name__)
def test_going_back_twice(fn):
    def gradients(fn, x):
        torch.manual_seed(3)
        y = fn(x)
        try:
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True, retain_graph=True)
            return [g.detach(), *torch.autograd.grad(y.sum(), x, retain_graph=True), *torch.autograd.grad(g.square().sum() + y.sum(), x)]
        except RuntimeError as error:
            return str(error)

    compiled = kintsugi.compile(fn)
    for _ in range(4):
        x = torch.randn(7, 6, requires_grad=True)
        wanted, found = gradients(fn, x), gradients(compiled, x)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


# -- views ------------------------------------------------------------------------------------------------------------------------------


def of_the_input(x):
    return Reversed.apply(x, 0.3)


def of_a_view_of_the_input(x):
    return Reversed.apply(x.t()[1:], 0.3).t()


def beside_its_input(x):
    y = x @ WEIGHT
    return Reversed.apply(y, 0.3), y


def beside_another_view(x):
    y = (x @ WEIGHT).transpose(0, 1)
    return y[1:], Reversed.apply(y, 0.3)[:2]


def two_views_of_it(x):
    y = Reversed.apply(x @ WEIGHT, 0.3)
    return y[1:], y.transpose(0, 1)


def alone(x):
    return Reversed.apply(x @ WEIGHT, 0.3)


def written(x):
    return Dirty.apply(x * 1) * 2, Dirty.apply(x @ WEIGHT)


def written_beside_a_view(x):
    y = x @ WEIGHT
    z = y.detach()
    return Dirty.apply(y), z


def part_behind(x):
    y = Reversed.apply(x @ WEIGHT, 0.3)
    torch._dynamo.graph_break()
    return y.sin()


@pytest.mark.parametrize("fn", [of_the_input, of_a_view_of_the_input, beside_its_input, beside_another_view, two_views_of_it, alone, written, written_beside_a_view, part_behind],
                         ids=lambda fn: fn.__name__)
def test_views_that_leave_the_graph(fn):
    """Torch derives views of the same memory from one another, and must not leave out a function between them."""

    def run(fn, x):
        leaf, WEIGHT.grad = x.clone().requires_grad_(), None
        results = fn(leaf)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * (torch.arange(r.numel()) % 5).reshape(r.shape)).sum() for r in results).backward()
        return [*(r.detach().clone() for r in results), leaf.grad, WEIGHT.grad], [r.requires_grad for r in results]

    compiled = kintsugi.compile(fn)
    for _ in range(5):
        x = torch.randn(6, 6)
        (wanted, requires), (found, asks) = run(fn, x), run(compiled, x)
        assert asks == requires
        for a, b in zip(found, wanted, strict=True):
            assert a is b is None or torch.allclose(a, b, rtol=1e-4, atol=1e-4)


# -- what changes --------------------------------------------------------------------------------------------------------------------


def replaced_helper(monkeypatch):
    monkeypatch.setitem(globals(), "third", fifth)


def replaced_number(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 7.0)


def replaced_backward(monkeypatch):
    monkeypatch.setattr(ByHelper, "backward", staticmethod(lambda ctx, g: g * 9))
    monkeypatch.setattr(Same, "backward", staticmethod(lambda ctx, g: g * 9))


def replaced_code(monkeypatch):
    monkeypatch.setattr(third, "__code__", fifth.__code__)


@pytest.mark.parametrize("change", [replaced_helper, replaced_number, replaced_backward, replaced_code], ids=lambda f: f.__name__)
@pytest.mark.parametrize("between", [False, True], ids=["before", "between"])
def test_what_backward_uses_is_another(change, between, monkeypatch):
    """Torch finds what is there when it goes back, also if the forward part ran before it was replaced."""

    def fn(x):
        return Same.apply(ByHelper.apply(x @ WEIGHT)).sin()

    def outcomes(fn, x):
        result = []
        for i in range(8):
            with monkeypatch.context() as patch:
                leaf = x.clone().requires_grad_()
                if i == 4 and not between:
                    change(patch)
                y = fn(leaf).sum()
                if i == 4 and between:
                    change(patch)
                y.backward()
                result.append(leaf.grad)
        return result

    x = torch.randn(7, 6)
    for a, b in zip(outcomes(fn, x), outcomes(kintsugi.compile(fn), x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


# -- what stand-ins cannot tell ------------------------------------------------------------------------------------------------------

ASKS = {
    "class": "isinstance(x, torch.nn.Parameter)",
    "exact class": "type(x) is torch.nn.Parameter",
    "gradient": "x.grad is not None",
    "attribute": "hasattr(x, 'scale')",
    "found attribute": "getattr(x, 'scale', None)",
    "history": "x.grad_fn is None",
    "leaf": "x.is_leaf",
    "version": "x._version > 0",
    "data": "x.sum() > 0",
    "number": "x.sum().item() > 0",
}


@pytest.mark.parametrize("question", ASKS)
def test_questions_about_tensors(question):
    space = {"torch": torch}
    exec(f"""
class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2 if {ASKS[question]} else x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 5

def fn(x):
    return Asks.apply(x).sin()
""", space)
    compiled = kintsugi.compile(space["fn"])
    for i in range(8):
        x = torch.nn.Parameter(torch.randn(5, 5)) if i % 2 else torch.randn(5, 5).requires_grad_()
        if i % 3 == 0:
            x.scale = 1
        if i > 3:
            x.grad = torch.zeros(5, 5)
        results = []
        for run in (space["fn"], compiled):
            y = run(x)
            results += [y, *torch.autograd.grad(y.sum(), x)]
        torch.testing.assert_close(results[:2], results[2:])


def test_what_is_saved_was_written_to():
    def fn(x):
        return Gelu.apply(x).sin()

    compiled = kintsugi.compile(fn)
    messages = []
    for run in (fn, *[compiled] * 4):
        x = torch.randn(5, 5).requires_grad_()
        y = run(x).sum()
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as raised:
            y.backward()
        messages.append(str(raised.value).split("which is")[0])
    assert len(set(messages)) == 1


def test_a_backward_that_raises():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.view(3, 3)

    def fn(x):
        return Raises.apply(x @ WEIGHT).sin()

    compiled = kintsugi.compile(fn)
    for _ in range(4):
        y = compiled(torch.randn(7, 6, requires_grad=True)).sum()
        with pytest.raises(RuntimeError, match=r"shape '\[3, 3\]' is invalid"):
            y.backward()


def test_a_list_that_it_is_handed_is_the_programs():
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, seen):
            seen.append(x.shape[0])
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    seen = []

    def fn(x):
        return Keeps.apply(x @ WEIGHT, seen).sin()

    compiled = kintsugi.compile(fn)
    for i in range(5):
        compiled(torch.randn(7, 6, requires_grad=True)).sum().backward()
        assert seen == [7] * (i + 1)


def test_a_step_that_torch_cannot_go_back_through_stays_by_itself():
    """The others are compiled."""

    class Decides(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 if x.sum() > 0 else g * 3

    def fn(x):
        return (Decides.apply((x @ WEIGHT).tanh() + 2) + 1).sin()

    compiled = kintsugi.compile(fn)
    for _ in range(6):
        same(fn, compiled, torch.randn(7, 6))
    rows = kintsugi.stats(compiled)["kernels"]
    assert any(row["compiled"] for row in rows) and {row["parts"] for row in rows} == {2}, rows
