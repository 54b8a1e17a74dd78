# title: detect: TORCHDYNAMO_VERBOSE=1 keeps the same record and adds to it
# env: TORCH_LOGS=graph_breaks TORCHDYNAMO_VERBOSE=1
# equal: eager
# expect-err: Graph break in user code
import torch


@torch.compile
def f(x):
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y * 2


print(f(torch.ones(3)).shape)
