"""Random arguments for operators that autograd calls: gradients beside what the operator was given, sometimes wrong ones."""

import torch

aten = torch.ops.aten


def floats(m, *sizes):
    return m.tensor(sizes or None, m.pick(torch.float32, torch.float32, torch.float64, torch.bfloat16))


def like(m, x):
    """Sizes, dtype and mostly the layout of x; rarely something else."""
    if m.chance(0.05):
        return m.tensor()
    return m.same(x, x.dtype if m.chance(0.95) else m.dtype())


def exactly(m, x):
    """... for kernels that do not check what they are given."""
    return m.same(x, x.dtype)


def activation(*numbers):
    def make(m):
        x = floats(m)
        g = like(m, x) if m.chance(0.8) else m.broadcast(x, x.dtype)
        return (g, x, *numbers), {}

    return make


def gelu(m):
    args, _ = activation()(m)
    return args, {"approximate": m.pick("none", "tanh")}


def elu(m):
    x = floats(m)
    return (like(m, x), 1.5, 1.1, 0.9, m.pick(True, False), x), {}


def glu(m):
    x = floats(m, *[m.size() * m.pick(1, 2) for _ in range(m.rng.randint(1, 4))])
    dim = m.dim(x.dim())
    half = list(x.shape)
    if -x.dim() <= dim < x.dim():
        half[dim] //= 2
    return (m.tensor(half, x.dtype), x, dim), {}


def three(m):
    x = floats(m)
    return (like(m, x), x, like(m, x)), {}


def prelu(m):
    (g, x, weight), _ = three(m)
    return (g, x, weight if m.chance(0.5) else m.broadcast(x, x.dtype)), {}


def loss(*numbers, weight=False):
    def make(m):
        x = floats(m)
        reduction = m.pick(0, 1, 2)
        g = like(m, x) if reduction == 0 or m.chance(0.05) else m.tensor([], x.dtype)
        weights = [m.pick(None, like(m, x))] if weight else []
        return (g, x, like(m, x), *weights, reduction, *numbers), {}

    return make


def nll(m):
    x = floats(m, m.size(), m.size())
    target = torch.randint(0, x.shape[1], (x.shape[0],))
    reduction = m.pick(0, 1, 2)
    weight = m.pick(None, None, m.tensor([x.shape[1]], x.dtype))
    g = m.tensor([x.shape[0]] if reduction == 0 else [], x.dtype)
    return (g, x, target, weight, reduction, -100, torch.ones((), dtype=x.dtype)), {}


def rows_of(m, x, reduction):
    return m.tensor([x.shape[0]] if (reduction == 0) != m.chance(0.05) else [], x.dtype)


def multi_margin(m):
    x = floats(m, m.size(), m.size())
    target, reduction = torch.randint(0, x.shape[1], (x.shape[0] + m.chance(0.05),)), m.pick(0, 1, 2)
    return (rows_of(m, x, reduction), x, target, m.pick(1, 1, 2, 3), 0.75, m.pick(None, None, m.tensor([x.shape[1]], x.dtype)), reduction), {}


def multilabel_margin(m):
    x = floats(m, m.size(), m.size())
    targets, reduction = torch.randint(-1, x.shape[1], (x.shape[0], x.shape[1] + m.chance(0.05))), m.pick(0, 1, 2)
    return (rows_of(m, x, reduction), x, targets, reduction, torch.zeros(targets.shape, dtype=x.dtype)), {}  # which ones are targets is a matter of data


def gamma_grad(m):
    x = floats(m)
    return (x, like(m, x)), {}


def softmax(m):
    x = floats(m)
    return (like(m, x), x, m.dim(x.dim()), x.dtype if m.chance(0.9) else m.dtype()), {}


def mask(m):
    """Which gradients are asked for: some, or eager's kernels fail."""
    return m.pick([True, True, True], [True, True, True], [True, False, False], [True, False, True], [True, True, False])


