"""The node of autograd that a compiled graph is: what eager's nodes do, it does."""
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from launches import engine, kintsugi, runs, versions
from torch import nn


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))


def compiled_pair(fn, *args, times=3):
    """Called until it is launched; the compiled function."""
    compiled = kintsugi.compile(fn)
    for _ in range(times):
        compiled(*args)
    assert runs(compiled) > 0, [v["reason"] for v in versions(compiled)]
    return compiled


def close(a, b):
    """Sums in another order: where terms cancel, the last digits are those of the largest elements."""
    if a is None or b is None:
        assert a is b
    else:
        torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-6 * max(1.0, float(b.abs().max())))


def gradients(model):
    return [p.grad for p in model.parameters()]


def test_gradients_accumulate():
    model, x = net(), torch.randn(7, 12)
    other = copy.deepcopy(model)
    compiled = compiled_pair(lambda x: model(x).square().mean(), x)
    for _ in range(3):
        compiled(x).backward()
        other(x).square().mean().backward()
    for a, b in zip(gradients(model), gradients(other), strict=True):
        close(a, b)


def test_one_node_stands_for_the_graph():
    model, x = net(), torch.randn(7, 12)
    y = compiled_pair(model, x)(x)
    assert y.requires_grad and not y.is_leaf
    assert y.grad_fn.name() == "CompiledFunctionBackward"


def test_backward_twice_raises_as_eager_does():
    model, x = net(), torch.randn(7, 12)
    loss = compiled_pair(lambda x: model(x).sum(), x)(x)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_retain_graph():
    model, x = net(), torch.randn(7, 12)
    loss = compiled_pair(lambda x: model(x).sum(), x)(x)
    loss.backward(retain_graph=True)
    first = [g.clone() for g in gradients(model)]
    loss.backward()
    for a, b in zip(first, gradients(model), strict=True):
        close(a * 2, b)


def test_a_weight_that_was_written_to_is_noticed():
    model, x = net(), torch.randn(7, 12, requires_grad=True)
    loss = compiled_pair(lambda x: model(x).sum(), x)(x)
    with torch.no_grad():
        model[3].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_input_that_eager_does_not_save_may_be_written_to():
    fn = lambda x, w: torch.exp(x * 2 + w)  # noqa: E731
    x, w = torch.randn(40, 40), torch.randn(40, requires_grad=True)
    y = compiled_pair(fn, x, w)(x, w)
    x.zero_()
    y.sum().backward()
    close(w.grad, y.detach().sum(0))


def test_double_backward():
    model, x = net(), torch.randn(7, 12, requires_grad=True)
    other, z = copy.deepcopy(model), x.detach().clone().requires_grad_()
    compiled = compiled_pair(lambda x: model(x).square().sum(), x)
    for fn, m, v in ((compiled, model, x), (lambda x: other(x).square().sum(), other, z)):
        m.zero_grad()
        (g,) = torch.autograd.grad(fn(v), v, create_graph=True)
        g.square().sum().backward()
    close(x.grad, z.grad)
    for a, b in zip(gradients(model), gradients(other), strict=True):
        close(a, b)


def test_inputs_that_depend_on_each_other_are_not_counted_twice():
    w = torch.randn(6, 6, requires_grad=True)
    fn = lambda a, b: (a.tanh() * b).sum()  # noqa: E731
    compiled = compiled_pair(fn, w, w * 2)
    for create in (False, True):
        (a,) = torch.autograd.grad(compiled(w, w * 2), w, create_graph=create)
        (b,) = torch.autograd.grad(fn(w, w * 2), w)
        close(a.detach(), b)


def test_results_without_gradient():
    fn = lambda x, w: ((x * w).sum(1), (x > 0).sum(1), (x * w).detach().exp())  # noqa: E731
    x, w = torch.randn(5, 8), torch.randn(8, requires_grad=True)
    given = compiled_pair(fn, x, w)(x, w)
    assert [g.requires_grad for g in given] == [True, False, False]
    given[0].sum().backward()
    close(w.grad, x.sum(0))


