# title: GB0142: context managers inside
# equal: eager
# stats: breaks=0
import torch


@torch.compile(fullgraph=True)
def f(x):
    with torch.no_grad():
        y = x * 2
    with torch.inference_mode(False):
        z = x * 3
    return y + z


out = f(torch.ones(2, requires_grad=True))
print(out.tolist(), out.requires_grad)
