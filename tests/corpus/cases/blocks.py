"""Blocks that begin and end with code of the program: context managers made of generators (contextlib.contextmanager)."""
import contextlib

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0
LOG = []
DEPTH = [0]
STATE = {"on": False}


class Config:
    scale = 1.0


config = Config()


@contextlib.contextmanager
def factor(k):
    yield k * SCALE


@contextlib.contextmanager
def deeper(by=1):
    before = DEPTH[0]
    DEPTH[0] = before + by
    try:
        yield before
    finally:
        DEPTH[0] = before


@contextlib.contextmanager
def scaled(scale):
    old, config.scale = config.scale, scale
    try:
        yield config
    finally:
        config.scale = old


@contextlib.contextmanager
def switched_on():
    STATE["on"] = True
    try:
        yield
    finally:
        STATE["on"] = False


@contextlib.contextmanager
def without_gradients(really=True):
    with torch.set_grad_enabled(not really):
        yield


@contextlib.contextmanager
def noted(name):
    LOG.append("begin " + name)
    try:
        yield name
    except ValueError as error:
        LOG.append(f"error {error}")
    finally:
        LOG.append("end " + name)


@contextlib.contextmanager
def both(k):
    with deeper(), factor(k) as f:
        yield f


@case(mutate=glob(3, SCALE=3.0))
def yields_a_number(x):
    y = x + 1
    with factor(3) as k:
        y = y * k
    return y - 1


@case(mutate=glob(3, SCALE=3.0))
def block_in_a_list(x):
    y = x * SCALE
    with deeper() as before:
        y = y + DEPTH[0]
        with deeper(2):
            y = y * DEPTH[0]
        z = y - DEPTH[0]
    return z * 2 + before, DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=3)
def block_in_an_attribute(x):
    y = x * config.scale
    with scaled(SCALE) as c:
        y = y + c.scale
        z = y.sum() * config.scale
    return y * config.scale + z


@case(mutate=glob(3, SCALE=3.0))
def block_in_a_dict(x):
    y = x * 2
    with switched_on():
        if STATE["on"]:
            y = y * SCALE
    return y + (1 if STATE["on"] else 2)


@case(mutate=glob(3, SCALE=3.0), args=lambda i, s: (T(i, 4, 3).requires_grad_(),))
def block_without_gradients(x):
    y = x * SCALE
    with without_gradients():
        z = y * 2
        inside = torch.is_grad_enabled()
    with without_gradients(False):
        w = y * 3
    return y + 1, z, w, inside, torch.is_grad_enabled(), z.requires_grad, w.requires_grad


@case(mutate=glob(3, SCALE=3.0), replays=3)
def block_in_a_block(x):
    y = x + 1
    with both(3) as k:
        y = y * k + DEPTH[0]
    return y + DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=3)
def block_that_notes(x):
    del LOG[:]
    y = x * SCALE
    with noted("one") as name:
        y = y + len(name)
    return y * 2, list(LOG)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def block_swallows_an_error(x):
    del LOG[:]
    y = x * SCALE
    with noted("one"):
        y = y + 1
        if y.shape[0] > 2:
            raise ValueError("too long")
        y = y + 2
    return y * 2, list(LOG)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def error_leaves_the_block(x):
    y = x * SCALE
    with deeper():
        y = y + DEPTH[0]
        y = y @ y.t() @ y.t()
    return y


@case(mutate=glob(3, SCALE=3.0))
def returns_out_of_the_block(x):
    with deeper(3) as before:
        for k in range(3):
            if k == 1:
                return x * SCALE + DEPTH[0] - before
    return x


@case(mutate=glob(3, SCALE=3.0))
def leaves_a_loop_out_of_the_block(x):
    out = []
    for k in range(4):
        with deeper(k):
            if k == 2:
                break
            out.append(x * DEPTH[0] * SCALE)
    return out, DEPTH[0]


@deeper(5)
def decorated(x):
    return x * DEPTH[0]


@case(mutate=glob(3, SCALE=3.0))
def block_as_a_decorator(x):
    return decorated(x) * SCALE + DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=0)
def block_that_is_never_left(x):
    manager = deeper(2)
    manager.__enter__()
    y = x * SCALE + DEPTH[0]
    del manager
    return y + DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=0)
def block_that_outlives_the_call(x):
    manager = scaled(SCALE)
    with contextlib.suppress(ValueError):
        manager.__enter__()
    return x * config.scale


@case(mutate=glob(3, SCALE=3.0), args=lambda i, s: (T(i, 4, 3) - (i % 2),), replays=2)
def data_decides_in_the_block(x):
    with deeper() as before:
        y = x * SCALE
        if y.sum() > 0:
            y = y + DEPTH[0]
        else:
            y = y - DEPTH[0]
    return y * 2 + before, DEPTH[0]


@case(mutate=glob(3, SCALE=3.0), replays=3)
def entered_by_a_stack(x):
    with contextlib.ExitStack() as stack:
        k = stack.enter_context(factor(2))
        before = stack.enter_context(deeper(2))
        stack.callback(LOG.clear)
        y = x * k + before + DEPTH[0]
    return y * SCALE + DEPTH[0]
