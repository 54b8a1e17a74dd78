"""contextlib.ExitStack over context managers that are generators; settings of torch that are switched inside."""
import contextlib
import sys
import types

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kincorpus.case import T, case, glob

SCALE = 2.0
DEPTH = [0]
LOG = []


@contextlib.contextmanager
def deeper(n):
    DEPTH[0] += n
    try:
        yield DEPTH[0] * SCALE
    finally:
        DEPTH[0] -= n


@contextlib.contextmanager
def noting(name):
    LOG.append(name)
    try:
        yield name
    except ValueError as error:
        LOG.append(str(error))
    finally:
        LOG.append("-" + name)


@contextlib.contextmanager
def plain(n):
    yield n * SCALE


@case(mutate=glob(3, SCALE=3.0))
def enters_two(x):
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(deeper(1))
        b = stack.enter_context(deeper(2))
        y = x * a + b + DEPTH[0]
    return y + DEPTH[0]


@case(args=lambda i, s: (T(i, 3), i % 3), mutate=glob(3, SCALE=3.0), replays=0)
def enters_some(x, n):
    with contextlib.ExitStack() as stack:
        for i in range(n):
            x = x + stack.enter_context(deeper(i)) if i % 2 else x * stack.enter_context(plain(i))
        x = x.sin()
    return x, DEPTH[0]


@case(mutate=glob(3, SCALE=3.0))
def enters_with_settings(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(LOG.clear)
        k = stack.enter_context(plain(2))
        y = x * k
        inside = torch.is_grad_enabled()
    return y, inside, torch.is_grad_enabled()


@case(mutate=glob(3, SCALE=3.0), replays=0)
def leaves_with_an_exception(x):
    del LOG[:]
    y = x
    with contextlib.ExitStack() as stack:
        stack.enter_context(noting("a"))
        stack.enter_context(noting("b"))
        y = x * SCALE
        raise ValueError("gone")
    return y, list(LOG)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def exception_passes(x):
    del LOG[:]
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(deeper(3))
            stack.enter_context(noting("a"))
            raise KeyError(int(SCALE))
    except KeyError as error:
        return x * SCALE, DEPTH[0], list(LOG), error.args


@case(mutate=glob(3, SCALE=3.0), replays=0)
def closes_by_hand(x):
    stack = contextlib.ExitStack()
    a = stack.enter_context(deeper(1))
    before = DEPTH[0]
    stack.close()
    return x * a, before, DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=0)
def hands_over(x):
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(deeper(1))
        other = stack.pop_all()
    inside = DEPTH[0]
    other.close()
    return x * a, inside, DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=0)
def dropped_without_an_end(x):
    del LOG[:]
    stack = contextlib.ExitStack()
    stack.enter_context(noting("a"))
    y = x * SCALE
    del stack
    return y, list(LOG)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def returned_without_an_end(x):
    stack = contextlib.ExitStack()
    stack.enter_context(noting("a"))
    del LOG[:]
    return x * SCALE, list(LOG), [stack.close() for _ in range(1)], list(LOG)


@case(mutate=glob(3, SCALE=3.0))
def methods_made_by_hand(x):
    bound = types.MethodType(lambda self, y: self * y, x)
    return bound(SCALE), bound.__self__ is x, sys.exc_info(), sys.exception()


@case(mutate=glob(3, SCALE=3.0), replays=0)
def asks_what_is_handled(x):
    try:
        raise ValueError("v")
    except ValueError:
        kind, value, _ = sys.exc_info()
        same = sys.exception() is value
    return x * SCALE, kind, str(value), same, sys.exc_info(), sys.exception()


@case(mutate=glob(3, SCALE=3.0))
def default_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3) * SCALE
        inside = torch.get_default_dtype()
    finally:
        torch.set_default_dtype(before)
    return y, torch.zeros(2), inside, torch.get_default_dtype(), x + 1


@case(args=lambda i, s: (T(i, 1, 2, 4, 8),), mutate=glob(3, SCALE=3.0), replays=3)
def attention_kernels(q):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        flash = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    return y * SCALE, flash, torch.backends.cuda.mem_efficient_sdp_enabled()


@case(mutate=glob(3, SCALE=3.0))
def attention_switches(x):
    before = torch.backends.cuda.math_sdp_enabled()
    torch.backends.cuda.enable_math_sdp(False)
    inside = torch.backends.cuda.math_sdp_enabled()
    torch.backends.cuda.enable_math_sdp(before)
    return x * SCALE, before, inside, torch.backends.cuda.math_sdp_enabled()