def test_results_that_are_views():
    fn = lambda x, w: (lambda y: (y, y.view(-1), y[1:3], x.view(-1)))(x * w)  # noqa: E731
    for part in range(3):
        x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8, requires_grad=True)
        given, wanted = compiled_pair(fn, x, w)(x, w), fn(x, w)
        for a, b in zip(given, wanted, strict=True):
            assert a.shape == b.shape and a.stride() == b.stride() and a.requires_grad == b.requires_grad
        assert given[1].data_ptr() == given[0].data_ptr()
        a = torch.autograd.grad((given[part].square().sum() + given[3].sum()), (x, w))
        b = torch.autograd.grad((wanted[part].square().sum() + wanted[3].sum()), (x, w))
        close(a[0], b[0])
        close(a[1], b[1])


def test_some_results_are_not_gone_back_from():
    fn = lambda x, a, b: ((x * a).exp(), (x * b).sin())  # noqa: E731
    x, a, b = torch.randn(9), torch.randn(9, requires_grad=True), torch.randn(9, requires_grad=True)
    compiled = compiled_pair(fn, x, a, b)
    compiled(x, a, b)[1].sum().backward()
    assert a.grad is None
    close(b.grad, x * (x * b.detach()).cos())


def test_tangents_of_any_layout():
    fn = lambda x, w: (x @ w).relu()  # noqa: E731
    x, w = torch.randn(6, 4), torch.randn(4, 8, requires_grad=True)
    compiled = compiled_pair(fn, x, w)
    for tangent in (torch.ones(1, 1).expand(6, 8), torch.randn(8, 6).t(), torch.randn(6, 16)[:, ::2]):
        close(torch.autograd.grad(compiled(x, w), w, tangent)[0], torch.autograd.grad(fn(x, w), w, tangent)[0])


def test_hooks_of_tensors_and_parameters():
    model, x = net(), torch.randn(7, 12)
    compiled = compiled_pair(model, x)
    seen = []
    handles = [model[0].weight.register_hook(lambda g: seen.append("weight") or g * 2),
               model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))]
    y = compiled(x)
    y.register_hook(lambda g: seen.append("y"))
    y.sum().backward()
    doubled = model[0].weight.grad.clone()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    model(x).sum().backward()
    close(doubled, model[0].weight.grad * 2)
    assert seen == ["y", "weight", "accumulated"]


def test_what_is_differentiated_again_each_time_runs_by_steps():
    model, x = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(7, 12)
    compiled = kintsugi.compile(lambda x: model(x).square().sum())

    def penalised(fn):
        model.zero_grad()
        loss = fn(x)
        norms = [g.norm() for g in torch.autograd.grad(loss, list(model.parameters()), create_graph=True)]
        (loss + sum(norms)).backward()
        return gradients(model)

    expected = penalised(lambda x: model(x).square().sum())
    for _ in range(24):
        for a, b in zip(penalised(compiled), expected):
            close(a, b)
    reasons = [k["reason"] for k in kintsugi.stats(compiled)["kernels"]]
    assert any("differentiated again" in reason for reason in reasons), reasons


def test_now_and_then_differentiated_again_stays_compiled():
    model, x = net(), torch.randn(7, 12)
    compiled = kintsugi.compile(lambda x: model(x).square().sum())
    for i in range(40):
        torch.autograd.grad(compiled(x), list(model.parameters()), create_graph=i % 4 == 0)
    assert compiled(x).grad_fn.name() == "CompiledFunctionBackward"


def test_hooks_of_parameters_are_called_in_the_order_of_eager():
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(12, 12), nn.LayerNorm(12), nn.GELU()) for _ in range(4)]), torch.randn(7, 12)
    seen = []
    compiled = compiled_pair(lambda x: (model(x) + model[0][0].weight.sum()).sum(), x)
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: seen.append(name))
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name + " accumulated"))
    (model(x) + model[0][0].weight.sum()).sum().backward()
    eager = list(seen)
    seen.clear()
    expected = gradients(model)
    model.zero_grad()
    loss = compiled(x)
    assert loss.grad_fn.name() == "CompiledFunctionBackward"
    loss.backward()
    assert seen == eager and len(eager) == 2 * len(expected)
    for a, b in zip(gradients(model), expected):
        close(a, b)


def test_hooks_of_saved_tensors_see_what_eager_saves():
    model, x = net(), torch.randn(7, 12)
    compiled = compiled_pair(lambda x: model(x).sum(), x)
    counts = []
    for fn in (compiled, lambda x: model(x).sum()):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, packed=packed: packed.append(t.shape) or t, lambda t: t):
            fn(x).backward()
        counts.append(packed)
    assert counts[0] == counts[1]


