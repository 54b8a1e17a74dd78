# title: detect: TORCH_LOGS="graph_breaks" prints each break with reason, hints, page and user stack
# env: TORCH_LOGS=graph_breaks
# equal: eager
# expect-err: Graph break in user code
# expect-err: gb0170
# expect-err: if y\.sum\(\) > 0
import torch


@torch.compile
def f(x):
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y * 2


print(f(torch.ones(3)).shape)
