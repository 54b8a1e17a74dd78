"""Operators alone, over dtypes, sizes and dims: eager against compiled code, in one process; what is behind eager is listed.

    python bench/operators.py [PART OF A NAME ...] [--behind 0.97]

Elapsed time of one thread, medians of 30 calls, what seems behind measured twice. Compiled calls run compiled code also where a program's would have
gone back to steps because they are faster (options={"warm": True}): this looks for kernels to better, not for what users get.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812

import kintsugi  # noqa: E402

SHAPES = [(64, 512), (512, 64), (16, 32, 64), (8, 16, 24, 24)]
FLOATS = [torch.float32, torch.bfloat16, torch.float64]
ONE = ("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid erf erfc erfinv lgamma digamma "
       "round floor trunc frac sign reciprocal logit").split()
TWO = "atan2 pow fmod remainder hypot logaddexp xlogy maximum copysign floor_divide".split()
ACTIVATIONS = "gelu silu mish softplus elu selu hardswish hardsigmoid logsigmoid softsign leaky_relu".split()
ALONG = {
    **{name: lambda x, dim, name=name: getattr(x, name)(dim) for name in ("sum", "amax", "argmax", "cumsum", "prod", "mean", "var", "logsumexp", "softmax")},
    "any": lambda x, dim: (x > 0).any(dim),
    "max": lambda x, dim: x.max(dim).values * 2,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
    "flip": lambda x, dim: x.flip(dim) + 1,
    "roll": lambda x, dim: x.roll(3, dim) + 1,
    "diff": lambda x, dim: x.diff(dim=dim) + 1,
}
IMAGES = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2) + 1,
    "max_pool2d 3 by 2": lambda x: F.max_pool2d(x, 3, 2, 1) + 1,
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2) + 1,
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 7) + 1,
    "interpolate nearest": lambda x: F.interpolate(x, scale_factor=2) + 1,
    "interpolate bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + 1,
    "interpolate bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic") + 1,
    "pad reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect") + 1,
    "unfold": lambda x: F.unfold(x, 3) + 1,
    "fold": lambda x: F.fold(F.unfold(x, 3), (40, 40), 3) + 1,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2) + 1,
    "group_norm": lambda x: F.group_norm(x, 4),
    "instance_norm": F.instance_norm,
    "local_response_norm": lambda x: F.local_response_norm(x, 5),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1)),
    "huber_loss": lambda x: F.huber_loss(x, x.flip(1)),
    "topk": lambda x: x.topk(3, -1).values + 1,
    "sort": lambda x: x.sort(-1).values + 1,
}
# in, out, kernel, stride, padding, groups, side
CONVOLUTIONS = [(16, 32, 3, 1, 1, 1, 32), (32, 64, 1, 1, 0, 1, 32), (16, 32, 3, 2, 1, 1, 32), (3, 32, 7, 2, 3, 1, 64), (32, 32, 3, 1, 1, 32, 32),
                (32, 32, 5, 2, 2, 32, 32), (32, 32, 3, 1, 1, 4, 32), (1, 1, 3, 1, 1, 1, 64), (3, 64, 8, 8, 0, 1, 64)]
PRODUCTS = [(1, 256, 256), (4, 512, 512), (64, 64, 64), (128, 256, 512), (200, 33, 77), (512, 8, 512)]


def pointwise_cases(dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(16384, generator=generator).to(dtype) * 0.8 + 0.1 for _ in range(2))
    for name in ONE:
        yield name, lambda x, name=name: getattr(torch, name)(x) * 2, (x + 1 if name == "acosh" else x,)
    for name in TWO:
        yield name, lambda x, y, name=name: getattr(torch, name)(x, y) * 2, (x, y)
    for name in ACTIVATIONS:
        yield name, lambda x, name=name: getattr(F, name)(x) * 2, (x - 0.5,)


def shaped_cases(dtype):
    for shape in SHAPES:
        x = (torch.randn(shape) * 3).to(dtype)
        where = torch.randint(0, shape[-1], shape)
        rows = torch.randint(0, shape[0], (50,))
        for dim in range(-1, -1 - len(shape), -1):
            for name, fn in ALONG.items():
                yield f"{name} {dim} {list(shape)}", lambda x, fn=fn, dim=dim: fn(x, dim), (x,)
        some = {
            "sum": lambda x: x.sum(),
            "transpose": lambda x: x.transpose(-1, -2).contiguous() + 1,
            "where": lambda x: torch.where(x > 0, x, x * 2),
            "tril": lambda x: x.tril() + 1,
            "index": lambda x, rows=rows: x[rows] + 1,
            "gather": lambda x, where=where: x.gather(-1, where) + 1,
            "scatter_add": lambda x, where=where: torch.zeros_like(x).scatter_add(-1, where, x) + 1,
            "index_add": lambda x, rows=rows: torch.zeros_like(x).index_add(0, rows, x[rows]) + 1,
            "cat": lambda x: torch.cat([x, x * 2], -1) + 1,
            "repeat_interleave": lambda x: x.repeat_interleave(2, -1) + 1,
        }
        if dtype.is_floating_point:
            some["layer_norm"] = lambda x: F.layer_norm(x, x.shape[-1:])
            some["matmul"] = lambda x: x @ x.transpose(-1, -2) * 0.5
        for name, fn in some.items():
            yield f"{name} {list(shape)}", fn, (x,)


def layer_cases(dtype):
    image = torch.randn(2, 16, 40, 40).to(dtype)
    for name, fn in IMAGES.items():
        yield name, fn, (image,)
    for ins, outs, kernel, stride, padding, groups, side in CONVOLUTIONS:
        weight = (torch.randn(outs, ins // groups, kernel, kernel) * 0.1).to(dtype)
        name = f"conv2d {ins} to {outs}, kernel {kernel}, stride {stride}, groups {groups}"
        yield (name, lambda x, weight=weight, rest=(stride, padding, 1, groups): F.conv2d(x, weight, None, *rest).relu(),
               (torch.randn(2, ins, side, side).to(dtype),))
    for rows, inner, columns in PRODUCTS:
        weight = torch.randn(columns, inner).to(dtype)
        yield f"linear {rows} x {inner} x {columns}", lambda x, weight=weight: F.linear(x, weight).relu(), (torch.randn(rows, inner).to(dtype),)
    heads = torch.randn(2, 4, 48, 32).to(dtype)
    yield "attention", lambda x: F.scaled_dot_product_attention(x, x, x) * 2, (heads,)
    yield "attention, causal", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True) * 2, (heads,)


def all_cases():
    torch.manual_seed(0)
    for dtype in [*FLOATS, torch.int64]:
        sources = [pointwise_cases, shaped_cases, layer_cases] if dtype.is_floating_point else [shaped_cases]
        for source in sources:
            for name, fn, args in source(dtype):
                yield f"{name}, {str(dtype)[6:]}", fn, args


def median_us(fn, args, calls=30):
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        fn(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def measure(fn, args):
    """Eager's and ours, microseconds; None: eager has no such operator."""
    try:
        fn(*args)
    except (RuntimeError, NotImplementedError):
        return None
    compiled = kintsugi.compile(lambda *args: fn(*args), options={"warm": True})
    for _ in range(8):
        compiled(*args)
    eager, ours = median_us(fn, args), median_us(compiled, args)
    if ours > 0.95 * eager:
        eager, ours = min(eager, median_us(fn, args)), min(ours, median_us(compiled, args))
    return eager, ours


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--behind", type=float, default=0.97, help="list cases below this ratio (default 0.97)")
    options = parser.parse_args()
    rows = []
    with torch.no_grad():
        for name, fn, args in all_cases():
            if not options.names or any(part in name for part in options.names):
                times = measure(fn, args)
                if times:
                    rows.append((times[0] / times[1], name, *times))
    if not rows:
        parser.error(f"no case's name contains any of {options.names}")
    rows.sort()
    ratios = [row[0] for row in rows]
    print(f"{len(rows)} cases; eager / ours: geometric mean {statistics.geometric_mean(ratios):.2f}, median {statistics.median(ratios):.2f}, "
          f"{sum(ratio < options.behind for ratio in ratios)} below {options.behind}")
    for ratio, name, eager, ours in rows:
        if ratio < options.behind:
            print(f"{ratio:6.2f}  {name}: {eager:.0f} us eager, {ours:.0f} us ours")


if __name__ == "__main__":
    main()