def test_checkpoint():
    model, x = net(), torch.randn(7, 12, requires_grad=True)
    compiled = compiled_pair(model, x)
    for reentrant in (False, True):
        a = torch.utils.checkpoint.checkpoint(compiled, x, use_reentrant=reentrant)
        (ga,) = torch.autograd.grad(a.sum(), x) if not reentrant else (None,)
        if reentrant:
            a.sum().backward()
            ga, x.grad = x.grad, None
        close(ga, torch.autograd.grad(model(x).sum(), x)[0])


def test_backward_in_another_thread():
    model, x = net(), torch.randn(7, 12)
    loss = compiled_pair(lambda x: model(x).sum(), x)(x)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    for a, b in zip(gradients(model), wanted, strict=True):
        close(a, b)


def test_frozen_parameters_get_none():
    model, x = net(), torch.randn(7, 12)
    model[0].requires_grad_(False)
    compiled = compiled_pair(lambda x: model(x).sum(), x)
    compiled(x).backward()
    assert model[0].weight.grad is None and model[3].weight.grad is not None
    model[0].requires_grad_(True)
    model.zero_grad()
    for _ in range(3):
        compiled(x).backward()
    assert model[0].weight.grad is not None


def test_shared_weights():
    w = torch.randn(8, 8, requires_grad=True)
    fn = lambda x: ((x @ w).tanh() @ w).sum()  # noqa: E731
    x = torch.randn(4, 8)
    close(torch.autograd.grad(compiled_pair(fn, x)(x), w)[0], torch.autograd.grad(fn(x), w)[0])


def test_no_grad_region():
    w = torch.randn(8, requires_grad=True)

    def fn(x):
        with torch.no_grad():
            scale = (x * w).abs().mean()
        return (x * w / scale).sum()

    x = torch.randn(8)
    close(torch.autograd.grad(compiled_pair(fn, x)(x), w)[0], torch.autograd.grad(fn(x), w)[0])


def test_without_gradients_it_is_an_ordinary_launch():
    model, x = net(), torch.randn(7, 12)
    compiled = compiled_pair(model, x)
    with torch.no_grad():
        for _ in range(3):
            y = compiled(x)
    assert not y.requires_grad
    close(y, model(x).detach())


def test_batch_norm_keeps_its_statistics_once_a_step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4, affine=False))
    other, x = copy.deepcopy(model), torch.randn(4, 3, 9, 9)
    compiled = kintsugi.compile(lambda x: model(x).square().mean())
    for _ in range(5):
        a, b = compiled(x), other(x).square().mean()
        close(a.detach(), b.detach())
        a.backward()
        b.backward()
    for (name, p), q in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        close(p, q)
        assert "running" not in name or p._version == q._version
    for a, b in zip(gradients(model), gradients(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert runs(compiled) > 0
    assert [row["parts"] for row in kintsugi.stats(compiled)["kernels"]] == [1]  # a batch norm ends no subgraph


def test_dropout_draws_what_eager_draws():
    model = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5))
    x = torch.randn(7, 12)
    compiled = compiled_pair(model, x)
    for seed in range(3):
        torch.manual_seed(seed)
        a, state = compiled(x), torch.get_rng_state()
        torch.manual_seed(seed)
        b = model(x)
        assert torch.equal(state, torch.get_rng_state())
        assert torch.equal(a == 0, b == 0)
        close(torch.autograd.grad(a.sum(), model[0].weight)[0], torch.autograd.grad(b.sum(), model[0].weight)[0])


def test_dropout_is_the_same_when_differentiated_again():
    w = torch.randn(30, requires_grad=True)
    fn = lambda x: F.dropout(x * w, 0.5).square().sum()  # noqa: E731
    x = torch.randn(30)
    compiled = compiled_pair(fn, x)
    torch.manual_seed(5)
    a = torch.autograd.grad(compiled(x), w, create_graph=True)[0].detach()
    torch.manual_seed(5)
    close(a, torch.autograd.grad(fn(x), w)[0])


def test_an_exception_in_the_middle_leaves_no_trace():
    weight = torch.randn(10, 4, requires_grad=True)
    count = torch.zeros(())

    def fn(i):
        count.add_(1)
        return F.embedding(i, weight).exp().sum()

    good, bad = torch.tensor([1, 2]), torch.tensor([1, 20])
    compiled = compiled_pair(fn, good)
    before = float(count)
    with pytest.raises(IndexError):
        compiled(bad)
    assert float(count) == before + 1  # as in eager
    compiled(good).backward()
    assert weight.grad[1].abs().sum() > 0


