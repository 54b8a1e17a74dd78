"""Random tensor programs with kernels against eager: many operators, dtypes, layouts, views, writes in place, results that share memory.

    python tests/kernels/fuzz_tensors.py --seed 100 --count 500     seeds 100..599; prints each program that differs, made smaller
    python tests/kernels/fuzz_tensors.py --seed 137 --show

A program is a list of lines; each was run once while the program was made, so that all are valid, and what makes numbers too large, or
undecided (a comparison at its bound), was left out. Compared with eager: elements (floats but for last digits), dtype, sizes, strides, which
results are one object, share memory, are views, how often they were written to, the inputs afterwards, and random numbers.
"""
import argparse
import contextlib
import functools
import random
import sys
import traceback

import torch

import kintsugi
from kintsugi import _kintsugi as engine

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8)
# relative to the largest element; what is float64 may have been float32 on the way
BOUND = {torch.float64: 5e-5, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}
LARGEST = 1e3
MARGIN = 0.0137
COMPOSED = ("rand", "count_nonzero", "dropout", "one_hot", "linspace", "F.linear", "max_pool1d")  # what they do inside shows, or not


MODES = {"plain": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode,
         "autocast": functools.partial(torch.autocast, "cpu", torch.bfloat16)}


class Program:
    def __init__(self, seed, inputs, lines, results):
        self.seed, self.inputs, self.lines, self.results = seed, inputs, lines, results
        r = random.Random(seed + 1)
        self.mode = r.choice(("plain",) * 5 + tuple(MODES))
        casts = any(f".to({dtype})" in line or ".long()" in line or "type_as" in line for dtype in INTS for line in lines)
        # Eager's gelu makes NaN of infinity, or not, depending on the layout; the largest number times something may be infinite or not.
        odd = any(word in line for word in ("gelu", "nan_to_num") for line in lines)
        self.poisoned = r.random() < 0.15 and not casts and not odd  # later calls get numbers that are none, and infinite ones

    def source(self):
        names = ", ".join(f"i{k}" for k in range(len(self.inputs)))
        body = [*self.lines, f"return {', '.join(self.results)},"]
        return f"def f({names}):\n" + "".join(f"    {line}\n" for line in body)

    def is_coarse(self, arguments):
        """Does it compute in half precision somewhere? Last digits are large then, whatever the results' dtypes."""
        return self.mode == "autocast" or any(t.dtype in FLOATS[2:] for t in arguments) or any("float16" in line for line in self.lines)

    def function(self):
        space = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source(), f"<fuzz {self.seed}>", "exec"), space)
        return space["f"]

    def arguments(self, call):
        torch.manual_seed(1000 * self.seed + call)
        made = make_all(self.inputs)
        for t in made:
            if self.poisoned and call > 1 and t.is_floating_point() and t.numel():
                t.view(-1)[:: 3 + call] = (float("nan"), float("inf"), -float("inf"))[call % 3] if t.is_contiguous() else 0
            if self.mode == "no_grad" and t.is_floating_point():
                t.requires_grad_()
        return made


# -- inputs -----------------------------------------------------------------------------------------------------------


def data(dtype, sizes):
    if dtype == torch.bool:
        return torch.rand(sizes) > 0.5
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 6, sizes).to(dtype)


def make_all(inputs):
    made = []
    for make in inputs:
        made.append(make(made))
    return made


def make_relative(r, k):
    """Input k once more, or a part of its memory."""
    words = r.choice(("i", "i", "i[..., 1:]", "i[..., :-1]", "i.mT", "i[1:]", "i[::2]", "i.view_as(i)", "i.detach()", "i.flatten()", "i[0]"))

    def make(made):
        try:
            return eval(words, {"i": made[k]})
        except (RuntimeError, IndexError):
            return made[k]
    return make


