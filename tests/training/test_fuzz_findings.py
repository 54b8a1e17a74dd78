"""What random programs that train (tests/diff/fuzz_training.py) have found, reduced."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi
from test_nodes import compiled_pair
from torch import nn


def test_a_loop_over_enumerated_parameters_is_recorded_behind_an_exit():
    """The region of an enumerate object over a generator is undone where neither of them is there any more."""
    torch.manual_seed(0)
    net, state = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), {}

    def step(x):
        loss = net(x).sum()
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                state.setdefault(k, p.detach().clone()).lerp_(p, 0.1)
        return loss.detach()

    compiled = kintsugi.compile(step, backend="eager")
    for rows in (6, 6, 6, 4, 6):
        x = torch.randn(rows, 3)
        assert torch.equal(compiled(x), net(x).sum())
    assert len(state) == 4


def test_two_results_of_one_graph_are_gone_back_from_one_after_the_other():
    """Eager's graphs are two, and the first backward frees nothing of the second."""
    w = torch.randn(6, 6, requires_grad=True)

    def step(x):
        first, second = F.dropout(x @ w, 0.5).tanh().sum(), (x @ w).sigmoid().sum()
        first.backward()
        second.backward()
        return first.detach()

    grads = []
    for fn in (step, kintsugi.compile(step)):
        torch.manual_seed(1)
        w.grad = None
        for _ in range(4):
            fn(torch.randn(5, 6))
        grads.append(w.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)


def test_results_that_share_what_is_saved_are_gone_back_from_once():
    w = torch.randn(6, 6, requires_grad=True)

    def fn(x):
        h = (x @ w).tanh()
        return h.sum(), h.square().sum()

    compiled = compiled_pair(fn, torch.randn(5, 6))
    for f in (fn, compiled):
        a, b = f(torch.randn(5, 6))
        a.backward()
        with pytest.raises(RuntimeError, match="second time"):
            b.backward()


def test_one_result_is_gone_back_from_after_a_write_that_only_the_other_minds():
    """A step of the discriminator between its loss and the generator's."""
    one, two = torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    fn = lambda x: ((x @ one).tanh(), (x.detach() @ two).sigmoid().square().sum())  # noqa: E731
    compiled = compiled_pair(fn, torch.randn(5, 6, requires_grad=True))
    x = torch.randn(5, 6, requires_grad=True)
    grads = []
    for f in (fn, compiled):
        fake, loss = f(x)
        loss.backward()
        with torch.no_grad():
            two.mul_(1)
        grads.append(torch.autograd.grad(fake.sum(), one)[0])
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)


def test_hooks_of_saved_tensors_are_not_called_while_a_graph_is_captured():
    w, seen = torch.randn(6, requires_grad=True), []

    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(type(t)) or t, lambda t: t):
            return (x * w).tanh() * x

    compiled = kintsugi.compile(fn)
    counts = []
    for f in (fn, fn, fn, compiled, compiled, compiled):
        seen.clear()
        f(torch.randn(6)).sum().backward()
        counts.append(list(seen))
    assert counts[:3] == counts[3:] and len(counts[0]) > 0


def test_what_gets_no_gradient_is_no_input_of_the_node():
    """Gradients for it alone lead nowhere: nothing on the way to it runs."""
    w, v = torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)
    compiled = compiled_pair(lambda x: (x * w * v.detach()).tanh(), torch.randn(6))
    ran = []
    y = compiled(torch.randn(6)) * 1
    y.grad_fn.register_hook(lambda *a: ran.append(1))
    assert torch.autograd.grad(y.sum(), v, allow_unused=True) == (None,) and not ran


def test_hooks_of_inputs_are_not_called_where_nothing_comes_back():
    a, b, seen = torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True), []
    compiled = compiled_pair(lambda x: ((x * a).tanh().sum(), (x * b).sin().sum()), torch.randn(6))
    b.register_hook(lambda g: seen.append(g is None))
    for result in (0, 1):
        compiled(torch.randn(6))[result].backward()
    assert seen == [False]


@pytest.mark.parametrize("same_branch", [True, False])
def test_backward_of_a_later_forward_leaves_an_earlier_one_alone(same_branch):
    """A decision on data parts each forward; what lies between two decisions is one graph of two forwards, and one backward goes by nodes of the other."""
    torch.manual_seed(0)
    first, second, third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
    parameters = [*first.parameters(), *second.parameters(), *third.parameters()]

    def forward(x):
        h = second(first(x).tanh()).tanh()
        h = h * 0.5 if h.detach().sum() > 0 else h + 0.5
        return third(h.tanh()).square().mean()

    def step(x, y):
        loss = forward(x)
        forward(y).backward()
        loss.backward()
        return loss.detach()

    with torch.no_grad():
        second.bias.fill_(3.0)
    grads = []
    for fn in (step, kintsugi.compile(step)):
        torch.manual_seed(1)
        for p in parameters:
            p.grad = None
        for i in range(8):
            x = torch.rand(5, 6)
            fn(x, x + 0.1 if same_branch or i % 2 else -9 * x)
        grads.append([p.grad for p in parameters])
    for expected, found in zip(*grads):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("scale", [False, True], ids=["added", "multiplied"])
def test_a_buffer_is_written_between_forward_and_a_backward_that_is_differentiated(scale):
    """Eager saves it only where it multiplies; then it raises."""
    w, level = torch.randn(6, 6, requires_grad=True), torch.ones(6)

    def fn(x):
        h = (x @ w).sin()
        return (h * level if scale else h + level).square().sum()

    compiled = compiled_pair(fn, torch.randn(5, 6))
    seen = []
    for f in (fn, compiled):
        level.fill_(1)
        torch.manual_seed(1)
        loss = f(torch.randn(5, 6))
        level.fill_(7)
        try:
            g, = torch.autograd.grad(loss, w, create_graph=True)
            g.square().sum().backward()
            seen.append(w.grad)
        except RuntimeError as error:
            seen.append("modified by an inplace operation" in str(error))
        w.grad = None
    assert scale is isinstance(seen[0], bool)
    if scale:
        assert seen == [True, True]
    else:
        torch.testing.assert_close(seen[0], seen[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("take", [lambda x: x.unbind(0), lambda x: x.split(2), lambda x: (x[1],), lambda x: (x.transpose(0, 1),), lambda x: x.chunk(2, 2)],
                         ids=["unbind", "split", "select", "transpose", "chunk"])
@pytest.mark.parametrize("way", ["expanded", "windows", "dense"])
def test_views_of_a_leaf_whose_elements_share_memory(take, way):
    """Torch goes back through a view by strides as if elements at one place were one; the program's own views know each apart."""
    def fn(x):
        return (*take(x), x.sin())

    def make():
        torch.manual_seed(1)
        x = {"expanded": lambda: torch.randn(4, 1, 1).expand(4, 3, 2), "windows": lambda: torch.randn(4, 9).unfold(1, 2, 1)[:, :3], "dense": lambda: torch.randn(4, 3, 2)}[way]()
        return x.requires_grad_()

    compiled = kintsugi.compile(fn)
    for _ in range(4):
        grads = []
        for f in (fn, compiled):
            x = make()
            sum((part * (torch.arange(part.numel()).reshape(part.shape) % 5 * 0.3)).sum() for part in f(x)).backward()
            grads.append(x.grad)
        torch.testing.assert_close(grads[0], grads[1])