def test_autocast():
    model, x = net(), torch.randn(7, 12)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    compiled = compiled_pair(fn, x)
    a = torch.autograd.grad(compiled(x), list(model.parameters()))
    b = torch.autograd.grad(fn(x), list(model.parameters()))
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p, q, rtol=3e-2, atol=3e-2 * float(q.abs().max()) + 1e-6)


def test_a_break_between_forward_and_loss():
    model, x = net(), torch.randn(7, 12)

    def fn(x):
        y = model(x)
        print(end="")
        return y.square().mean()

    compiled = compiled_pair(fn, x)
    close(torch.autograd.grad(compiled(x), model[0].weight)[0], torch.autograd.grad(fn(x), model[0].weight)[0])


def test_the_setting():
    model, x = net(), torch.randn(7, 12)
    with kintsugi.config.patch(training=False):
        compiled = kintsugi.compile(lambda x: model(x).sum())
        for _ in range(4):
            y = compiled(x)
    assert y.grad_fn.name() == "SumBackward0" and runs(compiled) == 0


def test_memory_of_what_is_saved_goes_with_backward():
    import gc
    import weakref

    w = torch.randn(50, 50, requires_grad=True)
    compiled = compiled_pair(lambda x: (x @ w).sin().sum(), torch.randn(50, 50))
    x = torch.randn(50, 50)
    gone = weakref.ref(x)
    loss = compiled(x)
    loss.backward()
    del x
    gc.collect()
    assert gone() is None and loss is not None


def test_a_value_that_keeps_its_gradient():
    """retain_grad inside: nothing in the graph tells of it, so the call stays by itself."""
    torch.manual_seed(3)
    first, second = nn.Sequential(nn.Linear(12, 16), nn.GELU()), nn.Linear(16, 5)

    def fn(x):
        inner = first(x)
        inner.retain_grad()
        return inner, second(inner * 2).sum()

    x = torch.randn(7, 12)
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        (mine, loss), (other, expected) = compiled(x), fn(x)
        loss.backward()
        expected.backward()
        assert mine.retains_grad
        close(mine.grad, other.grad)
    assert runs(compiled) > 0


@pytest.mark.parametrize("back", [0, 1, 2])
def test_hooks_of_results_that_nothing_comes_back_to_are_not_called(back):
    linear = nn.Linear(4, 4)

    def fn(x):
        return linear(x).relu(), x.sin().sum(1), x.exp() * 2

    compiled, seen = kintsugi.compile(fn), []
    for f in (fn, compiled, compiled, compiled, compiled):
        torch.manual_seed(2)
        x, called = torch.randn(3, 4, requires_grad=True), []
        results = f(x)
        for i, result in enumerate(results):
            result.register_hook(lambda g, i=i: called.append((i, g.sum().item())))
            result.retain_grad()
        results[back].square().sum().backward()
        seen.append((called, x.grad, [r.grad for r in results], [r._is_view() for r in results]))
    assert results[0].grad_fn.name() == "CompiledFunctionBackward"
    for other in seen[1:]:
        torch.testing.assert_close(other, seen[0])


def test_writes_to_one_of_several_results_change_no_gradient():
    linear, weight = nn.Linear(5, 5), torch.randn(5, 5)

    def fn(x):
        y = linear(x)
        return y, y.softmax(-1).mm(linear.weight)

    def gradient(f, x, change):
        linear.zero_grad()
        y, z = f(x)
        if change:
            with torch.no_grad():
                y.mul_(2)
            assert y._version == 1
        try:
            (z * weight[:3]).sum().backward()
        except RuntimeError:
            assert change  # what is saved was written to
            return right
        return linear.weight.grad.clone()

    x = torch.randn(3, 5)
    compiled, right = compiled_pair(fn, x), gradient(fn, x, False)
    for change in (False, True, True):
        close(gradient(compiled, x, change), right)


def legacy(model):
    model[1].register_backward_hook(lambda module, given, gone: tuple(g if g is None else g * 0.5 for g in given))


def on_the_node(model):
    model.forward = lambda x: scaled(model[1](model[0](x)), model)


