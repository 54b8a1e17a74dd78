"""Section 5: tensors and modules."""
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from two_worlds import T, rule


@rule
def test_rule_48_metadata(w):
    def f(x):
        return x * 2 + x.sum(0), x.stride(), x.requires_grad

    g = w.compile(f)
    w.call(g, T(2, 2))
    w.hit(g, T(2, 2) + 1)
    for x in (T(2, 3), T(2, 2).t(), T(2, 2).double(), T(2, 2).requires_grad_(), torch.ones(2, 2, dtype=torch.int64),
              torch.ones(1, 1).expand(2, 2), torch.randn(2, 2, dtype=torch.complex64).conj(), nn.Parameter(T(2, 2)),
              T(4, 2)[::2], torch.zeros(0, 2), T(2, 2)):
        w.call(g, x)
    with torch.inference_mode():
        x = T(2, 2)
    w.call(g, x)


@rule
def test_rule_48_consumed_only(w):
    def f(x):
        y = x * 2
        return y, x.is_leaf, x.grad_fn is None, x._base is None, x.storage_offset(), x.grad

    g = w.compile(f)
    x = T(4)
    w.call(g, x)
    w.hit(g, x)
    w.call(g, x[1:4])
    w.call(g, T(5)[1:])
    w.call(g, T(5).requires_grad_()[1:])
    x = T(4).requires_grad_()
    w.call(g, x)
    (x * x).sum().backward()
    w.call(g, x)
    x.grad = None
    w.call(g, x)


@rule
def test_rule_49_identity_proves_nothing(w):
    layer = nn.Linear(3, 3)

    def f(x):
        return layer(x)

    g = w.compile(f)
    w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    layer.weight.data = torch.ones(2, 3)
    layer.bias.data = torch.ones(2)
    w.call(g, T(1, 3))
    layer.weight.requires_grad_(False)
    w.call(g, T(1, 3))
    layer.weight.data = torch.ones(3, 2).t()
    w.call(g, T(1, 3))
    layer.bias.data = torch.ones(2, dtype=torch.float64)
    w.call(g, T(1, 3))
    layer.double()
    w.call(g, T(1, 3).double())
    layer.weight.data.resize_(1, 3)
    layer.bias.data.resize_(1)
    w.call(g, T(1, 3).double())
    x = T(2, 2)
    torch.utils.swap_tensors(x, other := torch.zeros(3, 3))
    h = w.compile(lambda x: x + 1)
    w.call(h, x)
    torch.utils.swap_tensors(x, other)
    w.call(h, x)
    x.resize_(1)
    w.call(h, x)


@rule
def test_rule_50_attributes_of_tensors(w):
    def f(x):
        y = x * 2
        y.tag = "new"
        z = y.view(-1)
        x.seen = getattr(x, "seen", 0) + 1
        return y, hasattr(z, "tag"), hasattr(x, "tag"), x.seen, hasattr(y.clone(), "tag")

    g = w.compile(f)
    x = T()
    for _ in range(4):
        w.call(g, x)
        w.see(x)
    w.call(g, T())
    x.tag = 1
    w.call(g, x)


@rule
def test_rule_51_overlap(w):
    def f(a, b):
        c = b + 1
        a.mul_(2)
        d = b + 1
        b[0] = 50
        return c, d, a + b

    g = w.compile(f)
    x = T(4)
    w.call(g, T(2), T(2))
    w.hit(g, T(2), T(2))
    w.call(g, x[:2], x[2:])
    w.call(g, x[:2], x[1:3])
    w.see(x)
    w.call(g, x, x)
    w.see(x)
    w.call(g, x, x.detach())
    w.call(g, x, x.view(2, 2).view(4))
    w.call(g, T(2), T(2))


@rule
def test_rule_51_same_parameter_twice(w):
    a, b = nn.Parameter(T()), nn.Parameter(T())
    holder = nn.ParameterList([a, b])

    def f(x):
        with torch.no_grad():
            holder[0].add_(1)
        return x * holder[1]

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    holder[1] = a
    w.call(g, T())
    w.call(g, T())


@rule
def test_rule_52_returned_arguments_and_views(w):
    def f(x, flag):
        return x, x[1:], x.view(-1), x.contiguous(), x.to(torch.float32), x.detach(), torch.zeros(2), flag

    g = w.compile(f)
    x = T()
    w.call(g, x, 1)
    w.hit(g, x, 1)
    y = T(3, 2).t()
    w.call(lambda: w.compile(lambda x: (x.contiguous(), x.reshape(-1)))(y))
    out = g(x, 1)
    w.see(out[0] is x, out[1]._base is x, out[3] is x, out[6])
    out[6].fill_(5)
    w.see(g(x, 1)[6])
    out[1].add_(1)
    w.see(x._version, x)


