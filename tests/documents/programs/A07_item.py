# title: pattern 3: mask.sum().item(), and the same on tensors
# equal: eager
# expect: after 0
import torch
import torch._dynamo


def process(x):
    return x.relu()


def before(x, mask):
    x = process(x)
    num_valid = mask.sum().item()
    scale = 1.0 / num_valid
    x = x * scale
    return x


def after(x, mask):
    x = process(x)
    num_valid = mask.sum()
    scale = 1.0 / (num_valid + 1e-8)
    x = x * scale
    return x


x, mask = torch.arange(8.0) - 3, torch.ones(8)
print("after", torch._dynamo.explain(after)(x, mask).graph_break_count)
for f in (before, after):
    print(torch.compile(f)(x, mask).tolist() == f(x, mask).tolist())
