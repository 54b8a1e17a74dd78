# title: GB0003: a generator handed to code inside
# equal: eager
# stats: breaks=0
import torch


@torch.compile
def f(x):
    return sum(x * i for i in range(3))


print(f(torch.ones(2)).tolist())
