"""Section 6: ambient state."""
import contextlib
import contextvars
import decimal
import gc
import logging
import os
import sys
import threading
import time
import warnings

import torch
from two_worlds import T, rule

LOG = logging.getLogger("kincorpus.rules")


@rule
def test_rule_60_other_thread(w):
    def f(x):
        y = x * 2
        return y, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.mm(x[None], x[:, None])

    g = w.compile(f)
    x = T().requires_grad_()

    def elsewhere():
        out = []
        thread = threading.Thread(target=lambda: out.append(g(x)))
        thread.start()
        thread.join()
        w.see(out)

    with torch.no_grad():
        w.call(g, x)
        w.hit(g, x)
        elsewhere()
    w.call(g, x)
    elsewhere()
    with torch.autocast("cpu"):
        w.call(g, x)
        elsewhere()
    w.call(g, x)


@rule
def test_rule_61_grad_modes(w):
    def f(x):
        return x * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    g = w.compile(f)
    x = T().requires_grad_()
    for context in (contextlib.nullcontext, torch.no_grad, torch.inference_mode, contextlib.nullcontext, torch.no_grad,
                    torch.enable_grad, torch.inference_mode):
        with context():
            w.call(g, x)
            w.call(g, x)


@rule
def test_rule_61_autocast(w):
    def f(a):
        return torch.mm(a, a), torch.is_autocast_enabled("cpu")

    g = w.compile(f)
    for options in (None, {}, {"dtype": torch.bfloat16}, {"dtype": torch.float16}, {"enabled": False}, None):
        with torch.autocast("cpu", **options) if options is not None else contextlib.nullcontext():
            w.call(g, T(2, 2))
            w.call(g, T(2, 2))


@rule
def test_rule_61_anomaly_and_deterministic(w):
    def f(x):
        return x * 2, torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    with torch.autograd.detect_anomaly(check_nan=False):
        w.call(g, T())
    torch.use_deterministic_algorithms(True)
    w.call(g, T())
    torch.use_deterministic_algorithms(False)
    w.call(g, T())


@rule
def test_rule_61_functorch_and_forward_ad(w):
    def f(x):
        return x.sin() * x

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    w.call(lambda: torch.func.grad(lambda x: g(x).sum())(T()))
    w.call(lambda: torch.func.vmap(g)(T(2, 3)))
    import torch.autograd.forward_ad as fwd
    with fwd.dual_level():
        warnings.simplefilter("ignore")  # torch says something at the first use only
        out = g(fwd.make_dual(T(), torch.ones(3)))
        w.see(fwd.unpack_dual(out).tangent)
    w.hit(g, T())


torch.get_float32_matmul_precision()  # some versions of PyTorch warn of it, once in a process


@rule
def test_rule_61_precision(w):
    def f(x):
        return x @ x, torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.get_num_threads()

    g = w.compile(f)
    w.call(g, T(2, 2))
    w.call(g, T(2, 2))
    torch.set_float32_matmul_precision("medium")
    try:
        w.call(g, T(2, 2))
    finally:
        torch.set_float32_matmul_precision("highest")
    with torch.backends.mkldnn.flags(enabled=False):
        w.call(g, T(2, 2))
    w.call(g, T(2, 2))


@rule
def test_rule_62_own_write_comes_before_later_reads(w):
    def f(x, on):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(on)
        inside = torch.is_grad_enabled()
        y = x * 2
        return y, before, inside

    g = w.compile(f)
    x = T().requires_grad_()
    for on in (True, True, False, False, True, True):
        w.call(g, x, on)
    torch.set_grad_enabled(True)


@rule
def test_rule_62_state_after_an_exception(w):
    def f(x, n):
        with torch.no_grad():
            y = x * 2
            if n > 2:
                raise ValueError(n)
            z = torch.cat([y, torch.ones(1, n)]) if n == 2 else y
        return z, torch.is_grad_enabled()

    g = w.compile(f)
    for n in (1, 1, 2, 2, 3, 3, 1):
        w.call(g, T().requires_grad_(), n)


@rule
def test_rule_63_effect_under_its_state(w):
    log = []

    class Sink:
        def append(self, value):
            log.append((torch.is_grad_enabled(), value.requires_grad))

    sink = Sink()

    def f(x):
        with torch.no_grad():
            sink.append(x * 2)
            y = x * 3
        sink.append(x * 2)
        with torch.enable_grad():
            print(torch.is_grad_enabled(), (x * 2).requires_grad)
        return y

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T().requires_grad_())
        w.see(log)
    with torch.no_grad():
        w.call(g, T().requires_grad_())
        w.see(log)


@rule
def test_rule_64_context_variables(w):
    var = contextvars.ContextVar("var", default=2)

    def f(x):
        return x * var.get()

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    token = var.set(3)
    w.call(g, T())
    w.call(lambda: contextvars.Context().run(g, T()))
    var.reset(token)
    w.call(g, T())

    def h(x, n):
        token = var.set(n)
        y = x * var.get()
        var.reset(token)
        return y * var.get()

    g = w.compile(h)
    for n in (2, 2, 5, 6):
        w.call(g, T(), n)