def scaled(y, model):
    y.grad_fn.register_prehook(lambda gone: (gone[0] * 0.25,))
    return model[3](model[2](y))


def everywhere(model):
    model.seen = []
    for module in model:
        module.register_backward_hook(lambda module, given, gone: model.seen.append([type(module).__name__, [None if g is None else g.sum().item() for g in (*given, *gone)]]))


def at_the_end(model):
    model.seen = []
    model.register_backward_hook(lambda module, given, gone: model.seen.append([None if g is None else g.sum().item() for g in (*given, *gone)]))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("change", [legacy, on_the_node, everywhere, at_the_end])
def test_who_does_something_with_the_node_of_an_operation_finds_eagers(change, whole):
    model, other = net(), net()
    change(model)
    change(other)

    def step(model, x):
        model.zero_grad()
        loss = model(x).square().mean()
        if whole:
            loss.backward()
        return loss
    compiled = kintsugi.compile(step)
    for _ in range(5):
        x = torch.randn(7, 12)
        for loss in (compiled(model, x), step(other, x)):
            if not whole:
                loss.backward()
        for a, b in zip(gradients(model), gradients(other), strict=True):
            close(a, b)
    for a, b in zip(getattr(model, "seen", []), getattr(other, "seen", []), strict=True):
        assert str(a).count("None") == str(b).count("None") and a[0] == pytest.approx(b[0], rel=1e-4) if isinstance(a[0], float) else a[0] == b[0]
        close(*(torch.tensor([n for n in (row[1] if isinstance(row[0], str) else row) if n is not None]) for row in (a, b)))


def test_to_ask_for_a_node_keeps_no_graph_from_being_compiled():
    model, x = net(), torch.randn(7, 12)

    def loss(x):
        y = model(x).square().mean()
        assert y.grad_fn is not None
        return y
    assert compiled_pair(loss, x)(x).grad_fn.name() == "CompiledFunctionBackward"


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_an_embedding_are_compiled(mode):
    bag, rows = nn.EmbeddingBag(50, 8, mode=mode), torch.randint(0, 50, (6, 4))
    compiled = kintsugi.compile(lambda rows: bag(rows).tanh().mean())
    for _ in range(3):
        bag.zero_grad()
        loss = compiled(rows)
        loss.backward()
    given = bag.weight.grad.clone()
    assert loss.grad_fn.name() == "CompiledFunctionBackward"
    bag.zero_grad()
    bag(rows).tanh().mean().backward()
    torch.testing.assert_close(given, bag.weight.grad)


@pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "mean"}, {"mode": "sum", "padding_idx": 3}, {"mode": "mean", "padding_idx": 3}, {"mode": "mean", "include_last_offset": True}])
def test_gradients_of_bags_of_any_length(options):
    """Also of empty bags, and of rows that several bags have read; PyTorch's operator has no part in it."""
    bag = nn.EmbeddingBag(12, 8, **options)
    rows, offsets = torch.tensor([3, 5, 3, 11, 0, 3, 5, 5, 2]), torch.tensor([0, 2, 2, 7, 9] if "include_last_offset" in options else [0, 2, 2, 7, 9, 9])
    compiled = kintsugi.compile(lambda rows, offsets: bag(rows, offsets).exp().sum())
    for _ in range(3):
        bag.zero_grad()
        compiled(rows, offsets).backward()
    given = bag.weight.grad.clone()
    bag.zero_grad()
    bag(rows, offsets).exp().sum().backward()
    torch.testing.assert_close(given, bag.weight.grad)
    assert kintsugi.stats(compiled)["kernels"][0]["library_calls"] == 1


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_what_surrounds_an_embedding_with_sparse_gradients_is_compiled(layer):
    embed, first, last = layer(50, 8, sparse=True), nn.Linear(6, 8), nn.Linear(8, 3)
    rows, x = torch.randint(0, 50, (32, 1)), torch.randn(32, 6)

    def loss(rows, x):
        return last(F.silu(embed(rows).view(32, 8) * first(x).tanh().exp())).square().mean()

    def gradients(loss):
        for module in (embed, first, last):
            module.zero_grad()
        loss(rows, x).backward()
        assert embed.weight.grad.is_sparse
        return [embed.weight.grad.to_dense(), *(p.grad for p in (*first.parameters(), *last.parameters()))]
    compiled, wanted = kintsugi.compile(loss), gradients(loss)
    for _ in range(4):
        for mine, theirs in zip(gradients(compiled), wanted, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert any(part["compiled"] for part in kintsugi.stats(compiled)["kernels"])
    assert any(event["event"] == "fallback" and "gradients of an embedding are sparse" in event["reason"] for event in engine.events())


@pytest.mark.parametrize("way", ["linear", "product"])
def test_other_memory_for_a_weight_between_forward_and_backward(way):
    """`weight.data = ...`, as where weights are binarised for the forward. What eager's nodes have saved is the weight itself, which has the other memory by then, or a view
    of it, which has not."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 6))
    body = {"linear": lambda x: F.linear(x, weight), "product": lambda x: x @ weight}[way]
    compiled = kintsugi.compile(lambda x: body(x).tanh())
    for _ in range(6):
        x, kept, seen = torch.randn(4, 6), weight.data, []
        for f in (lambda x: body(x).tanh(), compiled):
            weight.grad, leaf = None, x.clone().requires_grad_()
            out = f(leaf).sum()
            weight.data = torch.ones(6, 6)
            out.backward()
            weight.data = kept
            seen.append((leaf.grad, weight.grad))
        for a, b in zip(*seen):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    assert runs(compiled) > 0


def _rotated(x, w):
    turned = torch.view_as_complex(x.reshape(4, 3, 2)) * torch.polar(torch.ones(3), torch.arange(3.0))
    return torch.view_as_real(turned).flatten(1) @ w


def _filtered(x, w):
    both = torch.view_as_complex(w.view(6, 3, 2))
    return torch.view_as_real(torch.view_as_complex(x.view(4, 1, 3, 2)) * both).square().sum((1, 3))


def _lengths(x, w):
    return (torch.complex(x, x @ w) * torch.complex(w[0], w[1])).abs().sum(1)


def _imaginary(x, w):
    z = torch.view_as_complex(x.view(4, 3, 2)) * torch.view_as_complex(w[0].view(3, 2))
    return (z.imag - z.real) * (z * z).imag


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("body, whole", [(_rotated, True), (_filtered, True), (_lengths, False), (_imaginary, False)])
def test_products_of_complex_numbers(body, whole):
    """Their gradients are products with conjugated numbers, which in eager only say that they are conjugated."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 6))
    compiled = kintsugi.compile(lambda x: body(x, weight).tanh())
    for _ in range(6):
        x, seen = torch.randn(4, 6), []
        for f in (lambda x: body(x, weight).tanh(), compiled):
            weight.grad, leaf = None, x.clone().requires_grad_()
            out = f(leaf)
            out.square().sum().backward()
            seen.append((out, leaf.grad, weight.grad))
        for a, b in zip(*seen):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    if whole:
        assert len(versions(compiled)) == 1 and runs(compiled) > 0


def test_gradients_that_are_conjugated():
    """A complex parameter's gradient has its elements in memory, whatever eager's says of its own."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64))
    compiled = kintsugi.compile(lambda x: torch.view_as_real(x @ weight).square().sum())
    for _ in range(6):
        x, seen = torch.randn(4, 6, dtype=torch.complex64), []
        for f in (lambda x: torch.view_as_real(x @ weight).square().sum(), compiled):
            weight.grad, leaf = None, x.clone().requires_grad_()
            out = f(leaf)
            out.backward()
            seen.append((out, leaf.grad.resolve_conj(), weight.grad.resolve_conj()))
        for a, b in zip(*seen):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


class Output(dict):
    def __init__(self, state):
        assert str(type(state)).startswith("<class 'torch.")  # what libraries ask before they import another one
        super().__init__(state=state)


def test_the_name_of_a_class_between_batch_norms():
    """Its text shows no memory, so that the norms' counters may be written to in the graph."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).train()
    eager = copy.deepcopy(model)

    def forward(model, x):
        return Output(model(x))["state"].mean((2, 3)).tanh()

    ours = kintsugi.compile(forward)
    for _ in range(4):
        x = torch.randn(4, 3, 9, 9)
        for run, m in ((ours, model), (forward, eager)):
            run(m, x).square().sum().backward()
    row, = kintsugi.stats(ours)["kernels"]
    assert row["parts"] == 1 and row["compiled"], row
    for a, b in zip([*model.buffers(), *(p.grad for p in model.parameters())], [*eager.buffers(), *(p.grad for p in eager.parameters())], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
