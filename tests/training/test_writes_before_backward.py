"""Writes between forward and backward: where eager raises that a variable has been modified by an inplace operation, so does compiled code, and nowhere else."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi, runs

GRU, LSTM = torch.nn.GRU(5, 7, batch_first=True), torch.nn.LSTM(5, 7)


def layer(module):
    names = [name for name, _ in module.named_parameters()]
    return lambda x, *own: torch.func.functional_call(module, dict(zip(names, own, strict=True)), (x,))


def of(*shape):
    return torch.rand(*shape) + 0.1


def both(x, w, b, v):
    h = F.relu(F.linear(x, w, b))
    return h, F.linear(h, v)


# Program, tensors; those that are whole numbers or are in NO_GRAD want no gradients.
PROGRAMS = {
    "sigmoid of a product": (lambda x, w: (x * w).sigmoid(), of(8, 6), of(8, 6)),
    "relu of a product": (lambda x, w: F.relu(x * w), of(8, 6), of(8, 6)),
    "sin times": (lambda x, w: x.sin() * w, of(8, 6), of(8, 6)),
    "sign times": (lambda x, w: x.sign() * w, of(8, 6), of(8, 6)),
    "logsumexp": (lambda x, w: torch.logsumexp(x * w, 1), of(8, 6), of(6)),
    "a view": (lambda x: x.view(-1).sin(), of(8, 6)),
    "what needs no values": (lambda x, w: (x + w) * 2, of(8, 6), of(6)),
    "linear": (lambda x, w, b: F.linear(x, w, b) * 2, of(8, 6), of(5, 6), of(5)),
    "linear and relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), of(8, 6), of(5, 6), of(5)),
    "two results": (lambda x: (x.exp(), x.sin()), of(8, 6)),
    "a result of another": (both, of(8, 6), of(5, 6), of(5), of(4, 5)),
    "attention with a mask": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), of(2, 2, 5, 8), of(2, 2, 5, 8), of(2, 2, 5, 8), of(5, 5)),
    "batch norm": (lambda x, w, m, v: F.batch_norm(x * 2, m, v, w, training=True) * 2, of(8, 6), of(6), of(6), of(6)),
    "batch norm in eval": (lambda x, w, m, v: F.batch_norm(x, m, v, w) * w, of(8, 6), of(6), of(6), of(6)),
    "cross entropy": (lambda x, t: F.cross_entropy(x * 2, t) * 2, of(8, 6), torch.randint(0, 6, (8,))),
    "embedding": (lambda i, w: F.embedding(i, w).tanh(), torch.randint(0, 9, (8, 3)), of(9, 5)),
    "gru": (layer(GRU), of(2, 6, 5), *(p.detach() for p in GRU.parameters())),
    "lstm": (layer(LSTM), of(6, 2, 5), *(p.detach() for p in LSTM.parameters())),
}
NO_GRAD = {"attention with a mask": [3], "batch norm": [2, 3], "batch norm in eval": [2, 3]}


def flat(out):
    return [out] if isinstance(out, torch.Tensor) else [t for one in out for t in flat(one)]


@torch.no_grad()
def write(t):
    t.add_(1) if t.is_floating_point() else t.zero_()


def attempt(call, name, target, from_result=None):
    """The gradients, or what was raised."""
    leaves = [t.clone().requires_grad_(t.is_floating_point() and i not in NO_GRAD.get(name, [])) for i, t in enumerate(PROGRAMS[name][1:])]
    outs = flat(call(*leaves))
    sums = [out.sum() for out in outs]
    kind, which = target
    write(leaves[which] if kind == "input" else outs[which] if kind == "result" else outs[which].detach())
    try:
        torch.autograd.backward(sums if from_result is None else sums[from_result])
    except RuntimeError as error:
        assert "Hint: enable anomaly detection" in str(error)
        return str(error).split(":")[0]
    return [t.grad for t in leaves]


def same(a, b):
    return a == b if isinstance(a, str) or isinstance(b, str) else all((x is None) == (y is None) and (x is None or torch.allclose(x, y, 1e-3, 1e-5)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_input_and_result(name):
    fn, *tensors = PROGRAMS[name]
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        attempt(compiled, name, ("input", 0))
        kintsugi.wait_for_kernels()
    before, raised = runs(compiled), 0
    n = len(flat(fn(*(t.clone() for t in tensors))))
    targets = [("input", i) for i in range(len(tensors))] + [(kind, i) for i in range(n) for kind in ("result", "alias")]
    for target in targets:
        for result in [None, *range(n)] if n > 1 else [None]:
            expected, got = attempt(fn, name, target, result), attempt(compiled, name, target, result)
            assert same(expected, got), (target, result, expected, got)
            raised += isinstance(expected, str)
    assert before + runs(compiled)   # a graph may be cut, and counts anew
    assert raised or name == "what needs no values"


def test_only_what_the_engine_passes_counts():
    """Gradients of a layer's bias alone: the node that saves the layer's input does not run."""
    fn = lambda x, w, b: (x * w).sigmoid() * b + (x * b).exp()  # noqa: E731
    for wanted in range(3):
        compiled, said = kintsugi.compile(fn), []
        for call in (fn, compiled, compiled, compiled):
            leaves = [of(8, 6).requires_grad_(), of(8, 6).requires_grad_(), of(6).requires_grad_()]
            y = call(*leaves)
            kintsugi.wait_for_kernels()
            write(y)
            try:
                torch.autograd.grad(y.sum(), leaves[wanted])
                said.append("")
            except RuntimeError as error:
                said.append(str(error).split(":")[0])
        assert len(set(said)) == 1, (wanted, said)


def test_a_step_of_an_optimizer_between():
    """The classical mistake: the loss of the generator goes back through a discriminator that has moved on."""
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Softplus(), torch.nn.Linear(6, 1), torch.nn.Sigmoid())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    forward = kintsugi.compile(lambda x: net(x).mean())
    for _ in range(5):
        first, second = forward(of(8, 6)), forward(of(8, 6))
        kintsugi.wait_for_kernels()
        first.backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation: .* is at version"):
            second.backward()
    assert runs(forward)


def test_the_memory_of_a_result_is_not_kept():
    """... only the counter of its writes."""
    fn = lambda x, w: torch.exp(x * w)  # noqa: E731
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        x, w = of(64, 64).requires_grad_(), of(64)
        y = compiled(x, w)
        kintsugi.wait_for_kernels()
    assert runs(compiled)
    watched = y.grad_fn._kintsugi[1][4]
    assert all(t.numel() == 0 or t is x for t, *_ in watched)
    write(y)
    with pytest.raises(RuntimeError, match=r"\[torch.FloatTensor \[64, 64\]\], which is output 0 of CompiledFunction, is at version 1; expected version 0"):
        y.sum().backward()


def test_sizes_that_differ():
    """... where a plan for further sizes is a copy."""
    fn = lambda x, w: torch.exp(x * w)  # noqa: E731
    compiled = kintsugi.compile(fn)
    for rows in (8, 9, 10, 11, 12, 13, 14, 15):
        y = compiled(of(rows, 64), of(64).requires_grad_())
        kintsugi.wait_for_kernels()
        write(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert runs(compiled) > 3


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y.sum(), x + 1

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return None, (g * x).sum() * torch.ones_like(y)


def written_in_graph(x, z):
    v = z / (1 + x.abs())
    z.add_(F.dropout(x, 0.3))
    return v


def written_behind_graph(x, z):
    v, _ = Both.apply(z, x)
    z.normal_()
    return v


@pytest.mark.parametrize("step", [written_in_graph, written_behind_graph], ids=lambda f: f.__name__)
def test_one_of_several_results_whose_input_is_written_to_in_the_call(step):
    """Gradients come for the result that needs what was written to: going back once more from that result alone does not need it, eager does."""
    def tell(function):
        torch.manual_seed(1)
        x = of(8, 6).requires_grad_()
        v = function(x, of(8, 6))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            v.sum().backward()

    compiled = kintsugi.compile(step)
    for _ in range(5):
        tell(step)
        tell(compiled)


@pytest.mark.parametrize("which", ["argument", "parameter"])
def test_leaves_that_a_checkpointed_region_reads(which):
    """Eager's checkpoint keeps its arguments, leaves among them, and no parameters."""
    weight = of(6, 6).requires_grad_()

    def region(x):
        return (x @ weight).tanh()

    def step(x):
        return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False).sum()

    def tell(function):
        torch.manual_seed(1)
        x = of(8, 6).requires_grad_()
        loss = function(x)
        write(x if which == "argument" else weight)
        try:
            loss.backward()
        except RuntimeError as e:
            return str(e)[:80]
        return None

    compiled = kintsugi.compile(step)
    for _ in range(7):
        assert tell(compiled) == tell(step)