def layer_norm(m):
    x = floats(m, *m.sizes(1, 4))
    normal = list(x.shape[m.rng.randrange(x.dim()):])
    weight, bias = (m.pick(None, m.tensor(normal, x.dtype)) for _ in range(2))
    _, mean, rstd = aten.native_layer_norm(x, normal, weight if bias is not None else None, bias if weight is not None else None, 1e-5)
    asked = mask(m)
    return (exactly(m, x), x, normal, mean, rstd, weight, bias, [asked[0], asked[1] and weight is not None, asked[2] and bias is not None]), {}


def group_norm(m):
    x = floats(m, m.size(), m.pick(2, 4, 6), *m.sizes(0, 3, 0))
    last = x.dim() == 4 and m.chance(0.3)  # autograd gives both in one of these layouts, and the kernel counts on it
    x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    n, c, groups = x.shape[0], x.shape[1], m.pick(1, 2)
    places = x.numel() // (n * c)
    weight = m.pick(None, m.tensor([c], x.dtype))
    _, mean, rstd = aten.native_group_norm(x, None, None, n, c, places, groups, 1e-5)
    asked = [on and (i == 0 or weight is not None) for i, on in enumerate(mask(m))]
    return (torch.rand_like(x), x, mean, rstd, weight, n, c, places, groups, asked), {}


def batch_norm(m):
    x = floats(m, m.size() + 1, m.size(), *m.sizes(0, 3, 0))
    c, train = x.shape[1], m.pick(True, False)
    stats = [torch.rand(c).to(x.dtype) + 0.5 for _ in range(4)]
    running = stats[:2] if not train or m.chance(0.5) else [None, None]
    weight = m.pick(None, m.tensor([c], x.dtype))
    return (exactly(m, x), x, weight, *running, *(stats[2:] if train else [m.pick(None, stats[2])] * 2), train, 1e-5, mask(m)), {}


def weight_norm(m):
    v = m.tensor([m.size() for _ in range(m.rng.randint(1, 4))], torch.float32)
    g = m.tensor([v.shape[0]] + [1] * (v.dim() - 1), v.dtype)
    return (exactly(m, v), v, g, m.same(g, g.dtype), 0), {}


def select(m):
    x = m.tensor(m.sizes(1, 5))
    dim = m.dim(x.dim())
    part = list(x.shape)
    if -x.dim() <= dim < x.dim():
        del part[dim]
    return (m.tensor(part, x.dtype), list(x.shape), dim, m.pick(0, 0, -1, 2)), {}


def slice_(m):
    x = m.tensor(m.sizes(1, 5))
    dim, start, end, step = m.dim(x.dim()), m.pick(0, 1, -2), m.pick(1, 2, -1, 9, 9223372036854775807), m.pick(1, 1, 2)
    part = list(x.shape)
    if -x.dim() <= dim < x.dim():
        part[dim] = len(range(*slice(start, end, step).indices(part[dim])))
    return (m.tensor(part, x.dtype), list(x.shape), dim, start, end, step), {}


def put_select(m):
    (part, sizes, dim, index), _ = select(m)
    return (m.tensor(sizes, part.dtype), part if m.chance(0.9) else m.same(part), dim, index), {}


def put_slice(m):
    (part, sizes, dim, *where), _ = slice_(m)
    x, part = m.tensor(sizes, part.dtype), part if m.chance(0.9) else m.same(part)
    return m.pick(((x, part, dim, *where), {}), ((x, part), {"dim": dim, "start": where[0], "end": where[1], "step": where[2]}), ((x, part, dim, None, *where[1:]), {}))


def embedding(m):
    at = m.tensor(m.sizes(0, 3), m.pick(torch.int64, torch.int64, torch.int32)) % 3
    g = m.tensor([*at.shape, m.size()], m.pick(torch.float32, torch.float64))
    return (g, at, m.pick(3, 5), m.pick(-1, 0), m.pick(False, False, True)), {}