@rule
def test_rule_53_grad_is_a_path(w):
    p = nn.Parameter(T())

    def f(x):
        y = (p * x).sum()
        y.backward()
        g = p.grad
        return g * 2, g is p.grad

    g = w.compile(f)
    for i in range(4):
        w.call(g, T())
        w.see(p.grad)
    p.grad = None
    w.call(g, T())
    p.grad = torch.ones(3)
    w.call(g, T())
    w.see(p.grad)


@rule
def test_rule_53_hooks_run_later(w):
    log = []
    factor = [2]

    def f(x):
        y = x * 3
        y.register_hook(lambda grad: (log.append("hook"), grad * factor[0])[1])
        return y.sum()

    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            log.append("forward")
            ctx.k = factor[0]
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            log.append("backward")
            return grad * ctx.k * factor[0]

    def custom(x):
        return Fn.apply(x).sum()

    def body(x):
        log.append("body")
        return (x * factor[0]).sin()

    def check(x):
        return checkpoint(body, x, use_reentrant=False).sum()

    for fn in (f, custom, check):
        factor[0] = 2
        g = w.compile(fn)
        for i in range(4):
            x = T().requires_grad_()
            out = w.call(g, x)
            if i == 2:
                factor[0] = 5
            out.backward()
            w.see(x.grad, log)


@rule
def test_rule_53_saved_tensor_hooks(w):
    log = []

    def f(x):
        return (x * x).exp().sum()

    g = w.compile(f)
    for i in range(4):
        x = T().requires_grad_()
        if i < 2:
            out = w.call(g, x)
        else:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append("pack"), t)[1],
                                                          lambda t: (log.append("unpack"), t * 2)[1]):
                out = w.call(g, x)
        out.backward()
        w.see(x.grad, log)


@rule
def test_rule_54_patched_function(w):
    def f(x):
        return torch.relu(x) + torch.sin(x) + F.relu(x)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = torch.sin
    torch.sin = lambda x: x * 100
    try:
        w.call(g, T())
    finally:
        torch.sin = old
    old = F.relu
    F.relu = lambda x: x * 200
    try:
        w.call(g, T())
    finally:
        F.relu = old
    w.call(g, T())


@rule
def test_rule_54_override_and_modes(w):
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(("mode", func.__name__))
            return func(*args, **(kwargs or {}))

    class Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(("dispatch", str(func)))
            return func(*args, **(kwargs or {}))

    log = []

    def f(x):
        return torch.relu(x * 2).sum()

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    w.call(g, T().as_subclass(Mine))
    w.see(log)
    w.call(g, T().as_subclass(Mine))
    w.see(log)
    for mode in (Mode, Dispatch):
        for _ in range(2):
            with mode():
                out = g(T())
            w.see(out, log)
    w.hit(g, T())
    w.see(log)


@rule
def test_rule_55_python_leaves(w):
    def f(x):
        return F.dropout(x, 0.5, training=True) + F.gelu(x)

    def bad(x):
        return F.softmax(x)            # warns about the dimension

    def worse(x):
        return F.dropout(x, 2.0)

    for fn in (f, bad, worse):
        g = w.compile(fn)
        for _ in range(4):
            w.call(g, T())
    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = F.dropout
    F.dropout = lambda x, p, training: x + 1000
    try:
        w.call(g, T())
    finally:
        F.dropout = old
    code = F.dropout.__code__
    F.dropout.__code__ = (lambda input, p=0.5, training=True, inplace=False: input + 7).__code__
    try:
        w.call(g, T())
    finally:
        F.dropout.__code__ = code
    w.call(g, T())


@rule
def test_rule_55_init(w):
    def f(n):
        t = torch.empty(n, n)
        nn.init.xavier_uniform_(t)
        nn.init.normal_(t[0])
        return nn.init.zeros_(t[1:]) + t[0]

    g = w.compile(f)
    for _ in range(3):
        w.call(g, 3)


@rule
def test_rule_56_default_dtype_and_device(w):
    def f(x):
        return torch.zeros(2) + x, torch.get_default_dtype(), torch.tensor(1.5), torch.is_tensor(x), hash(x) == id(x)

    g = w.compile(f)
    x = torch.ones(2)
    w.call(g, x)
    w.hit(g, x)
    torch.set_default_dtype(torch.float64)
    w.call(g, torch.ones(2))
    torch.set_default_dtype(torch.float32)
    w.call(g, torch.ones(2))
    with torch.device("meta"):
        out = w.compile(lambda: torch.zeros(2))()
    w.see(out.device.type)
    torch.set_default_device(None)  # from here on get_default_device() of torch 2.6 raises
    h = w.compile(lambda: (torch.zeros(2).device.type, torch.get_default_device().type))
    w.call(h)
    w.call(h)
    torch.set_default_device("meta")
    w.see(h())
    w.see(h())
    torch.set_default_device(None)
    w.call(h)
    with torch.device("meta"):
        w.call(h)  # torch 2.6 raises


