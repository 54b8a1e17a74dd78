# title: a custom operator with a fake implementation is one node
# equal: eager
# stats: breaks=0
import torch
from torch.library import custom_op


@custom_op("mylib::custom_kernel", mutates_args=())
def custom_kernel(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@custom_kernel.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compile(fullgraph=True)
def f(x):
    return custom_kernel(x) + 1


print(f(torch.arange(3.0)).tolist())
