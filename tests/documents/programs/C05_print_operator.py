# title: fix: torch._higher_order_ops.print
# equal: eager
# expect: Activated shape: 
# stats: breaks=0
import torch
import torch._higher_order_ops


@torch.compile(fullgraph=True)
def f(x):
    h = x.relu()
    torch._higher_order_ops.print("Activated shape: {}", h.shape)
    return h + 1


print(f(torch.ones(3)).tolist())