@rule
def test_rule_56_seeds(w):
    def f(x):
        a = torch.rand(2)
        state = torch.get_rng_state()
        torch.manual_seed(7)
        b = torch.rand(2)
        torch.set_rng_state(state)
        return a, b, torch.rand(2), torch.initial_seed()

    g = w.compile(f)
    for i in range(4):
        w.call(g, T())


@rule
def test_rule_56_default_dtype_set_inside(w):
    def f(x, kind):
        a = torch.zeros(1)
        torch.set_default_dtype(kind)
        b = torch.zeros(1)
        c = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        return a, b, c

    g = w.compile(f)
    for kind in (torch.float64, torch.float64, torch.float16, torch.float16, torch.float64):
        w.call(g, T(), kind)


@rule
def test_rule_57_hooks_of_modules(w):
    layer = nn.Linear(3, 3)

    def f(x):
        return layer(x)

    log = []
    g = w.compile(f)
    w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    handle = layer.register_forward_hook(lambda mod, args, out: (log.append("post"), out * 2)[1])
    w.call(g, T(1, 3))
    w.call(g, T(1, 3))
    w.see(log)
    handle.remove()
    w.call(g, T(1, 3))
    handle = layer.register_forward_pre_hook(lambda mod, args: (args[0] * 5,))
    w.call(g, T(1, 3))
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda mod, args, out: out + 100)
    w.call(g, T(1, 3))
    handle.remove()
    handle = layer.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 3,))
    x = T(1, 3).requires_grad_()
    w.call(g, x).sum().backward()
    w.see(x.grad)
    handle.remove()
    x = T(1, 3).requires_grad_()
    w.call(g, x).sum().backward()
    w.see(x.grad)


@rule
def test_rule_58_structure_of_modules(w):
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

    def f(x):
        return net(x), [name for name, _ in net.named_children()], [n for n, _ in net.named_parameters()]

    g = w.compile(f)
    w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    first = net._modules.pop("0")
    net._modules["0"] = first
    w.call(g, T(1, 3))
    modules = dict(net._modules)
    net._modules.clear()
    net._modules.update({k: modules[k] for k in "012"})
    net[1] = nn.Tanh()
    w.call(g, T(1, 3))
    net[1].__class__ = nn.Sigmoid
    w.call(g, T(1, 3))
    net[2].forward = lambda x: x + 50
    w.call(g, T(1, 3))
    del net[2].forward
    net[2].bias = None
    w.call(g, T(1, 3))
    net.__dict__["_modules"] = {"only": nn.ReLU()}
    w.call(g, T(1, 3))
    old = nn.Linear.forward
    net.__dict__["_modules"] = {"a": nn.Linear(3, 3)}
    w.call(g, T(1, 3))
    nn.Linear.forward = lambda self, x: x * 7
    try:
        w.call(g, T(1, 3))
    finally:
        nn.Linear.forward = old
    w.call(g, T(1, 3))


@rule
def test_rule_58_shadowing(w):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.register_buffer("scale", torch.ones(1) * 2)

        def forward(self, x):
            return self.a(x) * self.scale

    net = Net()
    g = w.compile(lambda x: net(x))
    w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    net.__dict__["a"] = lambda x: x + 9
    w.call(g, T(1, 3))
    del net.__dict__["a"]
    Net.a = lambda self, x: x + 11
    w.call(g, T(1, 3))
    del Net.a
    net.scale = torch.ones(1) * 3
    w.call(g, T(1, 3))
    del net.scale
    net.scale = 4
    w.call(g, T(1, 3))
    net.eval()
    w.call(g, T(1, 3))
    del net.scale, net._parameters
    w.call(g, T(1, 3))


@rule
def test_rule_58_training_flag_and_batch_norm(w):
    norm = nn.BatchNorm1d(3)
    g = w.compile(lambda x: norm(x))
    for i in range(6):
        norm.train(i < 4)
        w.call(g, T(2, 3))
        w.see(norm.running_mean, norm.num_batches_tracked)


@rule
def test_rule_59_weights_written_without_a_counter(w):
    layer = nn.Linear(3, 3)
    for p in layer.parameters():
        p.requires_grad_(False)
    g = w.compile(lambda x: layer(x))
    w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    layer.weight.data.fill_(2)
    w.hit(g, T(1, 3))
    layer.weight.numpy()[0, 0] = 50
    w.hit(g, T(1, 3))
    with torch.inference_mode():
        layer.weight = nn.Parameter(torch.ones(3, 3), requires_grad=False)
        with warnings.catch_warnings():
            w.call(g, T(1, 3))
