# title: recipe for GB0124: capture_scalar_outputs
# equal: eager
# stats: breaks=0
import torch
import torch._dynamo

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(fullgraph=True)
def f(x):
    return torch.sin(x) * x.sum().item() + 1


for v in (1.0, 2.0, 3.0):
    print([round(i, 5) for i in f(torch.full((2,), v)).tolist()])
