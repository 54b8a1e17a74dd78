"""nn.Module: containers, buffers, hooks, parametrizations, train/eval, parameters that change."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from kincorpus.case import T, Args, attr, built, case, do, glob, seeded, seq

X = lambda i, s: (T(i, 2, 4),)   # noqa: E731
GRAD = lambda i, s, r: (r.sum().backward(), [p.grad for p in s.model.parameters()])[1]   # noqa: E731


def model(make, **options):
    """A case whose compiled function is the call of a module made by the decorated builder."""
    def register(fn):
        def build(s):
            s.model = seeded(1, lambda: make(fn))
            m = s.model
            return lambda x: m(x)
        build.__name__ = fn.__name__
        return built(args=X, **options)(build)
    return register


def of(fn):
    return fn()


class MLP(nn.Module):
    gain = 1.0

    def __init__(self, n=4):
        super().__init__()
        self.a, self.b = nn.Linear(n, 5), nn.Linear(5, n)
        self.use_relu = True
        self.history = []
        self.calls = 0

    def forward(self, x):
        h = self.a(x)
        h = F.relu(h) if self.use_relu else torch.tanh(h)
        return self.b(h) * self.gain


@model(of)
def mlp():
    return MLP()


@model(of, after=GRAD)
def mlp_training():
    return MLP()


@model(of, mutate=attr(3, lambda s: s.model, use_relu=False))
def attribute_flag():
    return MLP()


@model(of, mutate=attr(3, lambda s: type(s.model), gain=3.0))
def class_attribute_of_module():
    return MLP()


@model(of, mutate=attr(3, lambda s: s.model, a=nn.Identity()), raises=(3, 4, 5))
def submodule_replaced_badly():
    return MLP()


@model(of, mutate=do(3, lambda s: setattr(s.model, "a", seeded(7, lambda: nn.Linear(4, 5)))), again=0)
def submodule_replaced():
    return MLP()


@model(of, mutate=do(3, lambda s: setattr(s.model.a, "weight", nn.Parameter(T(5, 5, 4)))), again=0)
def parameter_identity():
    return MLP()


@model(of, mutate=do(3, lambda s: s.model.a.weight.data.copy_(T(5, 5, 4))), again=0)
def parameter_data():
    return MLP()


@model(of, mutate=do(3, lambda s: setattr(s.model.a.weight, "data", T(5, 4, 5).t())))
def parameter_stride():
    return MLP()


@model(of, mutate=do(3, lambda s: s.model.a.weight.requires_grad_(False)), after=GRAD)
def parameter_frozen():
    return MLP()


@model(of, mutate=do(3, lambda s: setattr(s.model.a, "bias", None)))
def bias_removed():
    return MLP()


@model(of, mutate=do(3, lambda s: s.model.load_state_dict({k: v * 2 for k, v in s.model.state_dict().items()})),
       again=0)
def state_dict_loaded():
    return MLP()


@model(of, mutate=do(3, lambda s: s.model.double()), raises=(3, 4, 5))
def module_to_double():
    return MLP()


def _sgd(s):
    with torch.no_grad():
        for p in s.model.parameters():
            p -= 0.1 * (p.grad if p.grad is not None else 0)


@model(of, mutate=do((1, 2, 3, 4, 5), _sgd), again=0, after=GRAD)
def training_loop():
    return MLP()


def _hook(module, args, output):
    print("hook", type(module).__name__)
    return output * 2


@model(of, mutate=do(3, lambda s: s.model.a.register_forward_hook(_hook)))
def forward_hook_added():
    return MLP()


def _with_hook():
    m = MLP()
    m.handle = m.b.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    return m


@model(of, mutate=do(3, lambda s: s.model.handle.remove()))
def pre_hook_removed():
    return _with_hook()


def _global_hook(s):
    s.handle = nn.modules.module.register_module_forward_hook(lambda m, a, o: o + 1 if isinstance(m, nn.Linear) else o)


@model(of, mutate=seq(do(3, _global_hook), do(5, lambda s: s.handle.remove())), again=1)
def global_forward_hook():
    return MLP()


@model(of, mutate=do(3, lambda s: s.model.eval()), again=1)
def dropout_train_eval():
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU())


@model(of, mutate=do(3, lambda s: s.model.eval()), again=1)
def batchnorm_train_eval():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@model(of)
def batchnorm_counts():
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))


@model(of, mutate=do(3, lambda s: s.model.append(nn.ReLU())))
def sequential_grows():
    return nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())


@model(of, mutate=do(3, lambda s: s.model.__setitem__(1, nn.Tanh())))
def sequential_item_replaced():
    return nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"act": nn.ReLU(), "norm": nn.LayerNorm(4)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4) * k) for k in (1, 2)])
        self.order = ["act", "norm"]
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.tensor(0), persistent=False)

    def forward(self, x):
        for layer, s in zip(self.layers, [*self.scales, 1.0]):
            x = x + layer(x) * s
        for name in self.order:
            x = self.table[name](x)
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        self.steps += 1
        return x


@model(of)
def containers():
    return Lists()


@model(of, mutate=do(3, lambda s: s.model.layers.append(nn.Identity())), inert=True)
def modulelist_grows_behind_zip():
    return Lists()


@model(of, mutate=do(3, lambda s: s.model.order.reverse()))
def moduledict_order():
    return Lists()


@model(of, mutate=do(3, lambda s: s.model.scales.__setitem__(0, nn.Parameter(T(6, 4)))), again=0)
def parameterlist_item():
    return Lists()


@model(of, mutate=do(3, lambda s: s.model.mean.fill_(3.0)), again=0, after=lambda i, s, r: s.model.mean.clone())
def buffer_data():
    return Lists()


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)
        self.last = None
        self.count = 0

    def forward(self, x):
        self.count += 1
        y = self.lin(x)
        if self.last is not None:
            y = y + self.last
        self.last = y.detach()
        return y


@model(of, again=1, replays=2)
def module_keeps_state():
    return Keeps()


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).t()


@model(of, mutate=do(3, lambda s: parametrize.register_parametrization(s.model, "weight", Symmetric())))
def parametrization_added():
    return nn.Linear(4, 4)


@model(of, replays=2)
def weight_norm():
    return torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.tied = self.lin

    def forward(self, x):
        return self.tied(self.lin(x))


@model(of, mutate=do(3, lambda s: setattr(s.model, "tied", seeded(5, lambda: nn.Linear(4, 4)))))
def shared_submodule():
    return Reused()


@model(of, mutate=attr(3, lambda s: s.model, forward=lambda x: x * 100))
def instance_forward():
    return MLP()


class Residual(MLP):
    def forward(self, x):
        return x + super().forward(x)


@model(of, mutate=attr(3, lambda s: s.model, __class__=Residual))
def module_class_changes():
    return MLP()


@model(of)
def super_forward():
    return Residual()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.heads = 2
        self.causal = True

    def forward(self, x):
        b, n, d = x.unsqueeze(0).shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(n, d)


@model(of, mutate=attr(3, lambda s: s.model, causal=False))
def attention():
    return Attention()


@model(of)
def conv_and_pool():
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten())


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.rnn = nn.GRUCell(4, 3)

    def forward(self, x):
        ids = (x.abs() * 3).long().clamp(max=9)
        h = x.new_zeros(2, 3)
        for t in range(ids.shape[1]):
            h = self.rnn(self.table(ids[:, t]), h)
        return h


@model(of, after=GRAD)
def embedding_and_recurrence():
    return Embeds()


class Walks(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = MLP()
        self.skip = "none"

    def forward(self, x):
        n = sum(p.numel() for p in self.parameters())
        names = [k for k, _ in self.named_modules() if k != self.skip]
        return self.net(x) * n, names, self.training, len(list(self.children()))


@model(of, mutate=attr(3, lambda s: s.model, skip="net.a"))
def walks_over_itself():
    return Walks()


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        self.gate = nn.Linear(4, 1)

    def forward(self, x):
        which = int(self.gate(x).sum() > 0)
        return self.experts[which](x), which


@model(of, again=1, replays=2)
def data_picks_submodule():
    return Gated()


class Weird(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(T(2, 4))

    def __getattr__(self, name):
        if name == "virtual":
            return 5
        return super().__getattr__(name)

    def forward(self, x):
        return x * self.w + self.virtual


@model(of, mutate=attr(3, lambda s: s.model, virtual=6))
def module_getattr():
    return Weird()


@built(args=X, mutate=do(3, lambda s: setattr(s.model, "gain", 5.0)))
def module_itself_compiled(s):
    s.model = seeded(2, MLP)
    return s.model


@built(args=lambda i, s: Args(T(i, 2, 4), s.model))
def module_as_argument(s):
    s.model = seeded(2, MLP)
    return lambda x, m: m(x).softmax(-1) + m.a.bias.sum()


@built(args=lambda i, s: Args(T(i, 2, 4), s.models[i % 2]), again=0)
def module_argument_alternates(s):
    s.models = [seeded(2, MLP), seeded(3, MLP)]
    return lambda x, m: m(x)


@built(args=X, after=lambda i, s, r: [p.clone() for p in s.model.parameters()], replays=1)
def optimiser_step_inside(s):
    s.model = seeded(2, MLP)
    s.opt = torch.optim.SGD(s.model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        s.opt.zero_grad()
        loss = F.mse_loss(s.model(x), x)
        loss.backward()
        s.opt.step()
        return loss.item()
    return step


@built(args=X)
def functional_call(s):
    s.model = seeded(2, MLP)

    def f(x):
        params = {k: v * 0.5 for k, v in s.model.named_parameters()}
        return torch.func.functional_call(s.model, params, (x,))
    return f


def _grow_zeroed(s):
    ZEROED.append(torch.nn.Linear(3, 3))


ZEROED = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))


@case(mutate=do(3, _grow_zeroed), replays=2)
def gradients_dropped_in_a_loop(x):
    """What zero_grad does: stores to tensors while the generator of the parameters is suspended."""
    ZEROED.zero_grad()
    held = [p.grad is None for p in ZEROED.parameters()]
    for p in ZEROED.parameters():
        p.grad = torch.ones_like(p)
    for name, p in ZEROED.named_parameters():
        p.data = p.data * 0.5 if "weight" in name else p.data
    for p in ZEROED.parameters():
        p.requires_grad = p.dim() > 1
    seen = [(p.requires_grad, tuple(p.shape)) for p in ZEROED.parameters()]
    return x, held, seen, sum(p.grad.sum() for p in ZEROED.parameters()), ZEROED[0](x).detach()


@case(calls=5)
def data_of_another_shape(x):
    p = ZEROED[0].weight
    before = tuple(p.shape)
    p.data = torch.zeros(2, 5)
    after = tuple(p.shape), p.numel(), p.requires_grad
    p.data = torch.ones(3, 3)
    return x, before, after, p.shape[1]
