# title: fix: nonstrict_trace
# equal: eager
import torch
import torch._dynamo.decorators


@torch._dynamo.decorators.nonstrict_trace
def my_function(x):
    return x.relu()


@torch.compile(fullgraph=True)
def f(x):
    return my_function(x - 1) + 1


print(f(torch.arange(3.0)).tolist())
