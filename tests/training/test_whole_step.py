"""Whole steps of training in one compiled function, under fullgraph: forward, backward, clipping, optimizer, schedule. After each step parameters, gradients and what
the step returns are eager's."""
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from launches import engine, kintsugi
from torch import nn


class Step:
    """A model with all that a step needs; each test compiles one of its methods."""

    def __init__(self):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))
        self.params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.params, lr=0.01)
        self.other = torch.optim.SGD(self.params[:2], lr=0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.average = [p.detach().clone() for p in self.params]
        self.seen = []

    def loss(self, x, y):
        return F.cross_entropy(self.model(x), y)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def plain(self, x, y):
        return self.update(self.loss(x, y))

    def gradients_stay(self, x, y):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def clears_the_model(self, x, y):
        self.model.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def clips_norm(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        return loss.detach() + norm

    def clips_value(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.params, 0.01)
        self.optimizer.step()
        return loss.detach()

    def scheduled(self, x, y):
        loss = self.plain(x, y)
        self.schedule.step()
        return loss + self.optimizer.param_groups[0]["lr"]

    def accumulates(self, x, y):
        self.optimizer.zero_grad()
        total = 0.0
        for some, labels in zip(x.chunk(2), y.chunk(2)):
            loss = self.loss(some, labels) / 2
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return total

    def averages(self, x, y):
        loss = self.plain(x, y)
        with torch.no_grad():
            for a, p in zip(self.average, self.params):
                a.mul_(0.9).add_(p, alpha=0.1)
        return loss + self.average[0].sum()

    def averages_all_at_once(self, x, y):
        loss = self.plain(x, y)
        torch._foreach_lerp_(self.average, [p.detach() for p in self.params], 0.1)
        return loss + self.average[0].sum()

    def asks_for_gradients(self, x, y):
        loss = self.loss(x, y)
        for p, grad in zip(self.params, torch.autograd.grad(loss, self.params)):
            p.grad = grad
        self.optimizer.step()
        return loss.detach()

    def hooks_a_tensor(self, x, y):
        hidden = self.model[0](x)
        hidden.register_hook(lambda grad: grad * 2)
        return self.update(F.cross_entropy(self.model[3](self.model[2](self.model[1](hidden))), y))

    def hooks_a_parameter(self, x, y):
        handle = self.params[0].register_post_accumulate_grad_hook(lambda p: self.seen.append(p.grad.sum().item()))
        loss = self.plain(x, y)
        handle.remove()
        return loss + sum(self.seen)

    def has_a_target(self, x, y):
        with torch.no_grad():
            target = self.model(x)
        return self.update(F.mse_loss(self.model(x), target.detach() + 1))

    def wants_gradients_of_its_input(self, x, y):
        x = x.detach().clone().requires_grad_()
        loss = self.update(self.loss(x, y))
        assert x.is_leaf
        return loss + x.grad.sum()

    def is_functional(self, x, y):
        weights = dict(self.model.named_parameters())
        return self.update(F.cross_entropy(torch.func.functional_call(self.model, weights, (x,)), y))

    def goes_by_torch_func(self, x, y):
        weights = {name: p.detach() for name, p in self.model.named_parameters()}
        grads, loss = torch.func.grad_and_value(lambda w: F.cross_entropy(torch.func.functional_call(self.model, w, (x,)), y))(weights)
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.sub_(grads[name], alpha=0.1)
        return loss

    def two_optimizers(self, x, y):
        loss = self.plain(x, y)
        self.other.zero_grad()
        self.loss(x, y).backward()
        self.other.step()
        return loss


NAMES = [name for name in vars(Step) if not name.startswith("_") and name not in ("loss", "update")]


def data(n=6):
    torch.manual_seed(1)
    return [(torch.randn(8, 12), torch.randint(0, 5, (8,))) for _ in range(n)]


def run(name, compile):
    step = Step()
    fn = compile(getattr(step, name))
    out = []
    for x, y in data():
        value = fn(x, y)
        out.append((value.clone(), [p.detach().clone() for p in step.params], [None if p.grad is None else p.grad.clone() for p in step.params]))
    return out, fn


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["kernels", "eager"])
def test_step(name, backend):
    mine, compiled = run(name, lambda f: kintsugi.compile(f, fullgraph=True, **({} if backend == "kernels" else {"backend": "eager"})))
    eager, _ = run(name, lambda f: f)
    close = {"rtol": 0, "atol": 0} if backend == "eager" else {"rtol": 1e-4, "atol": 1e-6}
    for a, b in zip(mine, eager):
        torch.testing.assert_close(a, b, **close)
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 1 and stats["replays"] == 5
    assert all(v["breaks"] == 0 for v in stats["variants"])


UNASKED = {"multi_margin": lambda z, y: F.multi_margin_loss(z, y), "multi_margin, weights": lambda z, y: F.multi_margin_loss(z, y, p=2, weight=torch.arange(5.0), reduction="sum"),
           "multilabel_margin": lambda z, y: F.multilabel_margin_loss(z, y[:, None].repeat(1, 5)),
           "multilabel_margin, rows": lambda z, y: (F.multilabel_margin_loss(z, y[:, None].repeat(1, 5), reduction="none") * z[:, 0]).sum(),
           "gamma": lambda z, y: torch.distributions.Gamma(z.exp(), 2.0).rsample().square().mean()}


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("name", UNASKED)
def test_losses_whose_gradients_have_no_meta_kernel(name):
    def train(compile):
        step = Step()
        step.loss = lambda x, y: UNASKED[name](step.model(x), y)
        fn, seen = compile(step.plain), []
        for i, (x, y) in enumerate(data(8)):
            if i == 5 and "margin" in name:
                before = [p.detach().clone() for p in step.params]
                with pytest.raises(RuntimeError, match="target"):
                    fn(x, y + 3)
                torch.testing.assert_close([p.detach() for p in step.params], before, rtol=0, atol=0)
            seen.append((fn(x, y).clone(), [p.detach().clone() for p in step.params]))
        return seen, fn

    (mine, compiled), (eager, _) = train(kintsugi.compile), train(lambda f: f)
    torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-6)
    assert kintsugi.stats(compiled)["kernels"][0]["launches"] > 0


