# title: fullgraph=True fails loudly, as a RuntimeError too
# equal: none
# expect: RuntimeError Unsupported: Data-dependent
import torch


def f(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


try:
    torch.compile(f, fullgraph=True)(torch.ones(3))
except RuntimeError as e:
    print("RuntimeError", f"{type(e).__name__}: {str(e)[:100]}")