def make_input(r):
    """A function that makes a tensor, always of one kind; it gets those made before."""
    sizes = [r.choice((1, 2, 3, 4, 5, 8, 16, 17)) for _ in range(r.choice((1, 1, 2, 2, 2, 3, 3, 4)))]
    if r.random() < 0.04:
        sizes[0] = 0
    dtype = r.choice([torch.float32] * 8 + [*FLOATS, *INTS, torch.bool])
    kind = r.choice(("plain",) * 5 + ("t", "slice", "step", "expand", "offset"))

    def make(made):
        if kind == "t":
            return data(dtype, sizes[::-1]).permute(*range(len(sizes))[::-1])
        if kind == "slice":
            return data(dtype, [*sizes[:-1], sizes[-1] + 3])[..., 1:-2]
        if kind == "step":
            return data(dtype, [2 * sizes[0], *sizes[1:]])[::2]
        if kind == "expand":
            return data(dtype, [1, *sizes[1:]]).expand(sizes)
        if kind == "offset":
            return data(dtype, [sizes[0] + 2, *sizes[1:]])[2:]
        return data(dtype, sizes)
    return make


# -- lines ------------------------------------------------------------------------------------------------------------


class Maker:
    """Lines over variables whose values are known; `self.space` holds what the program has computed for its first arguments."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.inputs = [make_input(self.r) for _ in range(self.r.randint(1, 3))]
        if random.Random(seed + 2).random() < 0.2:
            self.inputs.append(make_relative(random.Random(seed + 3), 0))
        torch.manual_seed(1000 * seed)
        self.space = {f"i{k}": t for k, t in enumerate(make_all(self.inputs))}
        self.names = list(self.space)
        self.exact = set(self.names)  # whose floats have no rounding errors: what they decide is the same for everybody
        self.lines = []

    def pick(self, condition=lambda t: True):
        names = [n for n in self.names[-6:] + self.names if condition(self.space[n])]
        return self.r.choice(names) if names else None

    def float_name(self, dims=0):
        return self.pick(lambda t: t.is_floating_point() and t.dim() >= dims)

    def dim(self, t):
        return self.r.randrange(-t.dim(), t.dim()) if t.dim() else 0

    def line(self):
        kind = self.r.choices((self.pointwise, self.binary, self.reduction, self.view, self.join, self.product, self.index, self.cast,
                               self.in_place, self.create, self.special, self.decide), (6, 6, 4, 7, 2, 3, 3, 2, 4, 1, 4, 2))[0]
        return kind()

    # each returns (left side or None for a statement, expression), or None when nothing fits

    def pointwise(self):
        a = self.float_name()
        op = self.r.choice("sin cos tanh sigmoid relu exp abs neg square erf sqrt rsqrt log1p reciprocal expm1 atan log tan sinh".split())
        guard = {"exp": ".clamp(max=4)", "expm1": ".clamp(max=4)", "sqrt": ".abs()", "log1p": ".abs()", "log": ".abs().add(0.1)",
                 "rsqrt": ".abs().add(0.1)", "reciprocal": ".abs().add(0.1)", "tan": ".clamp(-1, 1)", "sinh": ".clamp(-3, 3)"}.get(op, "")
        other = self.r.choice((f"F.gelu({a})", f"F.silu({a})", f"F.elu({a})", f"F.softplus({a})", f"F.leaky_relu({a}, 0.1)",
                               f"F.hardtanh({a})", f"{a}.clamp(-0.5, 1.5)", f"F.gelu({a}, approximate='tanh')", f"F.hardswish({a})",
                               f"{a}.clamp(min=0.1)", f"torch.where({a} == {a}, {a}, 0.)", f"{a}.pow(2)", f"{a} ** 3", f"F.mish({a})"))
        return a and self.r.choice((f"{a}{guard}.{op}()", f"{a}{guard}.{op}()", other))

    def binary(self):
        a, b = self.pick(), self.pick()
        number = self.r.choice(("2", "-3", "0.5", "1", "3.0"))
        op = self.r.choice("+-*")
        return self.r.choice((
            f"{a} {op} {b}", f"{a} {op} {b}", f"{a} {op} {number}", f"{number} {op} {a}", f"torch.maximum({a}, {b})", f"torch.minimum({a}, {b})",
            f"torch.add({a}, {b}, alpha={number})", f"{a} / ({b}.abs() + 1)", f"{a} / 3", f"torch.addcmul({a}, {a}, {b}, value=0.5)",
            f"torch.lerp({a}, {b}, 0.25)", f"torch.atan2({a}, {b}.abs() + 0.5)", f"{a}.float() % 3" if a in self.exact else f"{a} - {b}",
            f"torch.hypot({a}, {b})", f"torch.rsub({a}, {b})", f"{a} // 3" if a in self.exact else f"{a} + {b}",
            f"{a} & {b}", f"{a} ^ {b}", f"{a} << 1", f"{a} == {b}" if {a, b} <= self.exact else f"{a} * {b}"))

    def reduction(self):
        a = self.pick()
        t = self.space[a]
        d, keep = self.dim(t), self.r.choice(("", ", keepdim=True"))
        dims = self.r.choice((f"{d}", f"{d}", f"({', '.join(map(str, sorted(self.r.sample(range(t.dim()), self.r.randint(1, t.dim()))))) },)"
                              if t.dim() else "()"))
        f = f"{a}.float()"
        return self.r.choice((f"{a}.sum({dims}{keep})", f"{a}.sum()", f"{f}.mean({dims}{keep})", f"{a}.amax({d}{keep})", f"{a}.amin({d}{keep})",
                              f"{f}.var({d}{keep}, unbiased=False)", f"{f}.std({d}, unbiased=False)", f"{f}.norm(dim={d}{keep})", f"{f}.logsumexp({d}{keep})",
                              f"{a}.bool().any({d})", f"{a}.bool().all({d})", f"{a}.cumsum({d})", f"{a}.max()", f"{a}.prod({d})",
                              f"{f}.max({d})[0]", f"{a}.max({d})[1]" if a in self.exact else f"{a}.min()", f"torch.count_nonzero({a}, {d})",
                              f"torch.var_mean({f}, {d}, unbiased=False)[0]", f"{a}.argmax({d})" if a in self.exact else f"{a}.sum({d})"))

    def view(self):
        a = self.pick()
        t, r = self.space[a], self.r
        d, e = self.dim(t), self.dim(t)
        size = t.shape[d] if t.dim() else 1
        numel = [n for n in (2, 3, 4, 8) if t.numel() and t.numel() % n == 0]
        order = list(range(t.dim()))
        r.shuffle(order)
        return r.choice((
            f"{a}.permute({', '.join(map(str, order))})", f"{a}.transpose({d}, {e})", f"{a}.unsqueeze({d})", f"{a}.squeeze()", f"{a}.flatten()",
            f"{a}.reshape(-1)", f"{a}.reshape({r.choice(numel)}, -1)" if numel else f"{a}.flatten()", f"{a}.view(-1)", f"{a}.narrow({d}, 0, {max(1, size - 1)})",
            f"{a}.select({d}, {r.randrange(-size, size) if size else 0})", f"{a}[::2]", f"{a}[1:]", f"{a}[..., :-1]", f"{a}[None]", f"{a}.detach()",
            f"{a}.expand(2, *{a}.shape)", f"{a}.chunk(2, {d})[0]", f"{a}.unbind({d})[-1]", f"{a}.diagonal()", f"{a}.unfold({d}, {max(1, min(2, size))}, 1)",
            f"{a}.contiguous()", f"{a}.clone()", f"{a}.view_as({a})", f"{a}.movedim({d}, {e})", f"{a}.split({max(1, size // 2)}, {d})[-1]",
            f"{a}.unflatten({d}, (1, -1))", f"{a}[..., 0]", f"{a}.mT", f"{a}.swapaxes({d}, {e})", f"{a}.broadcast_to({a}.shape)"))

    def join(self):
        a = self.pick()
        same = [n for n in self.names if self.space[n].shape == self.space[a].shape]
        b, d = self.r.choice(same), self.dim(self.space[a])
        return self.r.choice((f"torch.cat([{a}, {b}], {d})", f"torch.stack([{a}, {b}], {d})", f"torch.cat([{a}, {a}.flip({d}), {b}], {d})",
                              f"torch.hstack([{a}, {b}])", f"{a}.repeat(2, *[1] * ({a}.dim() - 1))", f"{a}.repeat_interleave(2, {d})",
                              f"torch.cat([{a}.narrow({d}, 0, 1), {b}], {d})", f"torch.tile({a}, (2,))"))

    def product(self):
        a = self.pick(lambda t: t.dtype == torch.float32 and 2 <= t.dim() <= 3)
        if a is None:
            return None
        t = self.space[a]
        n = t.shape[-1]
        fits = [x for x in self.names if self.space[x].dtype == t.dtype and self.space[x].dim() == t.dim() and self.space[x].shape[:-2] == t.shape[:-2]
                and self.space[x].shape[-2] == n]
        b = self.r.choice(fits) if fits else None
        weight = f"(torch.arange({4 * n}, dtype={a}.dtype).view(4, {n}) / {4 * n} - 0.5)"
        return self.r.choice((f"{a} @ {a}.mT", f"{a}.mT @ {a}", f"F.linear({a}, {weight})", f"F.linear({a}, {weight}, {weight}.sum(1))",
                              f"{a} @ {b}" if b else f"torch.matmul({a}, {a}.transpose(-1, -2))", f"{a} @ {a}[..., 0, :]" if t.dim() == 2 else f"{a} @ {a}.mT",
                              f"torch.addmm({weight}.sum(), {a}, {a}.t())" if t.dim() == 2 else f"torch.bmm({a}, {a}.mT)",
                              f"torch.einsum('...ij,...kj->...ik', {a}, {a})", f"F.scaled_dot_product_attention({a}[None], {a}[None], {a}[None])"))

    def index(self):
        a = self.pick()
        t, r = self.space[a], self.r
        d = self.dim(t)
        size = t.shape[d] if t.dim() else 1
        ids = [r.randrange(-size, size) if size else 0 for _ in range(3)]
        plus = [abs(i) % max(1, size) for i in ids]
        first = [i % max(1, t.shape[0] if t.dim() else 1) for i in plus]
        return r.choice((f"{a}[torch.tensor({first})]", f"{a}.index_select({d}, torch.tensor({plus}))", f"{a}.flip({d})", f"{a}.roll(1, {d})",
                         f"{a}.gather({d}, torch.zeros_like({a}, dtype=torch.int64))", f"{a}.masked_fill({a} == {a}, 2)", f"{a}.tril()", f"{a}.triu(1)",
                         f"{a}.index_add({d}, torch.tensor({plus}), {a}.index_select({d}, torch.tensor({plus})))",
                         f"{a}.scatter({d}, torch.zeros_like({a}, dtype=torch.int64), 3)", f"{a}.index_fill({d}, torch.tensor({plus[:1]}), 1)",
                         f"F.pad({a}, (1, 2))", f"F.pad({a}, (-1, 0), value=2)", f"{a}.take_along_dim(torch.zeros_like({a}, dtype=torch.int64), {d})",
                         f"torch.where({a} > {MARGIN}, {a}, -{a})", f"{a}[:, torch.tensor({[0]})]", f"{a}.select_scatter({a}.select({d}, 0) * 2, {d}, 0)",
                         f"F.one_hot({a}.abs().long(), 8)" if a in self.exact else f"{a}.flip({d})", f"{a}.sort({d})[0]"))

    def cast(self):
        a = self.pick()
        dtype = self.r.choice((*FLOATS, *FLOATS, torch.float32, *(INTS + (torch.bool,) if a in self.exact else ())))
        return self.r.choice((f"{a}.to({dtype})", f"{a}.to({dtype})", f"{a}.type_as({self.pick()})" if a in self.exact else f"{a}.double()",
                              f"{a}.round()" if a in self.exact else f"{a}.float()", f"{a}.sign()" if a in self.exact else f"{a}.float()",
                              f"{a}.floor()" if a in self.exact else f"{a}.float()"))

    def create(self):
        a = self.pick()
        return self.r.choice((f"torch.ones_like({a})", f"torch.zeros({self.r.randint(1, 5)})", f"torch.arange({self.r.randint(1, 6)})", f"torch.full_like({a}, 2)",
                              "torch.eye(3)", f"torch.linspace(0, 1, 5)", f"{a}.new_zeros(2, 3)", f"torch.rand(3)", f"torch.randn_like({a}.float())",
                              f"torch.tensor([1., 2., 3.])", f"{a}.new_full((2,), 3)", f"torch.empty_like({a}).fill_(1)", f"F.dropout({a}.float(), 0.5)"))

    def special(self):
        a = self.float_name(1)
        if a is None:
            return None
        n, d = self.space[a].shape[-1], self.dim(self.space[a])
        t = self.space[a]
        options = [f"{a}.softmax({d})", f"{a}.log_softmax({d})", f"F.layer_norm({a}, ({n},), eps=0.1)", f"F.normalize({a}, dim={d}, eps=0.1)",
                   f"F.layer_norm({a}, ({n},), torch.ones({n}, dtype={a}.dtype), torch.ones({n}, dtype={a}.dtype), 0.1)", f"F.rms_norm({a}, ({n},), eps=0.1)",
                   f"F.mse_loss({a}, {a} * 0.5)", f"F.smooth_l1_loss({a}, {a} * 0.5)", f"{a}.cumsum({d})", f"F.glu({a}, {d})", f"torch.logsumexp({a}, {d})",
                   f"F.cosine_similarity({a}, {a} + 1, dim={d})", f"{a}.nan_to_num()", f"torch.outer({a}.flatten(), {a}.flatten()[:3])"]
        if t.dim() in (3, 4) and t.dtype == torch.float32:
            options += [f"F.max_pool{t.dim() - 2}d({a}, 2, 1)", f"F.avg_pool{t.dim() - 2}d({a}, 2, 1)", f"F.adaptive_avg_pool{t.dim() - 2}d({a}, 1)"]
        if t.dim() == 4 and t.dtype == torch.float32:
            c = t.shape[1]
            options += [f"F.conv2d({a}, torch.ones(2, {c}, 1, 1) / {c})", f"F.conv2d({a}, torch.ones({c}, 1, 3, 3) / 9, padding=1, groups={c})",
                        f"F.interpolate({a}, scale_factor=2)", f"F.group_norm({a}, 1, eps=0.1)", f"F.pixel_shuffle({a}.repeat(1, 4, 1, 1), 2)",
                        f"F.batch_norm({a}, torch.zeros({c}), torch.ones({c}))", f"{a}.to(memory_format=torch.channels_last)"] * 2
        return self.r.choice(options)

    def decide(self):
        """Tests that do not hang on last digits."""
        a, b = self.pick(), self.pick()
        mask = f"({a} > {MARGIN})"
        return self.r.choice((f"torch.where({mask}, {a}, {b})", f"{mask}.sum()", f"{a} * {mask}", f"{a}.masked_fill({mask}, -1)", f"{mask}.float().mean()",
                              f"~{mask}", f"{mask}.any()", f"{mask} | ({b} > {MARGIN})", f"{mask}.cumsum(0)"))

    def in_place(self):
        a, b = self.pick(), self.pick()
        if a.startswith("i") and self.r.random() < 0.5:
            return None
        d = self.dim(self.space[a])
        return None, self.r.choice((
            f"{a}.add_(1)", f"{a}.mul_(2)", f"{a}.add_({b})", f"{a}.mul_({b})", f"{a}.copy_({b})", f"{a}.zero_()", f"{a}.fill_(3)", f"{a}.relu_()", f"{a}.tanh_()",
            f"{a}.clamp_(-1, 1)", f"{a}[0] = 1", f"{a}[..., 0] = {a}[..., -1]", f"{a}[1:] += 1", f"{a}.select({d}, 0).mul_(0.5)", f"{a}.t_()", f"{a}.unsqueeze_(0)",
            f"{a}.masked_fill_({a} > {MARGIN}, 0.5)", f"{a}.sub_({b}, alpha=2)", f"{a}.transpose_({d}, 0)", f"F.relu({a}, inplace=True)", f"{a}.neg_()",
            f"{a}.index_fill_({d}, torch.tensor([0]), 2)", f"{a}[{a} > {MARGIN}] = 0", f"{a}.view(-1)[0] = 5", f"{a}.uniform_()", f"{a}.addcmul_({b}, {b})",
            f"{a} += {b}", f"{a}.abs_()", f"{a}.squeeze_()", f"{a}.index_add_({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1).clone())"))

    # -- trying

    def add(self):
        """Tries one line; True when it stays."""
        made = self.line()
        if made is None:
            return False
        name, text = (None, made[1]) if type(made) is tuple else (f"v{len(self.lines)}", made)
        line = text if name is None else f"{name} = {text}"
        before = {n: t.clone() if name is None else t for n, t in self.space.items()}
        state, random_numbers = dict(self.space), torch.get_rng_state()
        try:
            exec(line, {"torch": torch, "F": torch.nn.functional}, state)
        except Exception:
            torch.set_rng_state(random_numbers)
            self.again(before)
            return False
        if not all(self.is_fine(t) for t in state.values()):
            torch.set_rng_state(random_numbers)
            self.again(before)
            return False
        self.lines.append(line)
        if name is not None:
            self.names.append(name)
            if self.keeps_exact(name, text, state):
                self.exact.add(name)
        else:
            self.exact &= {n for n in self.exact if torch.equal(before[n], state[n])}
        self.space = state
        return True

    def again(self, before):
        """A line that failed may have written something: the program so far is run anew."""
        torch.manual_seed(self.seed_of_inputs)
        self.space = {f"i{k}": t for k, t in enumerate(make_all(self.inputs))}
        for line in self.lines:
            exec(line, {"torch": torch, "F": torch.nn.functional}, self.space)

    def is_fine(self, t):
        if not isinstance(t, torch.Tensor) or t.numel() > 6000 or t.dim() > 5 or t.is_complex():
            return False
        if not t.is_floating_point():
            return t.numel() == 0 or bool(t.to(torch.float64).abs().max() < 1e6)
        if t.numel() and not bool(torch.isfinite(t).all() and t.abs().max() < LARGEST):
            return False
        return t.numel() == 0 or not bool(((t.double() - MARGIN).abs() < 1e-3).any())

    def keeps_exact(self, name, text, state):
        t = state[name]
        used = [n for n in self.names if any(text[i:i + len(n)] == n and not text[i + len(n):i + len(n) + 1].isdigit() for i in range(len(text)))]
        if not set(used) <= self.exact:
            return False
        if not t.is_floating_point():
            return True
        return any(word in text for word in (".permute", ".transpose", ".view", ".narrow", ".select(", ".clone", ".contiguous", ".flip", ".detach", ".expand"))


def generate(seed):
    maker = Maker(seed)
    maker.seed_of_inputs = 1000 * seed
    wanted, tries = maker.r.randint(3, 14), 0
    while len(maker.lines) < wanted and tries < 120:
        maker.add()
        tries += 1
    results = maker.r.sample(maker.names, min(len(maker.names), maker.r.randint(1, 5)))
    if maker.names[-1] not in results:
        results.append(maker.names[-1])
    return Program(seed, maker.inputs, maker.lines, results)


# -- comparing --------------------------------------------------------------------------------------------------------


def difference(a, b, least=0.0):
    for what in ("dtype", "shape", "requires_grad"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(a, what)} against {getattr(b, what)}"
    if [s for s, n in zip(a.stride(), a.shape) if n > 1] != [s for s, n in zip(b.stride(), b.shape) if n > 1] and a.numel():
        return f"strides {a.stride()} against {b.stride()}"
    if a.dtype not in BOUND:
        return None if torch.equal(a, b) else f"elements {a.flatten()[:8].tolist()} against {b.flatten()[:8].tolist()}"
    finite = a[torch.isfinite(a)].double()
    bound = max(BOUND[a.dtype], least) * (max(1.0, float(finite.abs().max())) if finite.numel() else 1.0)
    if torch.allclose(a.double(), b.double(), rtol=0, atol=bound, equal_nan=True):
        return None
    worst = (a.double() - b.double()).abs().max()
    return f"elements off by {worst}: {a.flatten()[:6].tolist()} against {b.flatten()[:6].tolist()}"


def relations(tensors, writes):
    """What two sets of tensors have to have in common beside their elements. Whether a tensor is a view is asked of those that share."""
    storages = [t.untyped_storage().data_ptr() if t.numel() else None for t in tensors]
    shared = [s is not None and len({id(t) for t, o in zip(tensors, storages) if o == s}) > 1 for s in storages]
    return {"identity": [[a is b for b in tensors] for a in tensors], "memory": [[s is not None and s == o for o in storages] for s in storages],
            "views": [t._is_view() for t, s in zip(tensors, shared) if s] if writes else None, "writes": [t._version for t in tensors] if writes else None}


def compare_call(eager, compiled, program, call):
    mine, theirs = program.arguments(call), program.arguments(call)
    torch.manual_seed(call)
    expected = eager(*mine)
    state = torch.get_rng_state()
    torch.manual_seed(call)
    got = compiled(*theirs)
    least = BOUND[torch.bfloat16] if program.is_coarse(mine) else 0.0
    for k, (a, b) in enumerate(zip([*expected, *mine], [*got, *theirs], strict=True)):
        name = program.results[k] if k < len(program.results) else f"i{k - len(program.results)} afterwards"
        wrong = difference(a, b, least)
        if wrong:
            return f"{name}: {wrong}"
    writes = program.mode != "inference" and not any(word in line for word in COMPOSED for line in program.lines)
    for (what, a), b in zip(relations([*expected, *mine], writes).items(), relations([*got, *theirs], writes).values(), strict=True):
        if a != b and not (what == "views" and all(x or not y for x, y in zip(a, b, strict=True))):
            return f"{what}: {a} against {b}"
    return None if torch.equal(state, torch.get_rng_state()) else "random numbers"


def check(program, calls=4, trials=0):
    """None, or what differs; and how often code ran. trials: launches take turns with the steps that often."""
    kintsugi.reset()
    engine.set_option("trials", trials)
    fn = program.function()
    compiled = kintsugi.compile(fn)
    try:
        with kintsugi.config.patch(kernels=True), MODES[program.mode]():
            for call in range(calls):
                wrong = compare_call(fn, compiled, program, call)
                if wrong:
                    return f"call {call}: {wrong}", 0
        return None, sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"])
    except Exception:
        return traceback.format_exc(limit=-2), 0
    finally:
        engine.set_option("trials", 7)


def is_valid(program):
    """Does eager run it, twice the same?"""
    try:
        fn = program.function()
        with MODES[program.mode]():
            for call in range(4):
                torch.manual_seed(call)
                fn(*program.arguments(call))
        return True
    except Exception:
        return False


def smaller(program):
    for k in range(len(program.lines) - 1, -1, -1):
        yield Program(program.seed, program.inputs, program.lines[:k] + program.lines[k + 1:], program.results)
    for k in range(len(program.results)):
        if len(program.results) > 1:
            yield Program(program.seed, program.inputs, program.lines, program.results[:k] + program.results[k + 1:])


def shrink(program, wrong, test=check):
    progress = True
    while progress:
        progress = False
        for candidate in smaller(program):
            if not is_valid(candidate):
                continue
            now = test(candidate)[0]
            if now:
                program, wrong, progress = candidate, now, True
                break
    return program, wrong


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--trials", type=int, default=0, help="launches take turns with the steps so often, as for users (7)")
    options = parser.parse_args(argv)
    test = functools.partial(check, calls=8 if options.trials else 4, trials=options.trials)
    failures = launched = made = 0
    for seed in range(options.seed, options.seed + options.count):
        program = generate(seed)
        if not is_valid(program):
            continue
        made += 1
        if options.show:
            print(program.source())
        wrong, launches = test(program)
        launched += launches > 0
        if wrong:
            failures += 1
            if not options.no_shrink:
                program, wrong = shrink(program, wrong, test)
            print(f"--- seed {seed}, {program.mode}{', poisoned' * program.poisoned}: {wrong}\n{program.source()}", flush=True)
            print([(tuple(t.shape), t.stride(), t.dtype) for t in program.arguments(0)], flush=True)
    print(f"{failures} of {made} programs differ, {launched} ran as kernels")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