AVERAGED = ("exponential", "mean", "own function")


def averaged(kind, compile):
    """What eight steps with an averaged copy of the weights show, and the compiled step."""
    from torch.optim import swa_utils

    options = {"exponential": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}, "mean": {}, "own function": {"avg_fn": lambda a, p, n: a + (p - a) / (n + 2)}}[kind]
    step = Step()
    average, seen = swa_utils.AveragedModel(step.model, **options), []

    def train(x, y):
        loss = step.plain(x, y)
        average.update_parameters(step.model)
        return loss
    fn = compile(train)
    for x, y in data(8):
        seen.append((fn(x, y).clone(), [p.detach().clone() for p in average.parameters()], average.n_averaged.item()))
    return seen, fn


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("kind", AVERAGED)
def test_averaged_models(kind):
    """Where the number of steps decides, data decides; all else of the graph is compiled."""
    (mine, compiled), (eager, _) = averaged(kind, kintsugi.compile), averaged(kind, lambda f: f)
    torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-6)
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] + stats["branches"] <= 3 and stats["kernels"][0]["launches"] > 0, stats


START = """
import sys
sys.path[:0] = {paths!r}
import kintsugi, test_whole_step
from launches import engine
engine.set_option("trials", 0)
kintsugi.config.kernels = kintsugi.config.training = True
"""
COMPILED = START + """
# "warm": a machine that is busy while the first step is recorded may otherwise keep later calls eager, as recording has a budget of time.
_, compiled = test_whole_step.run("plain", lambda f: kintsugi.compile(f, fullgraph=True, options={{"warm": True}}))
assert any(k["launches"] for k in kintsugi.stats(compiled)["kernels"])
print(engine.optimizer_totals())
assert engine.optimizer_totals()["compiled"] >= 4
"""
AVERAGED_COMPILED = START + """
for kind in test_whole_step.AVERAGED:
    stats = kintsugi.stats(test_whole_step.averaged(kind, kintsugi.compile)[1])
    assert stats["optimizer_steps"]["compiled"] > 0, (kind, stats)
"""


