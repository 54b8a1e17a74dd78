"""Random arguments for the operators that have shape rules: every dtype, layouts of all kinds, sometimes wrong ones."""

import random

import torch
from arguments_backward import BACKWARD

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]
DTYPES = [*FLOATS, *INTS, torch.bool]


class Maker:
    """Makes tensors and numbers from one stream of random choices."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *choices):
        return self.rng.choice(choices)

    def size(self):
        return self.rng.choice([1, 1, 2, 3, 4, 5])

    def sizes(self, least=0, most=5, zero=0.03):
        ndim = self.rng.randint(least, most)
        return [0 if self.chance(zero) else self.size() for _ in range(ndim)]

    def dtype(self):
        return self.pick(torch.float32, torch.float32, *DTYPES)

    def fill(self, sizes, dtype):
        if dtype == torch.bool:
            return torch.rand(sizes) < 0.5
        if dtype.is_floating_point:
            return torch.rand(sizes).to(dtype) + 0.25
        return torch.randint(1, 4, tuple(sizes)).to(dtype)

    def permuted(self, sizes, dtype):
        order = list(range(len(sizes)))
        self.rng.shuffle(order)
        made = self.fill([sizes[d] for d in order], dtype)
        return made.permute([order.index(d) for d in range(len(sizes))])

    def expanded(self, sizes, dtype):
        made = self.tensor([1 if self.chance(0.5) else s for s in sizes], dtype, deep=True)
        return made.expand(sizes)

    def spread(self, sizes, dtype):
        if not sizes:
            return self.fill([3], dtype)[1]
        d = self.rng.randrange(len(sizes))
        room = self.tensor([s * 2 + 1 if i == d else s for i, s in enumerate(sizes)], dtype, deep=True)
        return room.narrow(d, 1, sizes[d] * 2)[(slice(None),) * d + (slice(None, None, 2),)]

    def channels_last(self, sizes, dtype):
        if len(sizes) not in (4, 5):
            return self.fill(sizes, dtype)
        return self.fill(sizes, dtype).contiguous(
            memory_format=torch.channels_last if len(sizes) == 4 else torch.channels_last_3d)

    def odd_ones(self, sizes, dtype):
        """Dims of size 1 with strides of no meaning."""
        made = self.fill(sizes, dtype)
        strides = [self.rng.choice([1, 2, 7, made.stride(d)]) if s == 1 else made.stride(d) for d, s in enumerate(sizes)]
        return made.as_strided(sizes, strides)

    def tensor(self, sizes=None, dtype=None, deep=False):
        sizes = self.sizes() if sizes is None else list(sizes)
        dtype = dtype or self.dtype()
        kinds = [self.fill, self.fill, self.permuted, self.channels_last, self.channels_last, self.odd_ones]
        return self.rng.choice(kinds if deep else [*kinds, self.expanded, self.spread])(sizes, dtype)

    def same(self, like, dtype=None):
        """The sizes of `like`, often its layout too."""
        dtype = dtype or self.dtype()
        if self.chance(0.4):
            return torch.empty_like(like, dtype=dtype).copy_(self.fill(like.shape, dtype))
        return self.tensor(like.shape, dtype)

    def broadcast(self, like, dtype=None):
        """Sizes that broadcast with those of `like`; rarely not."""
        dtype = dtype or self.dtype()
        if self.chance(0.4):
            return self.same(like, dtype)
        if self.chance(0.03):
            return self.tensor(dtype=dtype)
        sizes = [1 if self.chance(0.3) else s for s in like.shape]
        if self.chance(0.4):
            sizes = sizes[self.rng.randint(0, len(sizes)):]
        elif self.chance(0.15) and len(sizes) < 5:
            sizes = [2, *sizes]
        return self.tensor(sizes, dtype)

    def number(self):
        return self.rng.choice([0, 1, 2, 3, -1, 0.5, 2.0, 1.5, True, False])

    def operand(self, like, dtype=None):
        if self.chance(0.35):
            return self.number()
        return self.broadcast(like, dtype or self.pick(like.dtype, like.dtype, self.dtype()))

    def dim(self, ndim):
        n = max(ndim, 1)
        return self.rng.randint(-n, n - 1) if not self.chance(0.02) else n

    def dims(self, ndim):
        chosen = self.rng.sample(range(ndim), self.rng.randint(0, ndim))
        return [d - ndim if self.chance(0.3) else d for d in chosen]

    def float_tensor(self, sizes=None):
        return self.tensor(sizes, self.pick(torch.float32, torch.float32, *FLOATS))

    def format(self, preserve=True):
        formats = [torch.contiguous_format, torch.channels_last, torch.channels_last_3d]
        return self.rng.choice([*formats, torch.preserve_format] if preserve else formats)


# -- arguments by operator: maker -> (args, kwargs) -------------------------------------------------------------------


def one(m):
    return (m.tensor(),), {}


def two(m):
    a = m.tensor()
    return (a, m.operand(a)), {}


def tensors(m):
    a = m.tensor()
    return (a, m.broadcast(a, m.pick(a.dtype, m.dtype()))), {}


def number(m):
    return (m.tensor(), m.number()), {}


def three(m):
    a = m.tensor(dtype=m.pick(*FLOATS) if m.chance(0.8) else None)
    b = m.broadcast(a, m.pick(a.dtype, m.dtype()))
    return (a, b, m.broadcast(b, m.pick(a.dtype, m.dtype()))), {}


def scaled(m):
    args, _ = two(m)
    return args, {"alpha": m.number()} if m.chance(0.3) else {}


def rsub(m):
    args, _ = number(m)
    return args + ((m.number(),) if m.chance(0.3) else ()), {}


def div_mode(m):
    args, _ = two(m)
    return args, {"rounding_mode": m.pick(None, "trunc", "floor")}


def where(m):
    cond = m.tensor(dtype=torch.bool)
    a = m.broadcast(cond)
    b = m.broadcast(a, m.pick(a.dtype, m.dtype()))
    return (cond, a, b), {}


def masked_fill(m):
    a = m.tensor()
    return (a, m.broadcast(a, torch.bool), m.number()), {}


def masked_fill_tensor(m):
    a = m.tensor()
    return (a, m.broadcast(a, torch.bool), m.fill([], m.dtype())), {}


def clamp(m):
    return (m.tensor(), m.pick(None, 0, 0.5, 1), m.pick(None, 2, 2.5)), {}


def lerp(m):
    a = m.float_tensor()
    return (a, m.broadcast(a, m.pick(a.dtype, m.dtype())), 0.5), {}


def threshold(m):
    return (m.float_tensor() if m.chance(0.8) else m.tensor(), 0.1, 20), {}


def glu(m):
    a = m.float_tensor(m.sizes(1, 4))
    return (a, m.dim(a.dim())), {}


def loss(m):
    a = m.float_tensor()
    return (a, m.same(a, m.pick(a.dtype, a.dtype, m.dtype())), m.pick(0, 1, 2)), {}


def overwrite(m):
    a = m.tensor()
    return (a, m.broadcast(a)), {}


def view(m):
    a = m.tensor(m.sizes(0, 5))
    sizes = list(a.shape)
    for _ in range(m.rng.randint(0, 3)):
        i = m.rng.randrange(len(sizes) + 1)
        if m.chance(0.5) and i + 1 < len(sizes):
            sizes[i:i + 2] = [sizes[i] * sizes[i + 1]]
        elif i < len(sizes) and sizes[i] and sizes[i] % 2 == 0:
            sizes[i:i + 1] = [2, sizes[i] // 2]
        else:
            sizes[i:i] = [1]
    if sizes and m.chance(0.3):
        sizes[m.rng.randrange(len(sizes))] = -1
    return (a, sizes), {}


def expand(m):
    a = m.tensor(m.sizes(0, 4))
    sizes = [m.pick(s, -1, 3) if s == 1 else m.pick(s, -1) for s in a.shape]
    return (a, [m.pick(2, 1, 0, 3) for _ in range(m.rng.randint(0, 2))] + sizes), {}


def permute(m):
    a = m.tensor()
    order = list(range(a.dim()))
    m.rng.shuffle(order)
    return (a, [d - a.dim() if m.chance(0.3) else d for d in order]), {}


def transpose(m):
    a = m.tensor()
    return (a, m.dim(a.dim()), m.dim(a.dim())), {}


def unsqueeze(m):
    a = m.tensor(m.sizes(0, 4))
    return (a, m.dim(a.dim() + 1)), {}


def along(m):
    a = m.tensor()
    return (a, m.dim(a.dim())), {}


def several(m):
    a = m.tensor()
    return (a, m.dims(a.dim())), {}


def slice_(m):
    a = m.tensor(m.sizes(1, 5))
    return (a, m.dim(a.dim()), m.pick(None, 0, 1, -2, 9), m.pick(None, 1, 2, -1, 9223372036854775807), m.pick(1, 1, 2, 3)), {}


def select(m):
    a = m.tensor(m.sizes(1, 5))
    return (a, m.dim(a.dim()), m.pick(0, 1, -1, 3)), {}


def split(m):
    a = m.tensor(m.sizes(1, 5))
    return (a, m.pick(1, 2, 3, 7), m.dim(a.dim())), {}


def split_sizes(m):
    a = m.tensor(m.sizes(1, 5))
    d = m.dim(a.dim())
    size = a.shape[d] if -a.dim() <= d < a.dim() else 1
    first = m.rng.randint(0, size)
    return (a, [first, size - first], d), {}


def as_strided(m):
    a = m.tensor(m.sizes(2, 3, 0))
    return (a, [m.size(), m.size()], [m.pick(0, 1, 2), m.pick(0, 1, 2)], m.pick(None, 0, 1)), {}


def diagonal(m):
    a = m.tensor(m.sizes(2, 4))
    return (a, m.pick(0, 1, -1, 3, -4), m.dim(a.dim()), m.dim(a.dim())), {}


def unfold(m):
    a = m.tensor(m.sizes(1, 4))
    return (a, m.dim(a.dim()), m.pick(1, 2), m.pick(1, 2, 3)), {}


def options(m, with_format=True):
    kwargs = {}
    if m.chance(0.5):
        kwargs["dtype"] = m.dtype()
    if m.chance(0.3):
        kwargs["device"] = torch.device("cpu")
    if m.chance(0.2):
        kwargs["pin_memory"] = False
    if with_format and m.chance(0.4):
        kwargs["memory_format"] = m.format()
    return kwargs


def empty(m):
    kwargs = options(m, False)
    if m.chance(0.3):
        kwargs["memory_format"] = m.format(False)
    return (m.sizes(),), kwargs


def sized(m):
    return (m.sizes(),), options(m, False)


def full(m):
    return (m.sizes(), m.number()), options(m, False)


def scalar(m):
    return (m.number(),), options(m, False)


def new(m):
    return (m.tensor(), m.sizes()), options(m, False)


def new_full(m):
    return (m.tensor(), m.sizes(), m.number()), options(m, False)


def like(m):
    return (m.tensor(),), options(m)


def full_like(m):
    return (m.tensor(), m.number()), options(m)


def clone(m):
    return (m.tensor(),), {"memory_format": m.format()} if m.chance(0.6) else {}


def numbers(count):
    def make(m):
        whole = m.chance(0.6)
        made = [m.pick(0, 1, 2), m.pick(5, 6, 9), m.pick(1, 2, 3)] if whole else [m.pick(0, 0.5), m.pick(5, 6.25, 0.3), m.pick(1, 0.3, 0.1)]
        return tuple(made[3 - count:] if count == 3 else made[2 - count:2]), options(m, False)
    return make


def eye(count):
    return lambda m: (tuple(m.size() for _ in range(count)), options(m, False))


def cat(m):
    a = m.tensor(m.sizes(1, 5))
    d = m.dim(a.dim())
    parts = [a]
    for _ in range(m.rng.randint(0, 3)):
        sizes = list(a.shape)
        if -a.dim() <= d < a.dim():
            sizes[d] = m.size()
        parts.append(m.tensor(sizes, m.pick(a.dtype, a.dtype, m.dtype())))
    if m.chance(0.2):  # what caches of keys and values begin with
        parts.insert(m.rng.randint(0, len(parts)), m.tensor([0], m.pick(a.dtype, a.dtype, m.dtype())))
    return (parts, d), {}


def stack(m):
    a = m.tensor(m.sizes(0, 4))
    return ([a, *(m.same(a, m.pick(a.dtype, a.dtype, m.dtype())) for _ in range(m.rng.randint(0, 3)))], m.dim(a.dim() + 1)), {}


def repeat(m):
    a = m.tensor(m.sizes(0, 4))
    return (a, [m.pick(1, 2, 3, 0) for _ in range(a.dim() + m.pick(0, 0, 1))]), {}


def pad(m):
    a = m.tensor(m.sizes(1, 5))
    choices = m.pick([0, 1, 2, -1], [0, 0, -1])
    return (a, [m.pick(*choices) for _ in range(2 * m.rng.randint(1, a.dim()))], m.number()), {}


def roll(m):
    a = m.tensor()
    dims = m.dims(a.dim())
    return (a, [m.pick(0, 1, -2) for _ in dims] or [1], dims), {}


def tri(m):
    return (m.tensor(m.sizes(1, 4)), m.pick(0, 1, -1)), {}


def embedding(m):
    return (m.float_tensor([m.size(), m.size()]), m.tensor(m.sizes(0, 3), m.pick(torch.int64, torch.int32)) % 1), {}


def index_select(m):
    a = m.tensor(m.sizes(0, 4))
    return (a, m.dim(a.dim()), torch.zeros(m.size(), dtype=m.pick(torch.int64, torch.int32))), {}


def index_fill(m):
    a = m.tensor(m.sizes(0, 4))
    return (a, m.dim(a.dim()), torch.zeros(m.size(), dtype=torch.int64), m.number()), {}


def gather(m):
    a = m.tensor(m.sizes(0, 4))
    return (a, m.dim(a.dim()), m.tensor([m.rng.randint(1, max(s, 1)) for s in a.shape], torch.int64) * 0), {}


def index(m):
    a = m.tensor(m.sizes(1, 5, 0.1))
    base = m.tensor(m.sizes(0, 3, 0.1), torch.int64) * 0
    indices = [None if m.chance(0.4) else m.broadcast(base, torch.int64) * 0 for _ in range(m.rng.randint(1, a.dim()))]
    if m.chance(0.5):
        indices = [None if i is None else m.tensor(i.shape, torch.int64).clamp_max(0) for i in indices]
    return (a, indices), {}


def reduce_all(m):
    return (m.tensor(),), {}


def reduce_all_dtype(m):
    return (m.tensor(),), {"dtype": m.dtype()} if m.chance(0.4) else {}


def reduce(m):
    a = m.tensor()
    return (a, m.dims(a.dim()), m.chance(0.5)), {}


def reduce_dtype(m):
    a = m.tensor()
    return (a, m.pick(None, m.dims(a.dim()), m.dims(a.dim())), m.chance(0.5)), {"dtype": m.dtype()} if m.chance(0.4) else {}


def reduce_one(m):
    a = m.tensor()
    return (a, m.dim(a.dim()), m.chance(0.5)), {}


def count_dims(m):
    a = m.tensor()
    return (a, m.dims(a.dim())), {}


def count_one(m):
    a = m.tensor()
    return (a, m.pick(None, m.dim(a.dim()))), {}


def reduce_one_dtype(m):
    args, _ = reduce_one(m)
    return args, {"dtype": m.dtype()} if m.chance(0.4) else {}


def arg_reduce(m):
    a = m.tensor()
    return (a, m.pick(None, m.dim(a.dim())), m.chance(0.5)), {}


def var(m):
    a = m.float_tensor() if m.chance(0.9) else m.tensor()
    return (a, m.pick(None, m.dims(a.dim()))), {"correction": m.pick(None, 0, 1, 0.5), "keepdim": m.chance(0.5)}


def norm(m):
    a = m.float_tensor() if m.chance(0.9) else m.tensor()
    return (a, m.pick(1, 2, 2.0, float("inf")), m.pick(None, m.dims(a.dim())), m.chance(0.5)), {}


def cumsum(m):
    a = m.tensor()
    return (a, m.dim(a.dim())), {"dtype": m.dtype()} if m.chance(0.4) else {}


def softmax(m):
    a = m.float_tensor() if m.chance(0.9) else m.tensor()
    return (a, m.dim(a.dim()), m.chance(0.05)), {}


def safe_softmax(m):
    a = m.float_tensor()
    return (a, m.dim(a.dim())), {}


def topk(m):
    a = m.tensor()
    return (a, m.pick(0, 1, 2, 3), m.dim(a.dim())), {}


def sort(m):
    a = m.tensor()
    return (a, m.dim(a.dim())), {}


def sort_stable(m):
    a = m.tensor()
    return (a,), {"stable": True, "dim": m.dim(a.dim())}


def matrices(m, batch=()):
    rows, inner, columns = m.size(), m.size(), m.size()
    dtype = m.pick(torch.float32, torch.float32, *DTYPES)
    return (m.tensor([*batch, rows, inner], dtype), m.tensor([*batch, inner, columns], m.pick(dtype, dtype, dtype, m.dtype())))


def mm(m):
    return matrices(m), {}


def bmm(m):
    return matrices(m, [m.size()]), {}


def addmm_of(batch):
    def make(m):
        a, b = matrices(m, [m.size()] if batch else ())
        sizes = [*a.shape[:-1], b.shape[-1]]
        self = m.tensor([1 if m.chance(0.3) else s for s in sizes][m.pick(0, 0, 1):], m.pick(a.dtype, a.dtype, m.dtype()))
        return (self, a, b), {"beta": m.pick(1, 0, 0.5)} if m.chance(0.3) else {}
    return make


def convolution(m):
    n = m.pick(1, 2, 2, 2, 3)
    groups = m.pick(1, 1, 2)
    channels, out = groups * m.pick(1, 2, 3), groups * m.pick(1, 2, 3)
    kernel = [m.pick(1, 1, 2, 3) for _ in range(n)]
    dtype = m.pick(torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16)
    x = m.tensor([m.pick(1, 2), channels, *(m.pick(1, 4, 5, 6) for _ in range(n))], dtype)
    w = m.tensor([out, channels // groups, *kernel], dtype)
    bias = m.tensor([out], dtype) if m.chance(0.5) else None
    one_or_more = lambda *c: [m.pick(*c) for _ in range(n if m.chance(0.7) else 1)]
    return (x, w, bias, one_or_more(1, 2), one_or_more(0, 1), one_or_more(1, 1, 2), m.chance(0.1), [0] * n, groups), {}


def layer_norm(m):
    a = m.float_tensor(m.sizes(1, 4))
    k = m.rng.randint(1, a.dim())
    shape = list(a.shape[-k:])
    dtype = m.pick(a.dtype, a.dtype, torch.float32)
    weight = m.tensor(shape, dtype) if m.chance(0.7) else None
    return (a, shape, weight, m.tensor(shape, dtype) if weight is not None and m.chance(0.7) else None, 1e-5), {}


def group_norm(m):
    groups = m.pick(1, 2)
    n, c = m.size(), groups * m.size()
    a = m.float_tensor([n, c, *m.sizes(0, 3)])
    area = 1
    for s in a.shape[2:]:
        area *= s
    weight = m.tensor([c], a.dtype) if m.chance(0.6) else None
    a = a.contiguous() if m.chance(0.6) else a
    return (a, weight, m.tensor([c], a.dtype) if m.chance(0.5) else None, n, c, area, groups, 1e-5), {}


def batch_norm(legit):
    def make(m):
        a = m.float_tensor([m.size(), m.size(), *m.sizes(0, 3)])
        dtype = m.pick(a.dtype, a.dtype, a.dtype, torch.float32)
        p = lambda: m.tensor([a.shape[1]], dtype)
        args = (a, p() if m.chance(0.7) else None, p() if m.chance(0.7) else None, p(), p())
        return (*args, 0.1, 1e-5) if legit else (*args, False, 0.1, 1e-5), {}
    return make


def batch_norm_training(m):
    args, _ = batch_norm(False)(m)
    return (*args[:3], None, None, True, *args[6:]), {}


def nll_loss(m):
    n, c = m.size(), m.size()
    x = m.tensor([n, c], m.pick(torch.float32, torch.float64))
    weight = m.tensor([c], x.dtype) if m.chance(0.3) else None
    return (x, torch.randint(0, c, (n,)), weight, m.pick(0, 1, 2), -100), {}


def image(m):
    return m.float_tensor([*([m.pick(1, 2)] if m.chance(0.85) else []), m.pick(1, 2, 3), m.pick(1, 4, 5, 6), m.pick(1, 4, 7)])


def max_pool(m):
    pair = lambda *c: [m.pick(*c) for _ in range(m.pick(1, 2))]
    return (image(m), pair(1, 2, 3), m.pick([], pair(1, 2)), pair(0, 1), pair(1, 1, 2), m.chance(0.4)), {}


def avg_pool(m):
    pair = lambda *c: [m.pick(*c) for _ in range(m.pick(1, 2))]
    return (image(m), pair(1, 2, 3), m.pick([], pair(1, 2)), pair(0, 1), m.chance(0.4), m.chance(0.5)), {}


def adaptive(m):
    return (image(m), [m.pick(1, 2, 3), m.pick(1, 2, 3)]), {}


def nearest(m):
    return (image(m), [m.pick(1, 2, 8), m.pick(1, 2, 8)]), {}


def bilinear(m):
    return (image(m), [m.pick(1, 2, 8), m.pick(1, 2, 8)], m.chance(0.5)), {}


def flash(m):
    dtype = m.pick(torch.float32, torch.float32, *FLOATS)
    b, h, lq, lk, d = m.size(), m.size(), m.size(), m.size(), m.pick(1, 4, 8)
    kv = m.pick(h, h, 1)

    def heads(length, h=kv):
        return m.tensor([b, h, length, d], dtype) if m.chance(0.3) else m.fill([b, length, h, d], dtype).transpose(1, 2)
    mask = m.pick(None, torch.zeros([b, 1, lq, lk], dtype=dtype))
    return (heads(lq, h), heads(lk), heads(lk), 0.0, m.chance(0.3) and mask is None), {"attn_mask": mask} if mask is not None else {}


def scatter_of(source):
    def make(m):
        a = m.tensor(m.sizes(0, 4))
        index = m.tensor([m.rng.randint(0 if m.chance(0.05) else 1, max(s, 1)) for s in a.shape], torch.int64) * 0
        if source == "value":
            return (a, m.dim(a.dim()), index, m.number()), {}
        b = m.tensor([s + m.pick(0, 0, 1) for s in index.shape], m.pick(a.dtype, a.dtype, m.dtype()))
        more = (m.pick("sum", "amax", "prod"),) if source == "reduce" else ()
        return (a, m.dim(a.dim()), index, b, *more), {"include_self": m.chance(0.5)} if source == "reduce" else {}
    return make


def index_add(has_alpha):
    def make(m):
        a = m.tensor(m.sizes(0, 4))
        d, n = m.dim(a.dim()), m.size()
        sizes = list(a.shape)
        if -a.dim() <= d < a.dim():
            sizes[d] = n if m.chance(0.9) else 1
        b = m.tensor(sizes, m.pick(a.dtype, a.dtype, m.dtype()))
        index = torch.zeros(n, dtype=m.pick(torch.int64, torch.int64, torch.int32))
        return (a, d, index, b), {"alpha": m.number()} if has_alpha and m.chance(0.3) else {}
    return make


def index_put(m):
    (a, indices), _ = index(m)
    try:
        part = a[tuple(slice(None) if i is None else i for i in indices)]
    except (IndexError, RuntimeError):
        part = a
    return (a, indices, m.broadcast(part, m.pick(a.dtype, a.dtype, m.dtype())), m.chance(0.3)), {}


def weight_norm(m):
    v = m.float_tensor(m.sizes(1, 4, 0))  # eager divides by zero elements
    d = m.pick(0, 0, v.dim() - 1)
    sizes = [s if i == d % v.dim() else 1 for i, s in enumerate(v.shape)]
    return (v, m.tensor(sizes, m.pick(v.dtype, v.dtype, torch.float32)), d), {}


def volume(m, n):
    return m.float_tensor([*([m.pick(1, 2)] if m.chance(0.85) else []), m.pick(1, 2, 3), *(m.pick(1, 3, 4, 5) for _ in range(n))])


def mirror(n):
    return lambda m: ((volume(m, n), [m.pick(0, 1, 2, -1) if m.chance(0.1) else m.pick(0, 1, 2) for _ in range(2 * n)]), {})


def windows(m):
    pair = lambda *c: [m.pick(*c), m.pick(*c)]
    return (volume(m, 2), pair(1, 2, 3), pair(1, 1, 2), pair(0, 1), pair(1, 2)), {}


def resize(n, corners):
    return lambda m: ((volume(m, n), [m.pick(1, 2, 8) for _ in range(n)], *([m.chance(0.5)] if corners else [])), {})


def shuffle(square, fine):
    def make(m):
        n = m.pick(1, 2, 3)
        channels, side = (m.pick(1, 2, 4) * (n * n if square else n) if not fine else m.pick(1, 2, 3)), n if fine else 1
        x = m.float_tensor([m.pick(1, 2, 2, 0), channels + m.chance(0.1), side * m.pick(1, 2, 3), side * m.pick(1, 2, 3) + m.chance(0.1)])
        return (x, n), {}
    return make


def fill_tensor(m):
    return (m.tensor(), m.fill([], m.dtype()) if m.chance(0.9) else m.tensor()), {}


UNARY = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc sigmoid neg abs sign sgn floor ceil trunc round frac bitwise_not logical_not isnan relu hardswish hardsigmoid
silu gelu mish softplus elu leaky_relu hardtanh alias detach t squeeze digamma erfinv lgamma i0 sinc special_entr
special_i0e special_i1 special_i1e isposinf isneginf signbit""".split()
ARGUMENTS = {
    **{f"{name}.default": one for name in UNARY},
    "add.Tensor": scaled, "sub.Tensor": scaled, "rsub.Scalar": rsub, "div.Tensor_mode": div_mode, "pow.Tensor_Scalar": number,
    **{f"{name}.Tensor": two for name in ("mul", "div", "mul_", "div_")},
    **{f"{name}.Tensor": tensors for name in ("remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_and_", "lt_",
                                              "eq_", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_left_shift", "bitwise_right_shift",
                                              "clamp_min", "clamp_max")},
    **{f"{name}.Scalar": number for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod")},
    **{f"{name}.default": tensors for name in ("atan2", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "fmax",
                                               "fmin", "floor_divide", "_prelu_kernel", "logaddexp", "logaddexp2", "hypot", "heaviside")},
    "mul.Scalar": number, "div.Scalar": number,
    "xlogy.Tensor": tensors, "special_xlog1py.default": tensors, "copysign.Tensor": tensors,
    "pow.Tensor_Tensor": tensors, "where.self": where, "masked_fill.Scalar": masked_fill, "masked_fill.Tensor": masked_fill_tensor,
    "clamp.default": clamp, "clamp_min.default": number, "clamp_max.default": number, "lerp.Scalar": lerp, "addcmul.default": three,
    "addcdiv.default": three, "threshold.default": threshold, "glu.default": glu, "mse_loss.default": loss,
    "copy_.default": overwrite, "fill_.Scalar": number, "zero_.default": one,
    "add_.Tensor": scaled, "sub_.Tensor": scaled, "div_.Tensor_mode": div_mode, "clamp_.default": clamp,
    **{f"{name}_.default": one for name in ("relu", "sigmoid", "tanh", "exp", "neg", "silu", "hardswish", "hardtanh", "logical_not")},
    "view.default": view, "_unsafe_view.default": view, "expand.default": expand, "permute.default": permute,
    "transpose.int": transpose, "unsqueeze.default": unsqueeze, "squeeze.dim": along, "squeeze.dims": several,
    "squeeze_.default": one, "squeeze_.dim": along, "squeeze_.dims": several, "unsqueeze_.default": unsqueeze, "t_.default": one,
    "slice.Tensor": slice_, "select.int": select, "split.Tensor": split, "unsafe_split.Tensor": split,
    "split_with_sizes.default": split_sizes, "unsafe_split_with_sizes.default": split_sizes, "unbind.int": along,
    "as_strided.default": as_strided, "diagonal.default": diagonal, "unfold.default": unfold,
    "empty.memory_format": empty, "zeros.default": sized, "ones.default": sized, "full.default": full,
    "scalar_tensor.default": scalar, "new_empty.default": new, "new_zeros.default": new, "new_ones.default": new,
    "new_full.default": new_full, "empty_like.default": like, "zeros_like.default": like, "ones_like.default": like,
    "full_like.default": full_like, "clone.default": clone, "_to_copy.default": like, "arange.default": numbers(1),
    "arange.start": numbers(2), "arange.start_step": numbers(3), "eye.default": eye(1), "eye.m": eye(2),
    "cat.default": cat, "stack.default": stack, "repeat.default": repeat, "constant_pad_nd.default": pad, "roll.default": roll,
    "flip.default": several, "tril.default": tri, "triu.default": tri, "embedding.default": embedding,
    "index_select.default": index_select, "index_fill.int_Scalar": index_fill, "gather.default": gather, "index.Tensor": index,
    "sum.default": reduce_all_dtype, "prod.default": reduce_all_dtype, "mean.default": reduce_all_dtype, "max.default": reduce_all,
    "min.default": reduce_all, "any.default": reduce_all, "all.default": reduce_all, "sum.dim_IntList": reduce_dtype,
    "prod.dim_int": reduce_one_dtype, "mean.dim": reduce_dtype, "amax.default": reduce, "amin.default": reduce,
    "any.dim": reduce_one, "any.dims": reduce, "all.dim": reduce_one, "all.dims": reduce, "argmax.default": arg_reduce,
    "argmin.default": arg_reduce, "max.dim": reduce_one, "min.dim": reduce_one, "logsumexp.default": reduce,
    "var.correction": var, "std.correction": var, "var_mean.correction": var, "std_mean.correction": var,
    "linalg_vector_norm.default": norm, "cumsum.default": cumsum, "cumprod.default": cumsum, "_softmax.default": softmax,
    "_log_softmax.default": softmax, "_safe_softmax.default": safe_softmax, "topk.default": topk, "sort.default": sort,
    "sort.stable": sort_stable, "mm.default": mm, "bmm.default": bmm, "addmm.default": addmm_of(False),
    "baddbmm.default": addmm_of(True), "convolution.default": convolution, "native_layer_norm.default": layer_norm,
    "native_group_norm.default": group_norm, "native_batch_norm.default": lambda m: batch_norm_training(m) if m.chance(0.4) else batch_norm(False)(m),
    "nll_loss_forward.default": nll_loss,
    "_native_batch_norm_legit_no_training.default": batch_norm(True), "max_pool2d_with_indices.default": max_pool,
    "avg_pool2d.default": avg_pool, "_adaptive_avg_pool2d.default": adaptive, "upsample_nearest2d.default": nearest,
    "scatter.src": scatter_of("src"), "scatter.value": scatter_of("value"), "scatter_add.default": scatter_of("src"),
    "masked_fill_.Scalar": masked_fill, "masked_fill_.Tensor": masked_fill_tensor, "scatter_.src": scatter_of("src"), "scatter_.value": scatter_of("value"),
    "scatter_add_.default": scatter_of("src"), "scatter_reduce_.two": scatter_of("reduce"), "index_add_.default": index_add(True), "index_copy_.default": index_add(False),
    "scatter_reduce.two": scatter_of("reduce"), "index_add.default": index_add(True), "index_copy.default": index_add(False),
    "index_put.default": index_put, "index_put_.default": index_put,
    "_weight_norm_interface.default": weight_norm, "im2col.default": windows, "fill_.Tensor": fill_tensor,
    **{f"{kind}_pad{n}d.default": mirror(n) for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d.default": resize(n, False) for n in (1, 2, 3)},
    "upsample_nearest1d.default": resize(1, False), "upsample_nearest3d.default": resize(3, False),
    "upsample_linear1d.default": resize(1, True), "upsample_trilinear3d.default": resize(3, True),
    "upsample_bicubic2d.default": resize(2, True), "rand.default": sized, "randn.default": sized, "rand_like.default": like,
    "randn_like.default": like, "uniform.default": one, "channel_shuffle.default": shuffle(False, False), "pixel_shuffle.default": shuffle(True, False),
    "pixel_unshuffle.default": shuffle(True, True), "log_sigmoid_forward.default": one,
    "upsample_bilinear2d.default": bilinear, "_scaled_dot_product_flash_attention_for_cpu.default": flash,
}



def with_limit(m):
    return (m.float_tensor() if m.chance(0.9) else m.tensor(), m.pick(0.5, 1, 0)), {}


def loss_with_width(m):
    args, _ = loss(m)
    return (*args, 0.5), {}


def entropy(weights):
    def make(m):
        a = m.float_tensor()
        dtype = m.pick(a.dtype, a.dtype, a.dtype, m.dtype())
        return ((a.clamp(0, 1), m.same(a, dtype).clamp(0, 1), *(m.pick(None, None, m.broadcast(a, m.pick(a.dtype, a.dtype, dtype))) for _ in range(weights)), m.pick(0, 1, 2)), {})

    return make


def distances(m):
    rows, columns, batch = m.size(), m.size(), [m.size() for _ in range(m.pick(0, 0, 1, 2))]
    a = m.tensor([*(1 if m.chance(0.2) else s for s in batch), rows, columns], m.pick(*FLOATS))
    b = m.tensor([*batch[m.pick(0, 0, 1):], m.size(), m.pick(columns, columns, columns, m.size())], m.pick(a.dtype, a.dtype, m.dtype()))
    return (a, b, m.pick(2.0, 1.0, 0.5), m.pick(None, 1, 2)), {}


def euclidean(m):
    args, _ = distances(m)
    return args[:2], {}


def limits(m):
    a = m.tensor()
    return (a, *(m.pick(None, m.broadcast(a, m.pick(a.dtype, m.dtype()))) for _ in range(2))), {}


def lerp_weights(m):
    a = m.float_tensor()
    return (a, *(m.broadcast(a, m.pick(a.dtype, a.dtype, m.dtype())) for _ in range(2))), {}


def halves(m):
    a = m.float_tensor()
    return (a, m.broadcast(a, m.pick(a.dtype, a.dtype, m.dtype()))), {}


def triangle_indices(m):
    return (m.rng.randint(-1, 6), m.rng.randint(-1, 6), m.rng.randint(-7, 7)), m.pick({}, {"dtype": m.dtype()})


def nan_to_num(m):
    return (m.tensor(), *m.pick((), (0.5,), (None, 2, -2.5))), {}


def aminmax(m):
    a = m.tensor()
    return (a,), {} if m.chance(0.4) else {"dim": m.dim(a.dim()), "keepdim": m.chance(0.4)}


def histc(m):
    return (m.float_tensor() if m.chance(0.9) else m.tensor(), m.pick(3, 10, 0), m.pick(0, 0.5, 5), m.pick(0, 2, 5)), {}


def grouped(m):
    """Products of groups of rows: sizes at which rows often begin at multiples of 16 bytes."""
    groups, rows, inner, columns = m.size(), m.size(), m.pick(4, 8, 8, 16, 3), m.pick(4, 8, 8, 16, 3)
    dtype = m.pick(torch.float32, torch.bfloat16, torch.float16, torch.float64)
    a = m.fill([groups, rows, inner] if m.chance(0.3) else [rows, inner], dtype)
    b = m.fill(([groups] if m.chance(0.7) else []) + ([columns, inner] if m.chance(0.5) else [inner, columns]), dtype)
    b = b if b.shape[-2] == inner else b.transpose(-2, -1)
    ends = None if a.dim() == 3 and b.dim() == 3 else torch.linspace(0, min(rows, inner, columns), groups + m.pick(0, 0, 0, 1), dtype=torch.int32)
    return (a, b), m.pick({"offs": ends}, {"offs": ends}, {"offs": ends, "out_dtype": m.pick(dtype, torch.float32)})


ARGUMENTS |= {
    "histc.default": histc, "_grouped_mm.default": grouped, "add.Scalar": rsub, "sub.Scalar": rsub, "softshrink.default": with_limit, "hardshrink.default": with_limit,
    "binary_cross_entropy.default": entropy(1), "binary_cross_entropy_with_logits.default": entropy(2), "_cdist_forward.default": distances, "_euclidean_dist.default": euclidean,
    "clamp.Tensor": limits, "lerp.Tensor": lerp_weights, "complex.default": halves, "polar.default": halves, "logit.default": one,
    "count_nonzero.dim_IntList": count_dims, "count_nonzero.default": count_one, "nansum.default": reduce_dtype,
    "tril_indices.default": triangle_indices, "triu_indices.default": triangle_indices,
    "smooth_l1_loss.default": loss_with_width, "huber_loss.default": loss_with_width, "nan_to_num.default": nan_to_num,
    "aminmax.default": aminmax,
}
ARGUMENTS |= BACKWARD
