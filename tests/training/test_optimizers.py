"""Steps of torch.optim compiled: what eager's step leaves (parameters, gradients, states, versions), after each of several steps."""
import copy

import pytest
import torch
from launches import engine, kintsugi
from torch import nn

LOOP, FOREACH, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}
# Class, options, forms; and are these steps one pass over the tensors?
CASES = [
    (torch.optim.SGD, {"lr": 0.1}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.Adam, {"lr": 0.01}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.Adam, {"lr": 0.01, "betas": (0.4, 0.9), "weight_decay": 0.1}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.AdamW, {"lr": 0.01}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0, "amsgrad": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.RMSprop, {"lr": 0.01}, (LOOP, FOREACH), True),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}, (LOOP, FOREACH), True),
    (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}, (LOOP, FOREACH), True),
    (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}, (LOOP, FOREACH, FUSED), True),
    (torch.optim.Adadelta, {"lr": 0.5, "eps": 1e-4}, (LOOP, FOREACH), True),
    (torch.optim.Adadelta, {"rho": 0.7, "weight_decay": 0.1, "maximize": True, "eps": 1e-4}, (LOOP, FOREACH), True),
    (torch.optim.Adamax, {}, (LOOP, FOREACH), True),
    (torch.optim.Adamax, {"betas": (0.4, 0.9), "weight_decay": 0.1, "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.NAdam, {}, (LOOP, FOREACH), True),
    (torch.optim.NAdam, {"weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}, (LOOP, FOREACH), True),
    (torch.optim.RAdam, {"lr": 0.1}, (LOOP, FOREACH), True),
    (torch.optim.RAdam, {"betas": (0.8, 0.95), "weight_decay": 0.1, "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.RAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}, (LOOP, FOREACH), True),
    (torch.optim.ASGD, {"lr": 0.1}, (LOOP, FOREACH), True),
    (torch.optim.ASGD, {"lr": 0.1, "t0": 2, "lambd": 0.1, "alpha": 0.5, "weight_decay": 0.1, "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.Rprop, {}, (LOOP, FOREACH), True),
    (torch.optim.Rprop, {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (0.05, 0.15), "maximize": True}, (LOOP, FOREACH), True),
    (torch.optim.Adafactor, {}, (LOOP, FOREACH), True),
    (torch.optim.Adafactor, {"weight_decay": 0.1, "maximize": True, "lr": 0.5, "eps": (1e-5, 1e-3), "d": 1.5}, (LOOP, FOREACH), True),
    *([(torch.optim.Muon, {}, ({},), False)] if hasattr(torch.optim, "Muon") else []),  # since torch 2.9
]
ALL = [pytest.param(cls, {**options, **form}, native, id="-".join([cls.__name__, *map(str, options), *form]))
       for cls, options, forms, native in CASES for form in forms]
SHAPES = [(3, 4), (5,), (1,), (0, 3), (2, 3, 2, 2), (130, 257)]


def parameters(dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(5)
    made = [nn.Parameter(torch.randn(s, dtype=dtype)) for s in shapes]
    made.append(nn.Parameter(torch.randn(4, 3, dtype=dtype).t()))
    made.append(nn.Parameter(torch.randn(2, 4, 3, 3, dtype=dtype).to(memory_format=torch.channels_last)))
    return made


def give_gradients(mine, others, step):
    torch.manual_seed(step)
    for p, q in zip(mine, others):
        p.grad = torch.randn_like(p) * 0.1
        q.grad = p.grad.clone(memory_format=torch.preserve_format)


def tensors_of(optimizer, params):
    for i, p in enumerate(params):
        yield f"{i}", p
        if p.grad is not None:
            yield f"{i}.grad", p.grad
        for name, value in optimizer.state[p].items() if p in optimizer.state else ():
            if isinstance(value, torch.Tensor):
                yield f"{i}.{name}", value


def assert_same(mine, params, other, others, bitwise=False):
    a, b = dict(tensors_of(mine, params)), dict(tensors_of(other, others))
    assert a.keys() == b.keys()
    for name in a:
        largest = b[name].detach().abs().max().item() if b[name].numel() else 0
        close = {"rtol": 0, "atol": 0} if bitwise else {"rtol": 2e-6, "atol": 2e-6 * largest}
        torch.testing.assert_close(a[name], b[name], msg=lambda text, name=name: f"{name}: {text}", **close)
        assert a[name].stride() == b[name].stride(), name
        assert name.endswith(".grad") or a[name].requires_grad == b[name].requires_grad, name
    assert [{k: v for k, v in g.items() if k != "params"} for g in mine.param_groups] == \
        [{k: v for k, v in g.items() if k != "params"} for g in other.param_groups]


def versions_of(optimizer, params):
    return {name: tensor._version for name, tensor in tensors_of(optimizer, params)}


def pair(cls, options, shapes=SHAPES, dtype=torch.float32):
    params = parameters(dtype, shapes)
    others = [nn.Parameter(p.detach().clone(memory_format=torch.preserve_format)) for p in params]
    if cls.__name__ == "Muon":
        params, others = ([p for p in ps if p.dim() == 2 and p.numel()] for ps in (params, others))
    if cls is torch.optim.Adafactor: # it divides by the number of elements
        params, others = ([p for p in ps if p.numel() and p.is_contiguous()] for ps in (params, others))
    return cls(params, **options), params, cls(others, **options), others


def passes():
    """Steps so far that were one pass, and those that were not."""
    totals = engine.optimizer_totals()
    return totals["compiled"], totals["eager"]


@pytest.mark.parametrize("cls, options, native", ALL)
@pytest.mark.parametrize("backend", ["kernels", "eager"])
def test_five_steps(cls, options, native, backend):
    mine, params, other, others = pair(cls, options)
    step = kintsugi.compile(mine.step, fullgraph=True, **({} if backend == "kernels" else {"backend": "eager"}))
    before = passes()
    for i in range(5):
        give_gradients(params, others, i)
        seen = versions_of(mine, params), versions_of(other, others)
        assert step() is None and other.step() is None
        assert_same(mine, params, other, others, bitwise=backend == "eager")
        grown = [{k: now.get(k, 0) - v for k, v in then.items()} for then, now in zip(seen, (versions_of(mine, params), versions_of(other, others)))]
        assert native or i == 0 or grown[0] == grown[1]
        assert not native or grown[0] == grown[1]
    done, left = (after - was for was, after in zip(before, passes()))
    assert (done > 0) == (native and backend == "kernels"), engine.optimizer_totals()
    assert left <= 1 # the first step makes the state
    stats = kintsugi.stats(step)
    assert stats["recordings"] == 1 and not any(v["breaks"] for v in stats["variants"])


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW])
def test_rate_of_a_scheduler_needs_no_recompiling(cls):
    mine, params, other, others = pair(cls, {"lr": 0.1})
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 7) for o in (mine, other)]
    step = kintsugi.compile(mine.step, fullgraph=True)
    for i in range(7):
        give_gradients(params, others, i)
        step()
        other.step()
        for schedule in schedules:
            schedule.step()
        assert_same(mine, params, other, others)
    assert kintsugi.stats(step)["recordings"] == 1


def test_groups_have_numbers_of_their_own():
    both = []
    for _ in range(2):
        params = parameters()
        both.append((torch.optim.AdamW([{"params": params[:2], "lr": 0.1}, {"params": params[2:5], "weight_decay": 0, "betas": (0.5, 0.9)},
                                        {"params": params[5:], "maximize": True, "amsgrad": True}], lr=0.01), params))
    (mine, params), (other, others) = both
    step = kintsugi.compile(mine.step, fullgraph=True)
    before = passes()
    for i in range(4):
        give_gradients(params, others, i)
        step()
        other.step()
        assert_same(mine, params, other, others)
    assert passes()[0] - before[0] >= 2


def test_gradients_come_and_go():
    """A parameter without a gradient stays as it is; one that gets its first late gets its state then."""
    mine, params, other, others = pair(torch.optim.Adam, {})
    step = kintsugi.compile(mine.step, fullgraph=True)
    for i in range(8):
        give_gradients(params, others, i)
        for ps in (params, others):
            ps[i % 3].grad = None
            if i < 4:
                ps[4].grad = None
        step()
        other.step()
        assert_same(mine, params, other, others)
    assert kintsugi.stats(step)["recordings"] == 1


def test_state_that_is_loaded():
    mine, params, other, others = pair(torch.optim.AdamW, {"lr": 0.1})
    step = kintsugi.compile(mine.step, fullgraph=True)
    kept = None
    for i in range(6):
        give_gradients(params, others, i)
        step()
        other.step()
        if i == 2:
            kept = copy.deepcopy(mine.state_dict())
        if i == 4:
            mine.load_state_dict(copy.deepcopy(kept))
            other.load_state_dict(copy.deepcopy(kept))
        assert_same(mine, params, other, others)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_the_librarys(dtype):
    mine, params, other, others = pair(torch.optim.AdamW, {}, dtype=dtype)
    step = kintsugi.compile(mine.step, fullgraph=True)
    before = passes()
    for i in range(3):
        give_gradients(params, others, i)
        step()
        other.step()
        assert_same(mine, params, other, others, bitwise=True)
    assert passes()[0] == before[0] and "float32" in engine.optimizer_totals()["reason"]
    assert any(e["event"] == "fallback" and e["name"] == "AdamW.step" and "float32" in e["reason"] for e in engine.events())


def one(value=2.0, **grad):
    p = nn.Parameter(torch.tensor([value]))
    p.grad = torch.tensor([1.0])
    return p


def test_parameters_that_share_memory():
    base = torch.arange(6.0), torch.arange(6.0)
    both = [[nn.Parameter(b[0:4]), nn.Parameter(b[2:6])] for b in base]
    optimizers = [torch.optim.SGD(ps, lr=0.5) for ps in both]
    for ps in both:
        ps[0].grad, ps[1].grad = torch.ones(4), torch.full((4,), 2.0)
    step, before = kintsugi.compile(optimizers[0].step), passes()
    for _ in range(3):
        step()
        optimizers[1].step()
    assert torch.equal(*base) and passes()[0] == before[0]


def test_parts_of_one_buffer():
    base = torch.arange(6.0), torch.arange(6.0)
    both = [[nn.Parameter(b[3:6]), nn.Parameter(b[0:3])] for b in base]
    optimizers = [torch.optim.SGD(ps, lr=0.5) for ps in both]
    for ps in both:
        ps[0].grad, ps[1].grad = torch.ones(3), torch.full((3,), 2.0)
    step, before = kintsugi.compile(optimizers[0].step), passes()
    for _ in range(3):
        step()
        optimizers[1].step()
    assert torch.equal(*base) and passes()[0] > before[0]


def test_a_counter_that_parameters_share():
    made = []
    for _ in range(2):
        ps = [one(), one(3.0)]
        o = torch.optim.Adam(ps, lr=0.1)
        o.step()
        o.state[ps[1]]["step"] = o.state[ps[0]]["step"]
        made.append((o, ps))
    (mine, params), (other, others) = made
    step = kintsugi.compile(mine.step)
    for _ in range(3):
        step()
        other.step()
        assert_same(mine, params, other, others)


def test_a_method_of_the_optimizer_is_replaced():
    calls = []

    class Mine(torch.optim.SGD):
        def _init_group(self, *args):
            calls.append(len(args))
            return super()._init_group(*args)

    p = one()
    optimizer = Mine([p], lr=0.5)
    step = kintsugi.compile(optimizer.step)
    for _ in range(3):
        step()
    assert len(calls) == 3 and p.item() == 0.5


def test_a_subclass_goes_through_super():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["lr"] *= 0.5
            return super().step(closure)

    p, q = one(), one()
    mine, other = Mine([p], lr=1.0), Mine([q], lr=1.0)
    step = kintsugi.compile(mine.step)
    for _ in range(4):
        step()
        other.step()
        assert torch.equal(p, q)


def test_hooks_of_the_optimizer():
    seen = []
    p = one()
    optimizer = torch.optim.SGD([p], lr=0.5)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(("before", p.item())))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", p.item())))
    step = kintsugi.compile(optimizer.step)
    for _ in range(3):
        step()
    assert seen == [("before", 2.0), ("after", 1.5), ("before", 1.5), ("after", 1.0), ("before", 1.0), ("after", 0.5)]


def test_sparse_gradients_raise_as_eager_does():
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.Adam(embedding.parameters())
    embedding(torch.tensor([1, 2])).sum().backward()
    step = kintsugi.compile(optimizer.step)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="sparse gradients"):
            step()


def test_a_rate_in_a_tensor():
    mine, params, other, others = pair(torch.optim.SGD, {"lr": torch.tensor(0.1)})
    step = kintsugi.compile(mine.step)
    for i in range(3):
        give_gradients(params, others, i)
        step()
        other.step()
    assert_same(mine, params, other, others, bitwise=True)


def test_infinities_and_nan():
    for cls, options in ((torch.optim.Adam, {"amsgrad": True}), (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.RMSprop, {}), (torch.optim.Adadelta, {}),
                         (torch.optim.Adamax, {}), (torch.optim.NAdam, {}), (torch.optim.RAdam, {}), (torch.optim.ASGD, {}),
                         (torch.optim.ASGD, {"foreach": True}), (torch.optim.Rprop, {})):
        params, others = ([nn.Parameter(torch.ones(20))] for _ in range(2))
        mine, other = cls(params, lr=0.1, **options), cls(others, lr=0.1, **options)
        step = kintsugi.compile(mine.step)
        for i in range(4):
            params[0].grad = torch.linspace(-1, 1, 20)
            params[0].grad[i] = float("nan")
            params[0].grad[5 + i] = float("inf")
            others[0].grad = params[0].grad.clone()
            step()
            other.step()
        torch.testing.assert_close(params[0], others[0], equal_nan=True)


def test_a_closure():
    def run(compile):
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(6))
        optimizer = torch.optim.LBFGS([p], lr=0.5, max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = ((p - 3) ** 2).sum() + (p ** 4).sum() * 0.01
            loss.backward()
            return loss
        step = compile(optimizer.step)
        return [step(closure).item() for _ in range(4)], p

    (losses, p), (eager, q) = run(lambda f: kintsugi.compile(f, backend="eager")), run(lambda f: f)
    assert losses == eager and torch.equal(p, q)


def test_reports_tell_of_steps_that_are_one_pass():
    """A compiled step has no kernels, and it is compiled all the same."""
    params, others = parameters(torch.float32, [(3, 4), (5,)]), []
    optimizer = torch.optim.Adam(params)
    step = kintsugi.compile(optimizer.step)
    for i in range(6):
        give_gradients(params, others, i)
        step()
    stats = kintsugi.stats(step)
    assert stats["optimizer_steps"] == {"compiled": 5, "eager": 0, "reason": ""}
    assert (stats["compiled_calls"], stats["last_call"]) == (5, "compiled")
    text = str(kintsugi.explain(step)())
    assert "5 ran compiled code" in text and "Optimizer Steps: 5 in one compiled pass each\n" in text
    assert "runs step by step: steps of optimizers in it are compiled passes of their own" in text

    optimizer.param_groups[0]["lr"] = torch.tensor(1e-3)
    step()
    stats = kintsugi.stats(step)
    assert stats["optimizer_steps"]["eager"] == 1 and stats["optimizer_steps"]["reason"] == engine.optimizer_totals()["reason"] != ""
    assert (stats["compiled_calls"], stats["last_call"]) == (5, "step by step")
    assert f"5 in one compiled pass each, 1 by PyTorch's own code (the last one: {stats['optimizer_steps']['reason']})" in str(kintsugi.explain(step)())
