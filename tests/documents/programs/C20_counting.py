# title: compare: number of "Graph break in user code" lines and the counters
# env: TORCH_LOGS=graph_breaks
# equal: none
# expect: ^counted 2$
# count-err: Graph break in user code = 2
import torch
import torch._dynamo.utils


@torch.compile
def f(x):
    if x.sum() > 0:
        x = x + 1
    if x.mean() > 0:
        x = x * 2
    return x


f(torch.ones(3))
f(torch.ones(3))
print("counted", sum(torch._dynamo.utils.counters["graph_break"].values()))