def convolution(m):
    n, groups = m.rng.randint(1, 3), m.pick(1, 1, 2)
    x = m.tensor([m.size(), groups * m.pick(1, 2), *(m.rng.randint(5, 8) for _ in range(n))], torch.float32)
    w = m.tensor([groups * m.pick(1, 3), x.shape[1] // groups, *(m.rng.randint(1, 3) for _ in range(n))], torch.float32)
    where = [m.pick(1, 2)] * n, [m.pick(0, 1)] * n, [m.pick(1, 1, 2)] * n, False, [0] * n, groups
    g = exactly(m, aten.convolution(x, w, None, *where))
    return (g, x, w, [w.shape[0]], *where, m.pick(mask(m), [False, True, True])), {}


def pool(m):
    return [m.pick(2, 3)] * 2, [m.pick(1, 2)] * 2, [m.pick(0, 1)] * 2


def image(m):
    return m.tensor([m.size(), m.size(), m.rng.randint(4, 7), m.rng.randint(4, 7)], m.pick(torch.float32, torch.float32, torch.float64))


def max_pool(m):
    x, (kernel, stride, pad) = image(m), pool(m)
    y, at = aten.max_pool2d_with_indices(x, kernel, stride, pad)
    return (exactly(m, y), x, kernel, stride, pad, [1, 1], False, at), {}


def avg_pool(m):
    x, (kernel, stride, pad) = image(m), pool(m)
    y = aten.avg_pool2d(x, kernel, stride, pad)
    return (exactly(m, y), x, kernel, stride, pad, False, m.pick(True, False), None), {}


def adaptive_pool(m):
    x = image(m)
    return (exactly(m, x.new_zeros([*x.shape[:2], m.pick(1, 2), m.pick(1, 3)])), x), {}


def attention(m):
    sizes = [m.size(), m.pick(1, 2), m.rng.randint(1, 5), m.pick(4, 8)]
    q = m.tensor(sizes, torch.float32)
    k, v = (m.tensor([*sizes[:2], m.pick(sizes[2]), sizes[3]], torch.float32) for _ in range(2))
    causal = m.pick(True, False)
    y, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return (exactly(m, y), q, k, v, y, sums, 0.0, causal), {}


BACKWARD = {
    "threshold_backward.default": activation(0.5), "sigmoid_backward.default": activation(), "tanh_backward.default": activation(),
    "silu_backward.default": activation(), "gelu_backward.default": gelu, "mish_backward.default": activation(),
    "softplus_backward.default": activation(1.5, 2), "leaky_relu_backward.default": activation(0.1, False),
    "hardtanh_backward.default": activation(-0.5, 0.5), "hardsigmoid_backward.default": activation(),
    "hardswish_backward.default": activation(), "hardshrink_backward.default": activation(0.5),
    "softshrink_backward.default": activation(0.5), "elu_backward.default": elu, "glu_backward.default": glu,
    "_prelu_kernel_backward.default": prelu, "log_sigmoid_backward.default": three, "mse_loss_backward.default": loss(),
    "smooth_l1_loss_backward.default": loss(1.5), "huber_loss_backward.default": loss(1.5),
    "binary_cross_entropy_backward.default": loss(weight=True), "nll_loss_backward.default": nll,
    "multi_margin_loss_backward.default": multi_margin, "multilabel_margin_loss_backward.default": multilabel_margin, "_standard_gamma_grad.default": gamma_grad,
    "_softmax_backward_data.default": softmax, "_log_softmax_backward_data.default": softmax,
    "native_layer_norm_backward.default": layer_norm, "native_group_norm_backward.default": group_norm,
    "native_batch_norm_backward.default": batch_norm, "_weight_norm_interface_backward.default": weight_norm,
    "select_scatter.default": put_select, "slice_scatter.default": put_slice, "select_backward.default": select, "slice_backward.default": slice_, "embedding_dense_backward.default": embedding,
    "convolution_backward.default": convolution, "max_pool2d_with_indices_backward.default": max_pool,
    "avg_pool2d_backward.default": avg_pool, "_adaptive_avg_pool2d_backward.default": adaptive_pool,
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": attention,
}
