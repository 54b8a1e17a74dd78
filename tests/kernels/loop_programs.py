"""Programs with loops whose number of rounds differs from call to call. Each gets a tensor of 3 x length x 8 and an object for its side effects."""

import random
import sys
import warnings
import weakref

import torch
import torch.nn.functional as F

PROGRAMS = []
WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
COUNT = 0


def program(fn):
    PROGRAMS.append(fn)
    return fn


def start(x):
    return torch.zeros(x.shape[0], 8)


class Watched:
    """Says when it dies."""

    def __init__(self, log, number):
        self.log, self.number = log, number

    def __del__(self):
        self.log.append(("dies", self.number))


@program
def basic(x, state):
    h = start(x)
    out = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ WEIGHT + h)
        out.append(h)
    return out


@program
def counter(x, state):
    h = x[:, 0] * 0
    for t in range(x.shape[1]):
        state.n += 1
        state.log.append(t)
        h = h + x[:, t] * state.n
    return h


@program
def leaves_early(x, state):
    h = x.sum(1) * 0
    for t in range(x.shape[1]):
        h = h + x[:, t]
        if t == 5:
            break
    else:
        state.log.append("else")
    return h, t if x.shape[1] else None


@program
def skips_rounds(x, state):
    h = x.sum(1) * 0
    for t in range(x.shape[1]):
        if t % 3 == 0:
            continue
        h = torch.sin(h) + x[:, t]
    return h


@program
def alternates(x, state):
    h = x.sum(1) * 0
    for t in range(x.shape[1]):
        if t % 2:
            h = torch.sin(h) + x[:, t]
        else:
            h = torch.cos(h) * x[:, t]
    return h


@program
def data_decides(x, state):
    h = x.sum(1) * 0
    for t in range(x.shape[1]):
        if x[:, t].sum() > 0:
            h = torch.sin(h) + x[:, t]
        else:
            h = torch.cos(h) * x[:, t]
    return h


@program
def swaps(x, state):
    a = x.sum(1)
    b = a * 0
    for t in range(x.shape[1]):
        a, b = b + x[:, t], a * 0.5
    return a, b


@program
def rotates(x, state):
    a = x.sum(1)
    b = a * 0
    c = a + 1
    for t in range(x.shape[1]):
        a, b, c = c, a * 0.9, b + x[:, t]
    return a, b, c


@program
def none_first(x, state):
    h = None
    for t in range(x.shape[1]):
        h = x[:, t] if h is None else torch.tanh(h + x[:, t])
    return h


@program
def changes_its_type(x, state):
    h = 0
    for t in range(x.shape[1]):
        if t == 4:
            h = x[:, t] + h
        elif t > 4:
            h = h * 0.5 + x[:, t]
        else:
            h = h + 1
    return h


@program
def grows(x, state):
    h = x[:, :1]
    for t in range(x.shape[1]):
        h = torch.cat([h, x[:, t : t + 1] * 0.5], 1)
    return h