@pytest.mark.parametrize("program", [pytest.param(COMPILED, marks=pytest.mark.compiled_gradients), AVERAGED_COMPILED], ids=["whole", "averaged"])
def test_forward_and_step_are_compiled(program):
    """In a process of its own: what other tests leave behind can keep steps eager."""
    here = os.path.dirname(__file__)
    code = program.format(paths=[here, os.path.join(os.path.dirname(here), "kernels")])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_step_that_is_given_up():
    """An exception between backward and step: gradients are there, parameters are as before."""
    step = Step()

    def raises(x, y):
        loss = step.loss(x, y)
        loss.backward()
        if len(step.seen) > 2:
            raise ValueError("not this one")
        step.optimizer.step()
        return loss

    compiled = kintsugi.compile(raises)
    for i, (x, y) in enumerate(data()):
        step.optimizer.zero_grad()
        was = [p.detach().clone() for p in step.params]
        if i == 4:
            step.seen = [1, 2, 3]
            with pytest.raises(ValueError):
                compiled(x, y)
            assert all(p.grad is not None and torch.equal(p, b) for p, b in zip(step.params, was))
            step.seen = []
        else:
            compiled(x, y)
            assert not any(torch.equal(p, b) for p, b in zip(step.params, was))


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none):
    both = []
    for compile in (kintsugi.compile, lambda f, **options: f):
        params = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(1))]
        optimizer = torch.optim.SGD(params, lr=0.1)
        clear = compile(lambda o=optimizer: o.zero_grad(set_to_none=to_none), fullgraph=True)
        seen = []
        for i in range(4):
            for p in params[:2]:
                p.grad = torch.full_like(p, float(i + 1))
            if i == 2:
                params[0].grad = torch.ones(3, requires_grad=True) * 2
            grad = params[0].grad
            clear()
            seen.append([None if p.grad is None else (p.grad.tolist(), p.grad.requires_grad, p.grad._version, p.grad is grad) for p in params])
            seen.append((grad.tolist(), grad.requires_grad))
        both.append(seen)
    assert both[0] == both[1]


def test_gradient_scaler():
    def run_scaled(compile):
        step = Step()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def scaled(x, y):
            step.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = step.loss(x, y)
            scaler.scale(loss).backward()
            scaler.step(step.optimizer)
            scaler.update()
            return loss.detach()
        fn = compile(scaled)
        losses = [fn(*batch).item() for batch in data()]
        return losses, [p.detach() for p in step.params], scaler.get_scale()

    mine, eager = run_scaled(lambda f: kintsugi.compile(f, backend="eager")), run_scaled(lambda f: f)
    torch.testing.assert_close(mine, eager, rtol=0, atol=0)
    torch.testing.assert_close(run_scaled(lambda f: kintsugi.compile(f, fullgraph=True)), eager, rtol=0.05, atol=0.02)


CLIPS = {"few": {}, "inf": {"norm_type": float("inf")}, "raises": {"error_if_nonfinite": True}, "loop": {"foreach": False}}


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("most", [0.5, 1e9])
def test_clipping(name, most):
    def run_clip(compile, dtype=torch.float32):
        torch.manual_seed(4)
        params = [nn.Parameter(torch.ones(s, dtype=dtype)) for s in [(3,), (40, 500), (1,) if name == "inf" else (0,), (2, 2)]]
        clip = compile(lambda: torch.nn.utils.clip_grad_norm_(params, most, **CLIPS[name]))
        seen = []
        for _ in range(3):
            for p in params[:3]:
                p.grad = torch.randn_like(p)
            norm = clip()
            seen.append((norm.clone(), norm.requires_grad, [None if p.grad is None else (p.grad, p.grad._version) for p in params]))
        return seen

    torch.testing.assert_close(run_clip(lambda f: kintsugi.compile(f, fullgraph=name != "raises")), run_clip(lambda f: f), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(run_clip(kintsugi.compile, torch.float64), run_clip(lambda f: f, torch.float64), rtol=1e-12, atol=0)


def test_clipping_gradients_that_are_not_finite():
    for bad in (float("nan"), float("inf")):
        both = []
        for compile in (kintsugi.compile, lambda f: f):
            p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))
            clip = compile(lambda p=p, q=q: torch.nn.utils.clip_grad_norm_([p, q], 1.0))
            for _ in range(3):
                p.grad, q.grad = torch.tensor([1.0, bad, 2.0]), torch.ones(4)
                norm = clip()
            both.append((norm, p.grad, q.grad))
        torch.testing.assert_close(*both, equal_nan=True)


