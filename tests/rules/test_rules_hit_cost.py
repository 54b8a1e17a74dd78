"""Section 13: a hit in about one microsecond; what stays true when guards are merged into few words."""
import kintsugi
import torch
from torch import nn
from two_worlds import T, rule


@rule
def test_rule_102_words_are_only_a_filter(w):
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(6)])
    g = w.compile(lambda x: net(x))
    for _ in range(8):
        w.call(g, T(1, 3))
    w.hit(g, T(1, 3))
    net[3].note = "unrelated"
    w.hit(g, T(1, 3))
    w.hit(g, T(1, 3))
    net[3].register_forward_hook(lambda mod, args, out: out * 2)
    w.call(g, T(1, 3))
    net[4]._forward_hooks.clear()
    net[5].weight = nn.Parameter(torch.ones(3, 3))
    w.call(g, T(1, 3))
    net[5].bias.data = torch.ones(3)
    w.call(g, T(1, 3))
    net.training = False
    w.call(g, T(1, 3))
    nn.Linear.extra = 1
    del nn.Linear.extra
    w.call(g, T(1, 3))


@rule
def test_rule_103_misses_leave_no_trace(w):
    log = []
    state = {"n": 1}

    def f(x):
        y = torch.rand(3) + x
        log.append(float(y[0]))
        return y * state["n"]

    g = w.compile(f)
    for n in (1, 1, 2, "s", 2, 1):
        state["n"] = n
        w.call(g, T())
        w.see(log)


@rule
def test_rule_104_shared_facts_of_two_functions(w):
    holder = {"n": 2}
    a = w.compile(lambda x: x * holder["n"])
    b = w.compile(lambda x: x + holder["n"])
    for n in (2, 2, 3, 3.5, "s", 2):
        holder["n"] = n
        w.call(a, T())
        w.call(b, T())


@rule
def test_rule_105_packed_records(w):
    def f(a, b):
        return a * 2 + b.sum()

    g = w.compile(f)
    x, y = T(2, 2), T(2, 2)
    for _ in range(6):
        w.call(g, x, y)
    w.hit(g, x, y)
    y.t_()
    w.call(g, x, y)
    y.requires_grad_()
    w.call(g, x, y)
    y.requires_grad_(False)
    y.data = y.double()
    w.call(g, x, y)
    y.resize_(3, 3).fill_(1)
    w.call(g, x, y)
    w.call(g, y, x)


@rule
def test_rule_106_choice_of_the_entry(w):
    def f(x, mode, flag):
        if mode == "a":
            x = x * 2
        elif mode == "b":
            x = x * 3
        return x + 1 if flag else x - 1

    g = w.compile(f)
    for _ in range(3):
        for mode in "abc":
            for flag in (True, False, 1, None):
                w.call(g, T(), mode, flag)
    w.hit(g, T(), "b", None)
    w.hit(g, T(), "a", 1)


@rule
def test_rule_107_facts_after_breaks(w):
    box = {"n": 2}
    log = []

    def f(x):
        y = x * box["n"]
        log.append(y.sum().item())
        kintsugi.graph_break()
        return y + box["n"]

    g = w.compile(f)
    for n in (2, 2, 3, 3, 2.5):
        box["n"] = n
        w.call(g, T())
        w.see(log)
    w.call(g, T())
