# title: fix: reorderable_logging_functions
# equal: eager
# stats: breaks=0
import torch
import torch._dynamo

torch._dynamo.config.reorderable_logging_functions.add(print)


@torch.compile
def f(x):
    y = x + 1
    print("after add")
    return y * 2


for _ in range(3):
    print(f(torch.ones(2)).tolist())