@program
def inplace(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h.add_(x[:, t])
        h.mul_(0.9)
    return h


@program
def writes_into_a_copy(x, state):
    y = x.clone()
    for t in range(1, x.shape[1]):
        y[:, t] = y[:, t - 1] * 0.5 + x[:, t]
    return y


@program
def writes_into_the_argument(x, state):
    for t in range(x.shape[1]):
        x[:, t].mul_(2)
    return x.sum()


@program
def writes_outer_variables(x, state):
    n = 0
    h = x.sum(1) * 0

    def step(t):
        nonlocal n, h
        n += t
        h = torch.tanh(h + x[:, t])

    for t in range(x.shape[1]):
        step(t)
    return h, n


@program
def lambdas(x, state):
    fs = []
    for t in range(x.shape[1]):
        fs.append(lambda v, t=t: v * t)
    h = x.sum(1)
    for f in fs:
        h = h + f(h) * 0.001
    return h


@program
def closures_over_the_round(x, state):
    fs = []
    for t in range(x.shape[1]):
        y = x[:, t]
        fs.append(lambda: y.sum() + t)
    return [f() for f in fs]


@program
def enumerated_parts(x, state):
    h = start(x)
    for i, v in enumerate(x.unbind(1)):
        h = torch.tanh(h + v * (i + 1))
    return h


@program
def zipped_parts(x, state):
    h = start(x)
    for v, w in zip(x.unbind(1), x.flip(1).unbind(1)):
        h = torch.tanh(h + v - w * 0.5)
    return h


@program
def backwards(x, state):
    h = start(x)
    for t in reversed(range(x.shape[1])):
        h = torch.tanh(h + x[:, t])
    return h


@program
def rows_of_a_tensor(x, state):
    h = torch.zeros(8)
    for v in x.transpose(0, 1):
        h = torch.tanh(h + v.sum(0))
    return h


@program
def switches_gradients(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        with torch.no_grad():
            h = torch.tanh(h + x[:, t])
        state.log.append(torch.is_grad_enabled())
    return h


@program
def deletes(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        v = x[:, t]
        h = torch.tanh(h + v)
        del v
    try:
        v
    except NameError as e:
        state.log.append(str(e))
    return h


@program
def assigned_in_one_round(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        if t == 3:
            late = h.sum()
        h = torch.tanh(h + x[:, t])
    try:
        return h, late
    except UnboundLocalError as e:
        return h, str(e)


@program
def catches(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        try:
            if t == 6:
                raise ValueError(t)
            h = torch.tanh(h + x[:, t])
        except ValueError as e:
            state.log.append(e.args)
    return h


@program
def raises(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        state.n = t
        if t == 7:
            raise KeyError(t)
        h = torch.tanh(h + x[:, t])
    return h


@program
def operator_raises(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        state.n = t
        h = torch.tanh(h + x[:, t])
        if t == 8:
            h = h[:, :3]
    return h


@program
def drops_out(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = F.dropout(torch.tanh(h + x[:, t]), 0.3)
    return h


@program
def random_branch(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t]) if random.random() < 0.5 else h * 0.9
    return h


@program
def objects_die(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        held = Watched(state.log, t)  # noqa: F841
        h = torch.tanh(h + x[:, t])
        state.log.append(t)
    return h


@program
def looks_at_frames(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        state.log.append(sorted(sys._getframe().f_locals))
        state.log.append(sys._getframe().f_lineno - sys._getframe().f_code.co_firstlineno)
    return h


@program
def nested(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        for k in range(3):
            h = torch.tanh(h + x[:, t] * k)
    return h


@program
def nested_by_round(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        for u in range(t):
            h = torch.tanh(h + x[:, u] * 0.1)
    return h


@program
def two_layers(x, state):
    for _ in range(2):
        h = start(x)
        out = []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ WEIGHT + h)
            out.append(h)
        x = torch.stack(out, 1) if out else x
    return x


@program
def comprehension(x, state):
    return torch.stack([torch.sin(x[:, t]) * t for t in range(x.shape[1])]) if x.shape[1] else x


@program
def dict_comprehension(x, state):
    d = {t: x[:, t].sum() for t in range(x.shape[1])}
    return d


@program
def helper(x, state):
    def cell(h, v):
        g = torch.sigmoid(h @ WEIGHT)
        return g * h + (1 - g) * v

    h = start(x)
    for t in range(x.shape[1]):
        h = cell(h, x[:, t])
    return h


@program
def list_grows_meanwhile(x, state):
    items = [x[:, t] for t in range(x.shape[1])]
    for v in items:
        if len(items) < 20:
            items.append(v * 0.5)
    return items


@program
def over_a_dict(x, state):
    d = {t: x[:, t] for t in range(x.shape[1])}
    h = 0
    for k, v in d.items():
        h = h + v * k
    return h


@program
def while_below(x, state):
    t = 0
    h = start(x)
    while t < x.shape[1]:
        h = torch.tanh(h + x[:, t])
        t += 1
    return h, t


@program
def returns_early(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        if t == 9:
            return h, t
    return h


@program
def by_twos(x, state):
    h = start(x)
    for t in range(0, x.shape[1], 2):
        h = torch.tanh(h + x[:, t : t + 2].sum(1))
    return h


@program
def counts_with_ints(x, state):
    a, b = 0, 1
    h = start(x)
    for t in range(x.shape[1]):
        a, b = b, a + b
        h = h + x[:, t] * (a % 7)
    return h, a, b


@program
def counts_with_floats(x, state):
    a = 1.0
    h = start(x)
    for t in range(x.shape[1]):
        a = a * 0.9
        h = h * a + x[:, t]
    return h, a


@program
def collects_text(x, state):
    a = ""
    h = start(x)
    for t in range(x.shape[1]):
        a += str(t)
        h = h + x[:, t] * len(a)
    return h, a


@program
def preallocated(x, state):
    out = torch.empty(x.shape[1], x.shape[0], 8)
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        out[t] = h
    return out


@program
def reads_back_from_lists(x, state):
    hs = [start(x)]
    cs = [start(x)]
    for t in range(x.shape[1]):
        c = torch.sigmoid(hs[-1]) * cs[-1] + x[:, t]
        cs.append(c)
        hs.append(torch.tanh(c))
    return hs, cs


@program
def decode(x, state):
    tok = x[:, :1].argmax(-1)
    toks = [tok]
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + WEIGHT[tok[:, 0] % 8])
        tok = (h @ WEIGHT).argmax(-1, keepdim=True)
        toks.append(tok)
    return torch.cat(toks, 1)


@program
def changes_dims_once(x, state):
    y = x.clone()
    h = start(x)
    for t in range(x.shape[1]):
        h = h + y[:, t].sum()
        if t == 3 and y.dim() == 3:
            y = y.clone()
            y.unsqueeze_(0)
            y.squeeze_(0)
    return h, y


@program
def transposes_in_place(x, state):
    y = x.clone()
    h = torch.zeros(8)
    for t in range(x.shape[1]):
        h = h + y[0, t if y.shape[0] == x.shape[0] else 0].reshape(-1)[:8].sum()
        y.t_() if y.dim() == 2 else y.transpose_(0, 2).transpose_(0, 2)
    return h


@program
def reads_numbers(x, state):
    h = start(x)
    acc = 0.0
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        acc += h.sum().item()
    return h


@program
def over_a_generator(x, state):
    def g():
        for t in range(x.shape[1]):
            yield x[:, t] * t

    h = start(x)
    for v in g():
        h = torch.tanh(h + v)
    return h


@program
def chunks(x, state):
    h = start(x)
    for c in x.split(3, 1):
        h = torch.tanh(h + c.sum(1))
    return h


@program
def keeps_an_attribute(x, state):
    state.h = start(x)
    for t in range(x.shape[1]):
        state.h = torch.tanh(state.h + x[:, t])
    return state.h


@program
def keeps_a_dict(x, state):
    st = {"h": start(x)}
    for t in range(x.shape[1]):
        st["h"] = torch.tanh(st["h"] + x[:, t])
        st[t] = t
    return st


@program
def writes_a_global(x, state):
    global COUNT
    COUNT = 0
    h = start(x)
    for t in range(x.shape[1]):
        COUNT += 1
        h = torch.tanh(h + x[:, t] * COUNT)
    return h, COUNT


@program
def longer_slices(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, : t + 1].mean(1))
    return h


@program
def tuple_of_tensors(x, state):
    st = (start(x), torch.ones(x.shape[0], 8))
    for t in range(x.shape[1]):
        st = (torch.tanh(st[0] + x[:, t]), st[1] * st[0])
    return st


@program
def grows_a_list_by_star(x, state):
    out = []
    for t in range(x.shape[1]):
        out = [*out, x[:, t].sum()]
    return out


@program
def warns(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        warnings.warn("t%d" % t)
        h = h + x[:, t]
    return h


@program
def enumerated_range(x, state):
    h = start(x)
    for i, t in enumerate(range(x.shape[1])):
        h = torch.tanh(h + x[:, t] * i)
    return h


@program
def zipped_ranges(x, state):
    h = start(x)
    for i, t in zip(range(x.shape[1]), range(x.shape[1], 0, -1)):
        h = torch.tanh(h + x[:, i] * t)
    return h


@program
def enumerated_rows(x, state):
    h = torch.zeros(8)
    for i, v in enumerate(x.transpose(0, 1)):
        h = torch.tanh(h + v.sum(0) * i)
    return h


@program
def zipped_chunks(x, state):
    h = start(x)
    for a, b in zip(x.split(2, 1), x.flip(1).split(2, 1)):
        h = torch.tanh(h + a.sum(1) - b.sum(1) * 0.5)
    return h


@program
def reversed_parts(x, state):
    h = start(x)
    for v in reversed(x.unbind(1)):
        h = torch.tanh(h + v)
    return h


@program
def list_of_a_range(x, state):
    h = start(x)
    for t in list(range(x.shape[1])):
        h = torch.tanh(h + x[:, t])
    return h


@program
def while_above(x, state):
    t = x.shape[1]
    h = start(x)
    while t > 0:
        t -= 1
        h = torch.tanh(h + x[:, t])
        if h.sum() > 6:
            continue
        state.log.append(t)
    return h, t


@program
def while_true(x, state):
    h = start(x)
    t = 0
    while True:
        if t >= x.shape[1]:
            break
        h = torch.tanh(h + x[:, t])
        t = t + 1
    else:
        state.log.append(1)
    return h


@program
def while_it_shrinks(x, state):
    y = x.mean(2)
    n = 0
    while y.shape[1] > 1:
        y = y[:, ::2] if y.shape[1] % 2 else y[:, :-1] * 0.5
        n += 1
    return y, n


@program
def while_items_are_left(x, state):
    w = list(x.unbind(1))
    h = start(x)
    while w:
        h = torch.tanh(h + w.pop())
        state.log.append(len(w))
    return h


@program
def while_data_says(x, state):
    h = x.sum(1)
    n = 0
    while h.abs().max() > 0.5 and n < x.shape[1]:
        h = h * 0.7
        n += 1
    return h, n


@program
def while_in_while(x, state):
    h = start(x)
    i = 0
    while i < x.shape[1]:
        j = i
        while j < x.shape[1]:
            h = torch.tanh(h + x[:, j] * 0.1)
            j += 2
        i += 3
    return h, i, j if i else 0


@program
def while_in_for(x, state):
    h = start(x)
    n = 0
    for v in x.unbind(1):
        k = 0
        while k < 2:
            h = torch.tanh(h + v * k)
            k += 1
        n += k
    return h, n


@program
def finally_in_each_round(x, state):
    h = start(x)
    try:
        for t in range(x.shape[1]):
            try:
                h = torch.tanh(h + x[:, t])
                state.log.append(("a", t))
            finally:
                state.log.append(("f", t))
            if t == 8:
                raise RuntimeError("x")
    except RuntimeError as e:
        state.log.append(str(e))
    return h


@program
def with_in_each_round(x, state):
    class C:
        def __enter__(c):
            state.log.append("in")
            return c

        def __exit__(c, *a):
            state.log.append(("out", a[0]))
            return True

    h = start(x)
    for t in range(x.shape[1]):
        with C():
            if t == 5:
                raise KeyError(1)
            h = torch.tanh(h + x[:, t])
    return h


@program
def inside_a_handler(x, state):
    h = start(x)
    try:
        raise ValueError("a")
    except ValueError:
        for t in range(x.shape[1]):
            h = torch.tanh(h + x[:, t])
            state.log.append(str(sys.exc_info()[1]))
    return h


@program
def outer_variable_in_a_closure(x, state):
    h = start(x)
    last = None

    def get():
        return last

    for t in range(x.shape[1]):
        last = x[:, t]
        h = torch.tanh(h + get())
    return h, last


@program
def weak_references(x, state):
    h = start(x)
    refs = []
    for t in range(x.shape[1]):
        v = x[:, t] * 2
        refs.append(weakref.ref(v))
        h = torch.tanh(h + v)
        state.log.append([r() is not None for r in refs])
    return h, [r() is None for r in refs]


@program
def toggles_gradients(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        state.log.append(torch.is_grad_enabled())
        h = torch.tanh(h + x[:, t])
        state.log.append(h.requires_grad)
    torch.set_grad_enabled(False)
    return h


@program
def sets_gradients_by_round(x, state):
    h = torch.zeros(3, 8, requires_grad=True)
    for t in range(x.shape[1]):
        torch.set_grad_enabled(t % 3 == 0)
        h = torch.tanh(h + x[:, t])
        state.log.append((h.requires_grad, torch.is_grad_enabled()))
    torch.set_grad_enabled(False)
    return h.detach()


@program
def sets_the_default_dtype(x, state):
    h = start(x)
    old = torch.get_default_dtype()
    for t in range(x.shape[1]):
        torch.set_default_dtype(torch.float64 if t % 2 else torch.float32)
        z = torch.zeros(2)
        state.log.append(str(z.dtype))
        h = torch.tanh(h + x[:, t] + z.sum())
    torch.set_default_dtype(old)
    return h


@program
def autocast_in_some_rounds(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=t % 2 == 0):
            y = x[:, t] @ WEIGHT
            state.log.append(str(y.dtype))
            h = torch.tanh(h + y.float())
    return h


@program
def attribute_decides(x, state):
    state.mode = "a"
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t]) if state.mode == "a" else h * 0.5 + x[:, t]
        state.mode = "b" if state.mode == "a" else "a"
    return h, state.mode


@program
def switches_a_module(x, state):
    m = torch.nn.Dropout(0.5)
    h = start(x)
    for t in range(x.shape[1]):
        m.train(t % 2 == 0)
        h = torch.tanh(m(h) + x[:, t])
    return h


@program
def swaps_functions(x, state):
    f, g = torch.sin, torch.cos
    h = start(x)
    for t in range(x.shape[1]):
        h = f(h + x[:, t])
        f, g = g, f
    return h


@program
def fills_a_dict(x, state):
    d = {}
    h = start(x)
    for t in range(x.shape[1]):
        k = "k%d" % (t % 4)
        if k in d:
            h = h + d[k]
        d[k] = torch.tanh(h + x[:, t])
    return h, list(d)


@program
def fills_a_set(x, state):
    seen = set()
    h = start(x)
    for t in range(x.shape[1]):
        if t % 5 in seen:
            h = h * 0.9
        seen.add(t % 5)
        h = torch.tanh(h + x[:, t])
    return h, sorted(seen)


@program
def replaces_a_method(x, state):
    h = start(x)

    class M:
        def f(self, v):
            return torch.sin(v)

    m = M()
    for t in range(x.shape[1]):
        if t == 4:
            M.f = lambda self, v: torch.cos(v)
        h = m.f(h + x[:, t])
    return h


@program
def sets_a_global(x, state):
    global COUNT
    h = start(x)
    for t in range(x.shape[1]):
        COUNT = t
        h = h + x[:, t] * COUNT
    return h


@program
def requires_gradients_from_then_on(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        if t == 3:
            h = h.clone().requires_grad_()
        h = torch.tanh(h + x[:, t])
        state.log.append(h.requires_grad)
    return h.detach()


@program
def list_in_a_closure(x, state):
    acc = [start(x)]

    def add(v):
        acc[0] = torch.tanh(acc[0] + v)
        return acc[0]

    for t in range(x.shape[1]):
        r = add(x[:, t])
    return acc[0]


@program
def asks_for_identity(x, state):
    prev = None
    h = start(x)
    for t in range(x.shape[1]):
        state.log.append(prev is h)
        prev = h
        if t % 3:
            h = torch.tanh(h + x[:, t])
    return h


@program
def strides_differ(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        if t % 2:
            h = h.t().contiguous().t()
        state.log.append((h.stride(), h.is_contiguous()))
    return h


@program
def dtypes_differ(x, state):
    h = start(x)
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t].to(h.dtype))
        if t % 4 == 2:
            h = h.double() if h.dtype == torch.float32 else h.float()
    return h


@program
def handles_exceptions(x, state):
    h = start(x)
    last = None
    for t in range(x.shape[1]):
        try:
            if t % 3 == 1:
                raise ValueError(t)
            h = torch.tanh(h + x[:, t])
        except ValueError as e:
            last = e.args
            state.log.append(sys.exc_info()[0].__name__)
    return h, last


@program
def keeps_exceptions(x, state):
    h = start(x)
    kept = []
    for t in range(x.shape[1]):
        try:
            if t % 3 == 1:
                raise ValueError(t)
            h = torch.tanh(h + x[:, t])
        except ValueError as e:
            kept.append(e)
    return h, [str(e) for e in kept], [e.__traceback__.tb_lineno for e in kept]


@program
def over_an_iterator_of_the_program(x, state):
    class It:
        def __init__(i):
            i.n = 0

        def __iter__(i):
            return i

        def __next__(i):
            if i.n >= x.shape[1]:
                raise StopIteration
            i.n += 1
            state.log.append(i.n)
            return x[:, i.n - 1]

    h = start(x)
    for v in It():
        h = torch.tanh(h + v)
    return h


@program
def view_of_what_is_read(x, state):
    y = x.clone()
    v = y[:, 0]
    h = start(x)
    for t in range(x.shape[1]):
        v.add_(1)
        h = torch.tanh(h + y[:, t] + v)
    return h, y


@program
def one_tensor_in_a_list(x, state):
    buf = start(x)
    outs = []
    for t in range(x.shape[1]):
        buf.mul_(0.5).add_(x[:, t])
        outs.append(buf)
    return outs


@program
def in_place_or_not(x, state):
    h = start(x)
    p = h
    for t in range(x.shape[1]):
        h += x[:, t]
        h = torch.tanh(h) if t % 2 else h
        state.log.append(h is p)
        p = h
    return h, p
