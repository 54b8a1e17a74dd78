# title: fix: torch._higher_order_ops.print
# equal: none
# expect: Activated shape: torch.Size\(\[3\]\)
# stats: breaks=0
import torch
import torch._higher_order_ops


@torch.compile(fullgraph=True)
def f(x):
    h = x.relu()
    torch._higher_order_ops.print("Activated shape: {}", h.shape)
    return h + 1


print(f(torch.ones(3)).tolist())
