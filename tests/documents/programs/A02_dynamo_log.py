# title: TORCH_LOGS="+dynamo" names the graph break
# env: TORCH_LOGS=+dynamo
# equal: eager
# expect-err: Graph break
# expect-err: if x\.sum\(\) > 0
import torch


@torch.compile
def f(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


print(f(torch.ones(3)).tolist())
