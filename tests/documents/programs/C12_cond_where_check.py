# title: recipes for GB0170 and GB0035: cond, where, torch._check
# equal: eager
import torch


@torch.compile(fullgraph=True)
def with_cond(x):
    return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))


@torch.compile(fullgraph=True)
def with_where(x):
    return torch.where(x.sum() > 0, x + 1, x - 1)


@torch.compile(fullgraph=True)
def with_check(x):
    torch._check(x.shape[0] > 1)
    return x * x.shape[0]


for x in (torch.ones(3), -torch.ones(3)):
    print(with_cond(x).tolist(), with_where(x).tolist(), with_check(x).tolist())
