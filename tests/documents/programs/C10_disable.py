# title: fix: torch.compiler.disable()
# equal: eager
import torch


@torch.compiler.disable()
def outside(x):
    return x.sin() if x.sum() > 0 else x.cos()


@torch.compile
def f(x):
    return outside(x * 2) + 1


print([round(v, 5) for v in f(torch.ones(2)).tolist()])