@rule
def test_rule_64_thread_locals(w):
    local = threading.local()
    local.n = 2

    def f(x):
        return x * local.n

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    local.n = 3
    w.call(g, T())

    def elsewhere():
        out = []

        def run():
            local.n = 7
            out.append(g(T()))
            out.append(g(T()))
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        w.see(out)
    elsewhere()
    w.call(g, T())
    del local.n
    w.call(g, T())


@rule
def test_rule_64_decimal_context(w):
    def f(x):
        return x + 1, str(decimal.Decimal(1) / decimal.Decimal(3))

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    with decimal.localcontext() as context:
        context.prec = 5
        w.call(g, T())
        context.prec = 6
        w.call(g, T())
    w.call(g, T())


@rule
def test_rule_64_handled_exception(w):
    def f(x):
        return x + 1, sys.exc_info()[0]

    def g_in(fn):
        try:
            raise KeyError("k")
        except KeyError:
            return fn(T())

    def raising(x):
        raise ValueError("v")

    for fn in (f, raising):
        g = w.compile(fn)
        w.call(g, T())
        w.call(g, T())
        w.call(lambda: g_in(g))
        w.call(lambda: g_in(g))
        w.call(g, T())


@rule
def test_rule_65_process_state(w):
    def f(x):
        return (x + 1, os.environ.get("KINCORPUS_RULE"), os.getcwd(), sys.getrecursionlimit(), gc.isenabled(),
                os.path.exists("rule65.txt"))

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    os.environ["KINCORPUS_RULE"] = "set"
    w.call(g, T())
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(old + 7)
    w.call(g, T())
    sys.setrecursionlimit(old)
    gc.disable()
    w.call(g, T())
    gc.enable()
    cwd = os.getcwd()
    os.chdir("/")
    w.call(g, T())
    os.chdir(cwd)
    del os.environ["KINCORPUS_RULE"]
    w.call(g, T())


@rule
def test_rule_65_clock_and_subclasses(w):
    class Base:
        pass

    kinds = []

    def f(x, last):
        now = time.perf_counter_ns()
        return x * 2, now > last[0], last.__setitem__(0, now), len(Base.__subclasses__())

    g = w.compile(f)
    last = [0]
    for i in range(4):
        w.call(lambda: g(T(), last)[:2] + g(T(), last)[3:])
        kinds.append(type(f"Sub{i}", (Base,), {}))


@rule
def test_rule_65_print_options(w):
    def f(x):
        return x + 1, repr(x), f"{x}", str(x[0])

    g = w.compile(f)
    w.call(g, T() / 3)
    w.call(g, T() / 3)
    torch.set_printoptions(precision=2)
    try:
        w.call(g, T() / 3)
        w.call(g, T() / 7)
    finally:
        torch.set_printoptions(profile="default")
    w.call(g, T() / 3)


@rule
def test_rule_66_warning_filters(w):
    def f(x, text):
        warnings.warn(text)
        return x + 1

    g = w.compile(f)
    w.call(g, T(), "one")
    w.call(g, T(), "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        w.call(g, T(), "one")
        warnings.simplefilter("ignore")
        w.call(g, T(), "one")
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("once")
        for text in ("one", "one", "two", "two"):
            g(T(), text)
        w.see([str(c.message) for c in caught])
    w.call(g, T(), "one")


@rule
def test_rule_66_logging(w):
    def f(x, n):
        LOG.info("value %s", n)
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("more")
        return x + 1

    g = w.compile(f)
    w.call(g, T(), 1)
    w.call(g, T(), 2)
    LOG.setLevel(logging.WARNING)
    w.call(g, T(), 1)
    LOG.setLevel(logging.INFO)
    w.call(g, T(), 1)
    LOG.disabled = True
    w.call(g, T(), 1)
    LOG.disabled = False
    rows = []
    handler = logging.Handler()
    handler.emit = lambda record: rows.append(record.getMessage())
    LOG.addHandler(handler)
    w.call(g, T(), 1)
    LOG.removeHandler(handler)
    w.call(g, T(), 1)
    logging.disable(logging.CRITICAL)
    w.call(g, T(), 1)
    logging.disable(logging.NOTSET)
    LOG.setLevel(logging.NOTSET)
    w.call(g, T(), 1)
    w.see(rows)


def test_rule_67_is_compiling_is_the_same_everywhere():
    import kintsugi

    kintsugi.reset()

    def f(x, n):
        first = torch.compiler.is_compiling()
        if n > 3:
            x = x * n
        print(end="")
        if float(x.sum()) > 40:
            x = x - 1
        return x, first, torch.compiler.is_compiling()

    g = kintsugi.compile(f)
    seen = {g(T() * k, n)[1:] for n in (1, 1, 2, 5, 6, 7) for k in (1, 9, 1, 10)}
    assert seen == {(True, True)}, seen
    assert not torch.compiler.is_compiling()