def test_clipping_gradients_that_share_memory():
    both = []
    for compile in (kintsugi.compile, lambda f: f):
        p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        clip = compile(lambda p=p, q=q: torch.nn.utils.clip_grad_norm_([p, q], 1.0))
        for _ in range(3):
            p.grad = q.grad = torch.full((3,), 2.0)
            clip()
        both.append(p.grad)
    torch.testing.assert_close(*both)


def test_gradient_scaler_with_clipping():
    """Its dicts have devices as keys, new ones in each step; whether the optimizer runs is decided by a number that is read for it."""
    def train(wrap):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
        found = []
        for i in range(14):
            x = torch.randn(4, 6)
            found += [step(x * float("inf") if i in (5, 9) else x).nan_to_num(), scaler.get_scale(), *(p.detach().clone() for p in model.parameters())]
        return found, step

    eager, _ = train(lambda f: f)
    ours, step = train(kintsugi.compile)
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-6)
    stats = kintsugi.stats(step)
    assert stats["recordings"] == 1 and stats["bail_outs"] <= 4 and stats["compiled_calls"] >= 6, stats
    (reason,) = {str(r).split("\n")[0] for r in kintsugi.explain(step, torch.randn(4, 6)).break_reasons}
    assert "Tensor.item()" in reason


def test_averaged_weights():
    """zip(parameters, parameters, strict=False) is followed; whether it is the first update is read from a tensor."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    for how in ({}, {"use_buffers": True}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}):
        ours, eager = AveragedModel(model, **how), AveragedModel(model, **how)
        update = kintsugi.compile(ours.update_parameters)
        for _ in range(5):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(0.1)
            model(torch.randn(3, 4))
            update(model)
            eager.update_parameters(model)
            for a, b in zip(ours.state_dict().values(), eager.state_dict().values(), strict=True):
                assert torch.equal(a, b) or torch.allclose(a, b, rtol=1e-6)


def test_zip_that_is_said_not_to_be_strict():
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)

    def joined(strict):
        total = 0
        for p, q in zip(one.parameters(), two.parameters(), strict=strict):
            total = total + (p * q).sum()
        return total

    compiled = kintsugi.compile(joined, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(False), joined(False))


@pytest.mark.parametrize("take", ["sum", "list", "max"])
def test_a_generator_over_gradients(take):
    """What a generator finds, `p.grad`, has methods: below the function that goes over it no guard can be tested, so that a test says that it has no attributes of its own."""
    def norm(x, net):
        net.zero_grad()
        net(x).square().sum().backward()
        squares = (p.grad.square().sum() for p in net.parameters())
        return sum(squares) if take == "sum" else torch.stack(list(squares)).sum() if take == "list" else max(s.item() for s in squares)

    net, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(8, 6)
    compiled = kintsugi.compile(norm, fullgraph=take != "max")
    for _ in range(4):
        torch.testing.assert_close(compiled(x, net), norm(x, net), rtol=1e-5, atol=1e-6)
        kintsugi.wait_for_kernels()
        x = torch.randn(8, 6)


def test_a_gradient_with_an_attribute_of_its_own():
    def total(parameters):
        return sum(p.grad.square().sum() for p in parameters)

    parameters = [nn.Parameter(torch.randn(3)) for _ in range(2)]
    compiled = kintsugi.compile(total)
    for i in range(6):
        for p in parameters:
            p.grad = torch.randn(3)
        if i % 3 == 2:
            parameters[i % 2].grad.square = lambda: torch.full((3,), 7.0)
        torch.testing.assert_close(compiled(parameters), total(parameters))
        kintsugi.wait_for_kernels()
